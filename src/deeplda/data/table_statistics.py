"""Statistics of the columns of a table, gathered block by block, from which the encoding is made."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from deeplda.data.table_encoding import (
    CategoryEncoding,
    Cycle,
    DateEncoding,
    Kind,
    NumberEncoding,
    TableEncoder,
    Texts,
    Values,
    VectorEncoding,
)
from deeplda.errors import InputError

# The number of categories of a column that have outputs of their own. Rarer categories share one output, and so do
# those that occur only once and those with a very long text.
_MOST_CATEGORIES = 50
_LONGEST_CATEGORY = 200
# A column with more different texts than this is not counted to the end.
_MOST_WORDS = 100_000
# Numbers are compared with each other in this many rows, which tells whether they all differ.
_COMPARED = 10_000
# With fewer rows than this, texts and whole numbers may all differ by chance.
_ENOUGH = 20
_NAMED_ID = re.compile(r"(?i:(^|[\W_])(id|uuid|guid|index))$|[a-z]I[dD]$")
_UNNAMED = re.compile(r"|unnamed: 0|__index_level_\d+__", re.IGNORECASE)

_EMPTY = "it is empty"
_CONSTANT = "it is the same in every row"
_IDENTIFIER = "it is different in almost every row, like an identifier"


class TableStatistics:
    """Statistics of the columns of a table.

    Args:
        kinds: the kinds of the columns; None for a column whose values cannot be encoded, such as lists.
    """

    def __init__(self, kinds: Mapping[str, Kind | None]) -> None:
        self._kinds = kinds
        self._columns = {name: _statistics_of(name, kind) for name, kind in kinds.items() if kind is not None}

    def update(self, columns: Mapping[str, Values]) -> None:
        """Add rows, given as the values of every column."""
        for name, statistics in self._columns.items():
            statistics.update(columns[name])

    def encoder(self, target: str | None = None) -> TableEncoder:
        """Return the encoding of these columns. Raises InputError if none of them can be used."""
        left_out = {name: reason for name in self._kinds if (reason := self._reason(name)) is not None}
        used = [self._columns[name].encoding() for name in self._kinds if name not in left_out]
        if not used:
            reasons = ", ".join(f"{name} ({reason})" for name, reason in list(left_out.items())[:3])
            what = f"no column can be used to predict: {reasons}" if left_out else "there is no column to predict from"
            raise InputError(what, need="a column that differs between rows", do="add columns")
        return TableEncoder(columns=tuple(used), left_out=left_out, target=target)

    def _reason(self, name: str) -> str | None:
        """Return why a column is left out; None if it is used."""
        if _UNNAMED.fullmatch(name):
            return "it has no name, like the index of a data frame"
        if name not in self._columns:
            return "its values are neither numbers, dates nor strings"
        return self._columns[name].unusable()


def _statistics_of(name: str, kind: Kind) -> _NumberStatistics | _TextStatistics | _VectorStatistics:
    if kind == "vector":
        return _VectorStatistics(name)
    return _TextStatistics(name) if kind == "text" else _NumberStatistics(name, kind)


class _NumberStatistics:
    """The mean and variance of numbers, booleans or dates, merged by the formula of Chan et al."""

    def __init__(self, name: str, kind: Literal["number", "boolean", "date"]) -> None:
        self._name, self._kind = name, kind
        self._count, self._missing = 0, 0
        self._mean, self._squares = 0.0, 0.0
        self._least, self._most = math.inf, -math.inf
        self._whole = True
        self._first: NDArray[np.float64] = np.empty(0)

    def update(self, values: Values) -> None:
        assert not isinstance(values, Texts)
        present = values[~np.isnan(values)]
        self._missing += len(values) - len(present)
        if not len(present):
            return
        before, self._count = self._count, self._count + len(present)
        mean = float(present.mean())
        step = mean - self._mean
        self._squares += float(np.square(present - mean).sum()) + step**2 * before * len(present) / self._count
        self._mean += step * len(present) / self._count
        self._least, self._most = min(self._least, float(present.min())), max(self._most, float(present.max()))
        self._whole = self._whole and bool((np.floor(present) == present).all())
        self._first = np.concatenate([self._first, present[: _COMPARED - len(self._first)]])

    def unusable(self) -> str | None:
        if not self._count:
            return _EMPTY
        if self._kind == "number" and self._is_identifier():
            return _IDENTIFIER
        return _CONSTANT if self._least == self._most and not self._missing else None

    def encoding(self) -> NumberEncoding | DateEncoding:
        # The squares of tiny numbers are 0.
        deviation = math.sqrt(self._squares / self._count) or self._most - self._least or 1.0
        missing = self._missing > 0
        if self._kind != "date":
            return NumberEncoding(
                name=self._name, kind=self._kind, mean=self._mean, deviation=deviation, missing=missing
            )
        cycles: tuple[Cycle, ...] = ("year", "week") if self._whole else ("year", "week", "day")
        return DateEncoding(name=self._name, mean=self._mean, deviation=deviation, cycles=cycles, missing=missing)

    def _is_identifier(self) -> bool:
        """Return whether these are different whole numbers that fill half of their range or are named like an id."""
        if self._count < _ENOUGH or not self._whole or len(np.unique(self._first)) < len(self._first):
            return False
        return self._most - self._least < 2 * self._count or bool(_NAMED_ID.search(self._name))


class _VectorStatistics:
    """The mean and variance of each number in lists, merged by the formula of Chan et al."""

    def __init__(self, name: str) -> None:
        self._name, self._count = name, 0
        self._mean: NDArray[np.float64] = np.zeros(0)
        self._squares: NDArray[np.float64] = np.zeros(0)

    def update(self, values: Values) -> None:
        assert not isinstance(values, Texts)
        if not len(values):
            return
        mean = values.mean(0)
        squares = np.square(values - mean).sum(0)
        if not self._count:
            self._count, self._mean, self._squares = len(values), mean, squares
            return
        if len(mean) != len(self._mean):
            what = f"a column has lists of {len(self._mean):,} and of {len(mean):,} numbers"
            raise InputError(f"{what}, need one length: write the file again")
        before, self._count = self._count, self._count + len(values)
        step = mean - self._mean
        self._squares += squares + step**2 * (before * len(values) / self._count)
        self._mean += step * (len(values) / self._count)

    def unusable(self) -> str | None:
        if not self._count:
            return _EMPTY
        return None if self._squares.any() else _CONSTANT

    def encoding(self) -> VectorEncoding:
        # Numbers that are the same in every row are only centred.
        deviation = np.sqrt(self._squares / self._count)
        deviation = np.where(deviation > 0, deviation, 1.0)
        return VectorEncoding(
            name=self._name, mean=tuple(self._mean.tolist()), deviation=tuple(deviation.tolist()), missing=False
        )


class _TextStatistics:
    """How often each text occurs."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._words: Counter[str] = Counter()
        self._count, self._missing = 0, 0

    def update(self, values: Values) -> None:
        assert isinstance(values, Texts)
        counts = np.bincount(values.codes + 1, minlength=len(values.words) + 1).tolist()
        self._missing += counts[0]
        self._count += len(values.codes) - counts[0]
        if len(self._words) <= _MOST_WORDS:
            self._words.update({word: n for word, n in zip(values.words, counts[1:], strict=True) if n})

    def unusable(self) -> str | None:
        if not self._count:
            return _EMPTY
        if len(self._words) == 1 and not self._missing:
            return _CONSTANT
        if len(self._words) > _MOST_WORDS:
            return f"it has more than {_MOST_WORDS:,} different strings"
        rare = len(self._words) > max(_ENOUGH, self._count / 2) or not self._categories()
        return _IDENTIFIER if rare else None

    def encoding(self) -> CategoryEncoding:
        words = self._categories()
        return CategoryEncoding(
            name=self._name, words=tuple(sorted(words)), other=len(words) < len(self._words), missing=self._missing > 0
        )

    def _categories(self) -> list[str]:
        """Return the categories with outputs of their own."""
        frequent = sorted(self._words.items(), key=lambda item: (-item[1], item[0]))[:_MOST_CATEGORIES]
        return [word for word, count in frequent if count > 1 and len(word) <= _LONGEST_CATEGORY]
