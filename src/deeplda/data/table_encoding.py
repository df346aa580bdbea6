"""Encode the columns of a table as numbers, with a description that is fitted on training rows and stored as JSON.

The model card contains the description, so a saved model predicts from raw rows.

| kind | encoded as |
|---|---|
| number, boolean | (x - mean) / deviation, at most 10 deviations from the mean |
| date | days since 1970, encoded like a number; sine and cosine of the position in the year, the week and the day |
| vector (a list of numbers, such as an embedding) | each number like a number |
| text | 1 for the row's category, 0 for the others |

A column with missing values in the training rows also has an indicator. A missing number is encoded as the mean, and a
missing date or text as zeros. Vectors must be complete and have one length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from deeplda.errors import InputError

Kind = Literal["number", "boolean", "date", "text", "vector"]
Cycle = Literal["year", "week", "day"]
# In days.
_PERIODS: dict[Cycle, float] = {"year": 365.2425, "week": 7.0, "day": 1.0}
# Numbers that are further from the mean, in deviations, are typing errors or would hide all others.
_FURTHEST = 10.0

Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, eq=False)
class Texts:
    """The texts in a column.

    Attributes:
        codes: (n,), the index in `words` of each row's text, or -1 if it is missing.
        words: the different texts.
    """

    codes: NDArray[np.int64]
    words: tuple[str, ...]

    def __getitem__(self, rows: NDArray[np.bool_]) -> Texts:
        return Texts(self.codes[rows], self.words)


# The values of a column: (n,) numbers, 0 or 1 for booleans, days since 1970 for dates, NaN if missing; (n, width)
# numbers for vectors; or texts.
Values = NDArray[np.float64] | Texts


class _Encoding(BaseModel):
    """The encoding of one column.

    Attributes:
        missing: whether there is an indicator of missing values, which is the last output.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    missing: bool

    @property
    def outputs(self) -> list[str]:
        """The names of the encoded numbers."""
        return self._names() + ([f"{self.name} is missing"] if self.missing else [])

    def encode(self, values: Values, out: NDArray[np.float32]) -> None:
        """Write the encoded values to `out`, (n, outputs), which contains zeros."""
        if self.missing:
            out[:, -1] = values.codes < 0 if isinstance(values, Texts) else np.isnan(values)
        self._write(values, out)

    def _names(self) -> list[str]:
        raise NotImplementedError

    def _write(self, values: Values, out: NDArray[np.float32]) -> None:
        raise NotImplementedError

    def formula(self) -> str:
        """Describe how the outputs are computed."""
        raise NotImplementedError


class NumberEncoding(_Encoding):
    """Numbers, or booleans as 0 and 1, in deviations from their mean."""

    kind: Literal["number", "boolean"] = "number"
    mean: Finite
    deviation: Positive

    def _names(self) -> list[str]:
        return [self.name]

    def _write(self, values: Values, out: NDArray[np.float32]) -> None:
        assert not isinstance(values, Texts)
        out[:, 0] = _standardised(values, self.mean, self.deviation)

    def formula(self) -> str:
        return f"(x - {self.mean:.6g}) / {self.deviation:.6g}, 0 if missing"


class DateEncoding(_Encoding):
    """Days since 1970, in deviations from their mean, and sine and cosine of the position in each cycle."""

    kind: Literal["date"] = "date"
    mean: Finite
    deviation: Positive
    cycles: tuple[Cycle, ...]

    def _names(self) -> list[str]:
        return [self.name, *(f"{wave} of {self.name} in the {cycle}" for cycle in self.cycles for wave in _WAVES)]

    def _write(self, values: Values, out: NDArray[np.float32]) -> None:
        assert not isinstance(values, Texts)
        out[:, 0] = _standardised(values, self.mean, self.deviation)
        for place, cycle in enumerate(self.cycles):
            angle = 2 * np.pi * np.mod(values / _PERIODS[cycle], 1)
            for wave, function in enumerate(_WAVES.values()):
                out[:, 1 + 2 * place + wave] = np.nan_to_num(function(angle))

    def formula(self) -> str:
        cycles = "".join(f", sin and cos of 2 pi x / {_PERIODS[cycle]:g}" for cycle in self.cycles)
        return f"x in days since 1970: (x - {self.mean:.6g}) / {self.deviation:.6g}{cycles}, 0 if missing"


