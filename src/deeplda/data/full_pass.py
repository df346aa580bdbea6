"""The fingerprint of a data set and the moments of its training features, from one pass over all samples."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hashlib import blake2b

    from deeplda.data.dataset import Part
    from deeplda.predictors.feature_moments import FeatureMoments

# The number of values that are hashed at once.
_BLOCK_VALUES = 2**20


class FullPass:
    """One pass over all samples, which is made when its first result is needed.

    Args:
        class_names: the names of the classes.
        parts: the training set, followed by the other splits.
        by_content: whether the digests of files, where there are any, stand for the samples in the fingerprint.
    """

    def __init__(self, class_names: tuple[str, ...], *parts: Part, by_content: bool) -> None:
        # Not the `Data` that these belong to, which has this object: a cycle would keep large arrays in memory.
        self._class_names, self._parts, self._by_content = class_names, parts, by_content

    @cached_property
    def fingerprint(self) -> str:
        """The hex digest that `Data.fingerprint` describes."""
        digest = self._new_digest()
        for _ in self._hashed(digest):
            pass
        return digest.hexdigest()

    @cached_property
    def moments(self) -> FeatureMoments:
        """The moments of the training features, with some of these features."""
        return self.read_moments()

    def read_moments(
        self,
        watch: Callable[[Iterator[NDArray[Any]], int, str], Iterator[NDArray[Any]]] = lambda blocks, *_: blocks,
    ) -> FeatureMoments:
        """Compute `moments` and `fingerprint`; `watch` reports the progress."""
        # Imported here because it imports torch, which is not needed to list data sets.
        from deeplda.predictors.feature_moments import FeatureMoments
        from deeplda.predictors.unknown_scores import MOST_NEIGHBOURS
        from deeplda.sampling import stratified_sample

        train, digest = self._parts[0], self._new_digest()
        kept = stratified_sample(train.labels, MOST_NEIGHBOURS, seed=0)
        found = FeatureMoments(train.labels, train.weights, kept)
        for rows in watch(self._hashed(digest), len(train), "reading the features"):
            found.update(rows)
        self.moments, self.fingerprint = found, digest.hexdigest()
        return found

    def _new_digest(self) -> blake2b:
        return hashlib.blake2b(repr(self._class_names).encode(), digest_size=16)

    def _hashed(self, digest: blake2b) -> Iterator[NDArray[Any]]:
        """Add the samples and labels of all splits to a digest, and yield the training samples in blocks."""
        for number, part in enumerate(self._parts):
            samples = part.digests if self._by_content and part.digests is not None else part.inputs
            for array in (samples, part.labels):
                # Fix the byte order so that the digest is the same on every machine.
                dtype = array.dtype.newbyteorder("<")
                shape = part.inputs.shape if array is part.digests else array.shape
                digest.update(f"{dtype.str}{shape}".encode())
                step = max(1, _BLOCK_VALUES // max(1, math.prod(array.shape[1:])))
                for start in range(0, len(array), step):
                    stored = np.ascontiguousarray(array[start : start + step], dtype=dtype)
                    digest.update(stored.reshape(-1).view(np.uint8).data)
                    if number == 0 and array is samples:
                        yield stored
