"""What every source provides: labelled parts in memory, completed by a stratified split."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from deeplda.errors import InputError, got

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


TEST_SHARE = 0.15
VAL_SHARE = 0.15


def complete(source: Source, seed: int) -> Data:
    """Split off the parts that the source does not have.

    No test part: `TEST_SHARE` of the whole becomes test and, if validation is missing too, `VAL_SHARE` of the whole
    becomes validation (70/15/15). A test part but no validation part: `source.val_share` of train becomes validation.

    Raises InputError for fewer than two classes and where no sample can be spared for a part.
    """
    train, val, test = source.train, source.val, source.test
    classes = len(np.unique(train.labels))
    if classes < 2:
        found = source.class_names[train.labels[0]] if len(train) else "none"
        raise InputError(
            got(f"{source.name} has training samples of one class only ({found})", need="two or more", do="add a class")
        )
    rng = np.random.Generator(np.random.PCG64(seed))
    # Both sizes are shares of the whole, so they are fixed before anything is taken.
    test_size = _size(len(train), TEST_SHARE)
    val_size = _size(len(train), source.val_share if test is not None else VAL_SHARE)
    if test is None:
        train, test = _split_off(train, test_size, rng, source.name, "test")
    if val is None:
        train, val = _split_off(train, val_size, rng, source.name, "validation")
    return Data(source.name, train, val, test, source.class_names, source.left_out)


def _size(n: int, share: float) -> int:
    return max(1, int(n * share + 0.5))


def _split_off(part: Part, size: int, rng: np.random.Generator, name: str, what: str) -> tuple[Part, Part]:
    # Imported here because it imports torch, which listing data sets does not need.
    from deeplda.sampling import stratified_split

    rest, taken = stratified_split(part.labels, size, rng)
    if not len(taken):
        raise InputError(
            got(
                f"{name} has {len(part)} training samples of {len(np.unique(part.labels))} classes, none to spare",
                need=f"more than one of some class for a {what} part",
                do=f"add samples, or give a {what} part",
            )
        )
    return part.take(rest), part.take(taken)
