"""What every source gives: labelled parts in memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Inputs = NDArray[np.uint8] | NDArray[np.float32]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Part:
    """Samples and their labels.

    Attributes:
        inputs: uint8 images, N x C x H x W in the range 0..255, or float32 rows, N x features.
        labels: (N,) int64, places in the `class_names` of the data.
        files: which file each sample is of, as text for people; None where samples are no files.
    """

    inputs: Inputs
    labels: Labels
    files: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, places: NDArray[np.intp]) -> Part:
        """The samples at `places`, copied."""
        files = None if self.files is None else tuple(self.files[place] for place in places)
        return Part(self.inputs[places], self.labels[places], files)


@dataclass(frozen=True, eq=False)
class Source:
    """What a reader found, before the missing parts are split off.

    `val_share` is the share of train that becomes validation where there is a test part and no validation part.
    """

    name: str
    train: Part
    class_names: tuple[str, ...]
    val: Part | None = None
    test: Part | None = None
    val_share: float = 0.15
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Data:
    """Train, validation and test part of one set, and the names of its classes.

    Attributes:
        left_out: the unreadable files that were skipped on request.
    """

    name: str
    train: Part
    val: Part
    test: Part
    class_names: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    @property
    def images(self) -> bool:
        """Whether the inputs are images (else rows of features)."""
        return self.train.inputs.ndim == 4

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample: (C, H, W) or (features,)."""
        return self.train.inputs.shape[1:]

    def without_validation(self) -> Data:
        """The same data with the validation part joined to the training part."""
        inputs = np.concatenate([self.train.inputs, self.val.inputs])
        train = Part(inputs, np.concatenate([self.train.labels, self.val.labels]))
        return replace(self, train=train, val=self.val.take(np.arange(0)))

    @cached_property
    def fingerprint(self) -> str:
        """Hex digest of all contents: inputs, labels and class names of all parts, in their order."""
        digest = hashlib.blake2b(repr(self.class_names).encode(), digest_size=16)
        for part in (self.train, self.val, self.test):
            for array in (part.inputs, part.labels):
                # Byte order is fixed so that the digest is the same on every machine.
                stored = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
                digest.update(f"{stored.dtype.str}{stored.shape}".encode())
                digest.update(stored.reshape(-1).view(np.uint8).data)
        return digest.hexdigest()
