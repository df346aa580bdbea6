"""Samples in a memory-mapped file, which are read only when they are needed."""

from __future__ import annotations

import math
import mmap
import os
from tempfile import TemporaryFile, gettempdir
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from deeplda.errors import InputError
from deeplda.memory import gib


class MappedRows:
    """Some samples of a memory-mapped array, selected by their places.

    Like that of an array, a slice is a view that reads nothing, and an array of indices reads a copy of these samples;
    `np.asarray` reads all of them. `take` selects samples without reading them.
    """

    def __init__(self, array: NDArray[Any], places: NDArray[np.intp] | None = None) -> None:
        self._array = np.asarray(array)
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
        """The type of the numbers in the file."""
        return self._array.dtype

    def take(self, indices: NDArray[np.intp]) -> MappedRows:
        """Select the samples at these indices, without reading them."""
        return MappedRows(self._array, self._places[indices])

    def __getitem__(self, key: Any) -> Any:
        places = self._places[key]
        if isinstance(key, slice):
            return MappedRows(self._array, places)
        _announce(self._array, np.atleast_1d(places))
        return np.take(self._array, places, axis=0)

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
    for place in places.tolist():
        start = first + place * size
        page = start % mmap.PAGESIZE
        mapping.madvise(mmap.MADV_WILLNEED, start - page, size + page)


def joined_rows(several: list[MappedRows]) -> MappedRows:
    """Concatenate selections of the same array, without reading them."""
    array = several[0]._array
    if any(rows._array is not array for rows in several):
        raise ValueError("the samples are in different files")
    return MappedRows(array, np.concatenate([rows._places for rows in several]))
