"""Convert Arrow arrays to the values of columns, and find out which kind of values a column has.

Tables are untrusted: Arrow validates what it reads, and every error of a conversion becomes an InputError.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deeplda.data.table_encoding import Kind, Texts, Values
from deeplda.errors import InputError

# Cells with these texts are missing, as in pandas, and ?, which is common in public data sets.
_MISSING = pa.array(
    ["", "?", "NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "-nan", "NaT", "NULL", "null", "None"],
    pa.large_string(),
)
# Sums of squares of numbers below this do not overflow.
_LARGEST = 1e100
_MICROSECONDS, _DAY = 1e6, 86_400e6
_NEED: dict[Kind, str] = {
    "number": "numbers",
    "boolean": "true or false",
    "date": "dates such as 2024-12-31 or 2024-12-31 23:59:59",
    "text": "strings",
    "vector": "lists of numbers",
}
# Arrow's errors for a text that is not a number, boolean or date.
_UNPARSED = re.compile(r"Failed to parse \w+: '?(.*?)'?(?: as a scalar of type.*)?$", re.DOTALL)


def kind_of(type_: pa.DataType) -> Kind | None:
    """Return the kind of the values of an Arrow type; None if they cannot be encoded.

    A column without any values is a text.
    """
    if pa.types.is_dictionary(type_):
        return None if kind_of(type_.value_type) is None else "text"
    if is_vector(type_):
        return "vector" if kind_of(type_.value_type) == "number" else None
    if pa.types.is_boolean(type_):
        return "boolean"
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return "number"
    if pa.types.is_time(type_) or pa.types.is_duration(type_):
        return "number"
    if pa.types.is_date(type_) or pa.types.is_timestamp(type_):
        return "date"
    return "text" if _is_text(type_) or pa.types.is_null(type_) else None


def kind_in_frame(array: pa.Array) -> Kind | None:
    """Return the kind of a column of a data frame: that of its type, but strings that are all dates are dates."""
    kind = kind_of(array.type)
    if kind == "text" and _is_text(array.type) and _fits(array, "date") and _cleaned(array).null_count < len(array):
        return "date"
    return kind


def is_vector(type_: pa.DataType) -> bool:
    """Return whether the values of an Arrow type are lists."""
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_list(type_) for is_list in lists)


def values_of(array: pa.Array, kind: Kind, name: str, first_row: int = 1) -> Values:
    """Return the values of a column, read as values of this kind.

    Numbers that are not finite and texts such as NA are missing. Raises InputError if other values are of another kind;
    for a text, the message has its row, of which `first_row` is the number of the first one.
    """
    if kind == "vector":
        return _vectors(array, name)
    try:
        return _texts(array) if kind == "text" else _numbers(array, kind)
    except pa.ArrowException as error:
        wrong = _UNPARSED.match(str(error))
        found = f"values of type {array.type}"
        if wrong:
            found = f"the text {wrong[1][:100]!r} in row {first_row + _first_unfit(array, kind):,}"
        raise InputError(f"column {name!r} has {found}, need {_NEED[kind]}") from None


class KindFinder:
    """Finds the kind of columns of texts, as in a CSV file, block by block.

    The kind is the first of number, boolean and date that all values have, and otherwise text.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._possible: dict[str, list[Kind]] = {name: ["number", "boolean", "date", "text"] for name in names}

    def update(self, columns: Mapping[str, pa.Array]) -> None:
        """Add rows."""
        for name, array in columns.items():
            possible = self._possible[name]
            while possible[0] != "text" and not _fits(array, possible[0]):
                del possible[0]

    def kinds(self) -> dict[str, Kind]:
        """Return the kind of each column."""
        return {name: possible[0] for name, possible in self._possible.items()}


def _fits(array: pa.Array, kind: Kind) -> bool:
    try:
        _numbers(array, kind)
    except pa.ArrowInvalid:
        return False
    return True


def _first_unfit(array: pa.Array, kind: Kind) -> int:
    """Return the place of the first value of another kind, by bisection, because Arrow's error does not have it."""
    counts = range(1, len(array) + 1)
    return bisect_left(counts, True, key=lambda count: not _fits(array[:count], kind))


def _texts(array: pa.Array) -> Texts:
    found = _cleaned(pc.cast(array, pa.large_string())).dictionary_encode()
    codes = found.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return Texts(codes, tuple(found.dictionary.to_pylist()))


def _vectors(array: pa.Array, name: str) -> NDArray[np.float64]:
    """Return lists of numbers as rows, (n, width).

    Raises InputError if a list or a number is missing, or if the lists have different lengths.
    """
    if not is_vector(array.type):
        raise InputError(f"column {name!r} has values of type {array.type}, need lists of numbers")
    lengths = pc.list_value_length(array).unique().to_pylist()
    if None in lengths:
        raise InputError(f"column {name!r} has rows without a list, need one in each row: remove these rows")
    if len(lengths) > 1:
        what = f"column {name!r} has lists of {min(lengths):,} and of {max(lengths):,} numbers"
        raise InputError(f"{what}, need one length: write the file again")
    if lengths == [0]:
        raise InputError(f"column {name!r} has empty lists, need numbers: write the file again")
    found: NDArray[np.float64] = pc.cast(array.flatten(), pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    if not (np.abs(found) < _LARGEST).all():
        raise InputError(f"column {name!r} has lists with NaN or infinity, need finite numbers: remove these rows")
    return found.reshape(len(array), -1)


def _numbers(array: pa.Array, kind: Kind) -> NDArray[np.float64]:
    """Return numbers, booleans as 0 and 1, or dates as days since 1970; NaN if missing."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if _is_text(array.type):
        array = _parsed(_cleaned(pc.cast(array, pa.large_string())), kind)
    # Booleans can be read as 0 and 1, and 0 and 1 as booleans; the null type has no values.
    if not pa.types.is_null(array.type) and {kind, kind_of(array.type)} not in ({kind}, {"number", "boolean"}):
        raise pa.ArrowInvalid("the column has values of another kind")
    unit = 1.0
    if kind == "date":
        array, unit = pc.cast(pc.cast(array, pa.timestamp("us"), safe=False), pa.int64()), _DAY
    elif pa.types.is_duration(array.type) or pa.types.is_time(array.type):
        in_microseconds = pa.duration("us") if pa.types.is_duration(array.type) else pa.time64("us")
        array, unit = pc.cast(pc.cast(array, in_microseconds, safe=False), pa.int64()), _MICROSECONDS
    found: NDArray[np.float64] = pc.cast(array, pa.float64(), safe=False).to_numpy(zero_copy_only=False) / unit
    found[~np.isfinite(found)] = np.nan
    return np.clip(found, -_LARGEST, _LARGEST, out=found)


def _parsed(array: pa.Array, kind: Kind) -> pa.Array:
    """Return texts as numbers, booleans or timestamps. Raises ArrowInvalid if one of them is something else."""
    if kind != "date":
        return pc.cast(array, pa.bool_() if kind == "boolean" else pa.float64())
    try:
        return pc.cast(array, pa.timestamp("us"))
    except pa.ArrowInvalid as error:
        without_zone = error
    try:
        return pc.cast(array, pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid as error:
        # Each of the two errors may name a date of the other kind instead of the text that is not a date.
        raise error if "zone offset" in str(without_zone) else without_zone from None


def _cleaned(array: pa.Array) -> pa.Array:
    """Return texts without spaces around them, and null for those that stand for a missing value."""
    trimmed = pc.utf8_trim_whitespace(array)
    return pc.if_else(pc.is_in(trimmed, _MISSING), pa.scalar(None, trimmed.type), trimmed)


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))
