"""The nearest rows of a gallery that arrives in blocks: exact, and with bounded memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeplda.core.options import check_integer

Floats = NDArray[np.float64]
Keys = NDArray[np.int64]

# The largest number of distances that are in memory at once.
_BLOCK = 2**21
_EPS = float(np.finfo(np.float64).eps)


class Neighbours(NamedTuple):
    """The nearest samples of a gallery, nearest first; of equally near ones, the first in the gallery.

    Attributes:
        indices: (n, k), their places in the gallery.
        distances: (n, k), their distances. If there are fewer samples than k, the others have distance infinity and
            index -1.
    """

    indices: NDArray[np.int64]
    distances: Floats


class NearestRows:
    """Finds the nearest rows of a gallery to each of a few queries, by Euclidean distance.

    Distances are first computed by |q|^2 + |g|^2 - 2 q.g, relative to the mean of the queries. Rows whose distance is
    near the limit, up to a bound on the rounding of this formula, are then compared by |q - g|, so the result is exact
    even if rows have a large offset in common or are almost the same.

    Args:
        queries: (n, d), finite.
        count: the number of neighbours of each query.
        keys: (n,), numbers that are equal for copies of a sample; rows with the key of a query are not its neighbours.
    """

    def __init__(self, queries: Floats, count: int, keys: Keys | None = None) -> None:
        check_integer("count", count)
        self._centre = queries.mean(0) if len(queries) else np.zeros(queries.shape[1])
        self._queries, self._keys = queries - self._centre, keys
        self._squares = np.full((len(queries), count), np.inf)
        self._indices = np.full((len(queries), count), -1, dtype=np.int64)
        self._seen = 0
        self.copies = 0

    def add(self, rows: Floats, keys: Keys | None = None) -> None:
        """Add the next rows of the gallery, (g, d), and their keys, (g,), if the queries have keys."""
        rows = rows - self._centre
        step = max(1, min(len(rows), 2**14))
        at_once = max(1, _BLOCK // step)
        for start in range(0, len(rows), step):
            block, own = rows[start : start + step], None if keys is None else keys[start : start + step]
            for first in range(0, len(self._queries), at_once):
                self._compare(slice(first, first + at_once), block, own)
            self._seen += len(block)

    def found(self) -> Neighbours:
        """Return the nearest of the rows added so far."""
        return Neighbours(self._indices.copy(), np.sqrt(self._squares))

    def _compare(self, part: slice, rows: Floats, keys: Keys | None) -> None:
        """Update the neighbours of some queries with a block of rows."""
        queries, known = self._queries[part], self._squares[part]
        count = known.shape[1]
        sizes, norms = (np.einsum("nd,nd->n", values, values) for values in (queries, rows))
        rough = queries @ rows.T
        rough *= -2
        rough += sizes[:, None]
        rough += norms
        if keys is not None and self._keys is not None:
            copies = self._keys[part][:, None] == keys
            self.copies += int(copies.sum())
            rough[copies] = np.inf
        # A bound on the rounding of the formula, whose products have d terms.
        error = 4 * (queries.shape[1] + 4) * _EPS * (sizes + norms.max())
        limit = known[:, -1].copy()
        if len(rows) > count:
            limit = np.minimum(limit, np.partition(rough, count - 1, axis=1)[:, count - 1] + error)
        query, row = np.nonzero((rough <= (limit + error)[:, None]) & np.isfinite(rough))
        self._merge(part, query, row, _squared_distances(queries, query, rows, row))

    def _merge(self, part: slice, query: NDArray[np.intp], row: NDArray[np.intp], squares: Floats) -> None:
        """Keep the nearest of the known neighbours and of new ones, given as pairs of a query and a row."""
        known, indices = self._squares[part], self._indices[part]
        n, count = known.shape
        queries = np.concatenate([np.repeat(np.arange(n), count), query])
        all_squares = np.concatenate([known.ravel(), squares])
        all_indices = np.concatenate([indices.ravel(), row + self._seen])
        # Known neighbours come first, and earlier rows before later ones, so a stable sort keeps the first of equals.
        order = np.lexsort((all_squares, queries))
        starts = np.searchsorted(queries[order], np.arange(n))
        best = order[(starts[:, None] + np.arange(count)).ravel()]
        known[:] = all_squares[best].reshape(n, count)
        indices[:] = all_indices[best].reshape(n, count)


def _squared_distances(queries: Floats, query: NDArray[np.intp], rows: Floats, row: NDArray[np.intp]) -> Floats:
    """Return |q - g|^2 of pairs of a query and a row, (p,)."""
    found = np.empty(len(query))
    step = max(1, _BLOCK // max(1, queries.shape[1]))
    for start in range(0, len(query), step):
        pairs = slice(start, start + step)
        found[pairs] = np.square(queries[query[pairs]] - rows[row[pairs]]).sum(1)
    return found