class VectorEncoding(_Encoding):
    """Lists of numbers, each number in deviations from its mean."""

    kind: Literal["vector"] = "vector"
    mean: tuple[Finite, ...] = Field(min_length=1)
    deviation: tuple[Positive, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_that_lengths_agree(self) -> Self:
        if len(self.mean) != len(self.deviation):
            raise ValueError(f"column {self.name!r} has {len(self.mean)} means and {len(self.deviation)} deviations")
        return self

    def _names(self) -> list[str]:
        return [f"{self.name}[{place}]" for place in range(len(self.mean))]

    def _write(self, values: Values, out: NDArray[np.float32]) -> None:
        assert not isinstance(values, Texts)
        if values.shape[1] != len(self.mean):
            what = f"column {self.name!r} has lists of {values.shape[1]:,} numbers, but the model needs"
            raise InputError(f"{what} {len(self.mean):,}: pass the embeddings of the same network")
        out[:, : len(self.mean)] = _standardised(values, np.array(self.mean), np.array(self.deviation))

    def formula(self) -> str:
        return f"(x - mean) / deviation of each of {len(self.mean)} numbers"


class CategoryEncoding(_Encoding):
    """One output for each of `words`; with `other`, one more for all other words, including unseen ones."""

    kind: Literal["text"] = "text"
    words: tuple[str, ...] = Field(min_length=1)
    other: bool

    @model_validator(mode="after")
    def _check_that_words_differ(self) -> Self:
        if len(set(self.words)) != len(self.words):
            raise ValueError(f"a category of column {self.name!r} occurs twice")
        return self

    def _names(self) -> list[str]:
        names = [f"{self.name} = {word}" for word in self.words]
        return [*names, f"{self.name} is another text"] if self.other else names

    def _write(self, values: Values, out: NDArray[np.float32]) -> None:
        assert isinstance(values, Texts)
        place = {word: number for number, word in enumerate(self.words)}
        unseen = len(self.words) if self.other else -1
        # The entry at the end is that of missing texts, whose code is -1.
        output = np.array([*(place.get(word, unseen) for word in values.words), -1], dtype=np.intp)[values.codes]
        rows = np.flatnonzero(output >= 0)
        out[rows, output[rows]] = 1

    def formula(self) -> str:
        others = ", any other text" if self.other else "; all 0 for any other text"
        return f"1 for the text of the row, 0 for the others: {', '.join(self.words)}{others}"


_WAVES = {"sin": np.sin, "cos": np.cos}
_AnyEncoding = Annotated[NumberEncoding | DateEncoding | CategoryEncoding | VectorEncoding, Field(discriminator="kind")]


class TableEncoder(BaseModel):
    """The encoding of the rows of a table.

    Attributes:
        columns: the encodings of the columns that are used, in the order of their outputs.
        left_out: the columns of the training table that are not used, with the reasons.
        target: the column with the classes, if it was in the same table.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    columns: tuple[_AnyEncoding, ...] = Field(min_length=1)
    left_out: dict[str, str] = {}
    target: str | None = None

    @model_validator(mode="after")
    def _check_that_columns_differ(self) -> Self:
        if len({column.name for column in self.columns}) != len(self.columns):
            raise ValueError("a column occurs twice")
        return self

    @property
    def kinds(self) -> dict[str, Kind]:
        """The kind of each column that is used."""
        return {column.name: column.kind for column in self.columns}

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the encoded numbers."""
        return tuple(name for column in self.columns for name in column.outputs)

    def transform(self, columns: Mapping[str, Values]) -> NDArray[np.float32]:
        """Return the encoded rows, (n, outputs), of the values of every column in `kinds`."""
        first = columns[self.columns[0].name]
        rows = len(first.codes) if isinstance(first, Texts) else len(first)
        widths = [len(column.outputs) for column in self.columns]
        encoded = np.zeros((rows, sum(widths)), dtype=np.float32)
        start = 0
        for column, width in zip(self.columns, widths, strict=True):
            column.encode(columns[column.name], encoded[:, start : start + width])
            start += width
        return encoded

    def describe(self) -> list[str]:
        """Return a line for each column: the positions of its outputs, and how they are computed."""
        lines, start = [], 0
        for column in self.columns:
            last = start + len(column.outputs) - 1
            where = f"{start}" if last == start else f"{start} to {last}"
            indicator = f"; {last} is 1 if it is missing" if column.missing else ""
            lines.append(f"{where}: {column.name} ({column.kind}), {column.formula()}{indicator}")
            start = last + 1
        return lines

    def left_out_note(self) -> str | None:
        """Return a sentence about the columns that are not used; None if there are none."""
        if not self.left_out:
            return None
        return f"columns left out: {', '.join(f'{name} ({reason})' for name, reason in self.left_out.items())}"


def _standardised(
    values: NDArray[np.float64], mean: float | NDArray[np.float64], deviation: float | NDArray[np.float64]
) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):
        return np.nan_to_num(np.clip((values - mean) / deviation, -_FURTHEST, _FURTHEST), copy=False)
