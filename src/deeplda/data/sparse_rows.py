"""Rows of a sparse matrix, which become dense only when they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class SparseRows:
    """Feature vectors in a sparse matrix (n, features) of SciPy, in the format CSR.

    As with `MappedRows`, a slice is a view, an array of indices reads a dense copy of these rows, and `np.asarray`
    reads all of them. `take` selects rows without reading them.

    Args:
        matrix: the sparse matrix or array.
        prepare: applied to dense rows when they are read; by default, they stay as they are.
    """

    def __init__(self, matrix: Any, prepare: Callable[[NDArray[Any]], NDArray[np.float32]] | None = None) -> None:
        self.matrix, self.prepare = matrix, prepare

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that a dense array of these rows would have."""
        return tuple(map(int, self.matrix.shape))

    @property
    def ndim(self) -> int:
        """The number of axes, 2."""
        return 2

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers that are read."""
        return np.dtype(np.float32) if self.prepare else np.dtype(self.matrix.dtype)

    def take(self, indices: NDArray[np.intp]) -> SparseRows:
        """Select the rows at these indices, without reading them."""
        return SparseRows(self.matrix[indices], self.prepare)

    def __getitem__(self, key: Any) -> Any:
        rows = SparseRows(self.matrix[key], self.prepare)
        return rows if isinstance(key, slice) else np.asarray(rows)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("rows of a sparse matrix cannot be read without a copy")
        dense: NDArray[Any] = self.matrix.toarray()
        return np.asarray(self.prepare(dense) if self.prepare else dense, dtype)
