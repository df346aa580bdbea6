"""Samples in a memory-mapped file, which are read only when they are needed."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable
from tempfile import TemporaryFile, gettempdir
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from deeplda.errors import InputError
from deeplda.memory import gib

# If a block of samples has at least every fourth of those between its first and its last, all are read at once.
_MOST_SPARSE = 4


class MappedRows:
    """Some samples of a memory-mapped array, selected by their places.

    Like that of an array, a slice is a view that reads nothing, and an array of indices reads a copy of these samples;
    `np.asarray` reads all of them. `take` selects samples without reading them.

    Args:
        array: the mapped array.
        places: the indices of the samples, by default all of them.
        convert: turns samples as they are stored into those that are used, float32; it is called whenever some are
            read, and may raise an error about them.
    """

    def __init__(
        self,
        array: NDArray[Any],
        places: NDArray[np.intp] | None = None,
        convert: Callable[[NDArray[Any]], NDArray[np.float32]] | None = None,
    ) -> None:
        self._array, self._convert = np.asarray(array), convert
        self._places = np.arange(len(array)) if places is None else places

    def __len__(self) -> int:
        return len(self._places)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that an array of these samples would have."""
        return (len(self), *self._array.shape[1:])

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._array.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers that are read."""
        return self._array.dtype if self._convert is None else np.dtype(np.float32)

    def take(self, indices: NDArray[np.intp]) -> MappedRows:
        """Select the samples at these indices, without reading them."""
        return MappedRows(self._array, self._places[indices], self._convert)

    def __getitem__(self, key: Any) -> Any:
        places = self._places[key]
        if isinstance(key, slice):
            return MappedRows(self._array, places, self._convert)
        wanted = np.atleast_1d(places)
        _announce(self._array, wanted)
        # Not np.take, which first copies the whole array if it is not aligned in its file.
        rows = self._array[wanted].reshape(np.shape(places) + self._array.shape[1:])
        return rows if self._convert is None else self._convert(rows)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("samples in a file cannot be read without a copy")
        return np.asarray(self[np.arange(len(self))], dtype)


def mapped_array(shape: tuple[int, ...], dtype: DTypeLike, what: str) -> NDArray[Any]:
    """Return an array in a new temporary file, which disappears with the array, even if the process is killed.

    Raises InputError, which names `what` is stored, if the disk has no space for it.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    with TemporaryFile() as file:
        try:
            file.truncate(size)
            if hasattr(os, "posix_fallocate"):
                # Otherwise, a full disk would kill the process when a number is written.
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            do = "free some space, or set TMPDIR to a folder on another disk"
            found = f"{what} takes {gib(size)}, for which {gettempdir()} has no space ({error.strerror}): {do}"
            raise InputError(found) from None
        return np.asarray(np.memmap(file, dtype, "r+", shape=shape))


def is_mapped(array: NDArray[Any]) -> bool:
    """Return whether the numbers of an array are in a memory-mapped file."""
    return _mapping(array) is not None


def _mapping(array: NDArray[Any]) -> mmap.mmap | None:
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def _announce(array: NDArray[Any], places: NDArray[np.intp]) -> None:
    """Ask the system to read these samples of a mapped array, all at once.

    Otherwise, it would read page after page as they are used, each of them with its neighbours (benchmarks/packed.py).
    """
    mapping = _mapping(array)
    if mapping is None or not array.flags.c_contiguous or not hasattr(mmap, "MADV_WILLNEED"):
        return
    first = array.ctypes.data - np.frombuffer(mapping, dtype=np.uint8).ctypes.data
    size = array.strides[0]
    for place, count in _runs(places):
        start = first + place * size
        page = start % mmap.PAGESIZE
        mapping.madvise(mmap.MADV_WILLNEED, start - page, count * size + page)


def _runs(places: NDArray[np.intp]) -> list[tuple[int, int]]:
    """Return the first place and the length of each run to read; places that are close together are a single run."""
    if len(places) and (span := int(places.max() - places.min()) + 1) <= _MOST_SPARSE * len(places):
        return [(int(places.min()), span)]
    return [(place, 1) for place in places.tolist()]


def joined_rows(several: list[MappedRows]) -> MappedRows | None:
    """Concatenate selections of the same array, without reading them; None if they are of different arrays."""
    first = several[0]
    if any(rows._array is not first._array for rows in several):
        return None
    return MappedRows(first._array, np.concatenate([rows._places for rows in several]), first._convert)
