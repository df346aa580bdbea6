"""Read a table with its target: split its rows, fit the encoding on the training rows, and encode all rows.

The file is read three times, in blocks: once for the kinds of the columns, the labels and the split, once for the
statistics of the training rows, and once to encode. Only the encoded rows are kept, in memory or, if there are many, in
a temporary file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deeplda.data.dataset import TEST_SHARE, VAL_SHARE, Labels, Part, Source, part_size, too_few
from deeplda.data.mapped_rows import MappedRows, mapped_array
from deeplda.data.splitting import PARTS, TEST, TRAIN, VAL, PartCodes
from deeplda.data.table_columns import KindFinder, is_vector, values_of
from deeplda.data.table_encoding import Kind, TableEncoder, Texts, Values
from deeplda.data.table_files import Block, TableFile, open_table
from deeplda.data.table_statistics import TableStatistics
from deeplda.errors import InputError
from deeplda.formatting import counted
from deeplda.memory import require_memory

# Memory for the label, the key and the part of a row, and for sorting the keys.
_ROW_BYTES = 64
_SMALLER = "use fewer rows or columns"
_LONGEST_NAME = 1_000
# More classes than this are rejected if they are fractions, or if most rows have a class of their own.
_FEW_CLASSES = 20
_MOST_CLASSES = 100_000
# If more rows than this fraction are copies, the table has few different rows, and copies are not errors.
_MOST_COPIES = 0.1
# Encoded rows that take more bytes than this are kept in a temporary file.
_MOST_IN_MEMORY = 2**28
# Not part of a row.
_LEFT_OUT = -1


def read_table(path: Path, *, target: str | None, group_by: str | None, seed: int) -> Source:
    """Read a table, and split it into 70 % training, 15 % validation and 15 % test rows, stratified by class.

    Args:
        target: the column with the classes, by default the last one. Rows without a class are left out.
        group_by: a column, such as a customer, whose equal values stay in one part; it is not used to predict. By
            default, copies of a row stay in one part, unless more than a tenth of the rows are copies.
        seed: the seed of the split.

    Raises InputError if the table is damaged or does not fit in memory, if a column is missing, or if the target does
    not contain classes.
    """
    table = open_table(path)
    notes = []
    if target is None:
        target = table.names[-1]
        notes.append(f"the target is the last column, {target!r}; pass --target to choose another")
    rows = _scan(table, target, group_by)
    if unlabelled := int((rows.labels < 0).sum()):
        notes.append(f"{counted(unlabelled, 'row')} without a value in {target!r} left out")
    if group_by is not None:
        groups = len(np.unique(rows.keys))
        notes.append(f"{group_by!r} has {counted(groups, 'group')} in {counted(len(rows.keys), 'row')}")
    parts = _split(path, rows, seed, grouped=group_by is not None)
    kinds, labels, class_names = rows.kinds, rows.labels, rows.class_names
    del rows  # the keys are as large as the labels
    encoder = _fitted(table, kinds, parts == TRAIN, target)
    encoded = _encoded(table, encoder, parts, labels)
    left_out = encoder.left_out_note()
    return Source(
        path.name,
        encoded[TRAIN],
        class_names,
        val=encoded[VAL],
        test=encoded[TEST],
        notes=(*notes, *([left_out] if left_out else [])),
        table=encoder,
    )


def read_labelled_table(path: Path, encoder: TableEncoder) -> Source:
    """Read all rows of a table with a class, encoded by an existing encoder, as the training part of a source."""
    table = open_table(path)
    if encoder.target is None:
        raise InputError(f"the model was not trained on a table with a target, so {path} cannot be scored")
    table.require([encoder.target, *encoder.kinds])
    found = _LabelFinder(encoder.target)
    numbers = np.concatenate([found.labels(block) for block in _checked(table, [encoder.target])] or [_NO_NUMBERS])
    class_names, labels = found.numbered(path, numbers)
    parts = np.where(labels < 0, _LEFT_OUT, TRAIN).astype(np.int8)
    return Source(path.name, _encoded(table, encoder, parts, labels)[TRAIN], class_names, table=encoder)


def encoded_blocks(path: Path, encoder: TableEncoder) -> Iterator[NDArray[np.float32]]:
    """Yield the encoded rows of a table in blocks. Raises InputError if it has other columns or cannot be read."""
    table, row = open_table(path), 1
    for block in table.blocks(list(encoder.kinds)):
        encoded = encoder.transform(_values(path, block, encoder.kinds, row))
        row += len(encoded)
        yield encoded


@dataclass(frozen=True, eq=False)
class _Rows:
    """What is known about all rows before the table is split.

    Attributes:
        kinds: the kinds of the columns to predict from.
        labels: (n,), indices into `class_names`, or -1 for a row without a class.
        keys: (n,), the same number for copies of a row or, with groups, for rows of a group.
    """

    kinds: Mapping[str, Kind | None]
    labels: Labels
    class_names: tuple[str, ...]
    keys: NDArray[np.int64]


# The classes of rows in the order in which they appear; smaller than labels, because there may be many rows.
_Numbers = NDArray[np.int32]
_NO_NUMBERS: _Numbers = np.empty(0, dtype=np.int32)


def _scan(table: TableFile, target: str, group_by: str | None) -> _Rows:
    """Read the whole table once."""
    table.require([target] if group_by is None else [target, group_by])
    if group_by == target:
        raise InputError(f"group_by is {group_by!r}, which is the target: choose another column")
    features = [name for name in table.names if name not in (target, group_by)]
    if table.kinds is not None and table.kinds[target] == "vector":
        what = f"column {target!r} of {table.path}, which is the target, has lists"
        raise InputError(what, need="classes", do="pass the column with the classes as --target")
    kinds = None if table.kinds is None else {name: table.kinds[name] for name in features}
    finder, label_finder = KindFinder(features), _LabelFinder(target)
    labels, keys = [_NO_NUMBERS], [np.empty(0, dtype=np.int64)]
    for block in _checked(table, table.names):
        if kinds is None:
            finder.update({name: block[name] for name in features})
        labels.append(label_finder.labels(block))
        known = {name: block[name] for name in features if kinds is None or kinds[name] is not None}
        found = _keys(table.path, known, len(labels[-1]))
        if group_by is not None:
            group = values_of(block[group_by], "text", group_by)
            assert isinstance(group, Texts)
            found = np.where(group.codes < 0, found, np.array([*map(hash, group.words), 0])[group.codes])
        keys.append(found)
    class_names, numbers = label_finder.numbered(table.path, np.concatenate(labels))
    return _Rows(kinds or finder.kinds(), numbers, class_names, np.concatenate(keys))


def _checked(table: TableFile, columns: tuple[str, ...] | list[str]) -> Iterator[Block]:
    """Yield all blocks. Raises InputError if the labels and keys of their rows do not fit in memory."""
    rows = 0
    for block in table.blocks(columns):
        rows += len(block[columns[0]])
        require_memory(max(rows, table.rows or 0) * _ROW_BYTES, str(table.path), copies=1, do=_SMALLER)
        yield block


def _keys(path: Path, columns: Block, rows: int) -> NDArray[np.int64]:
    """Return a hash of each row (n,): equal for copies of a row in this process."""
    if not columns:
        return np.zeros(rows, dtype=np.int64)
    texts = [_as_texts(path, name, column) for name, column in columns.items()]
    separator, missing = pa.scalar("\x1f", pa.large_string()), "\x1e"
    joined = pc.binary_join_element_wise(*texts, separator, null_handling="replace", null_replacement=missing)
    return np.fromiter(map(hash, joined.to_pylist()), dtype=np.int64, count=rows)


def _as_texts(path: Path, name: str, column: pa.Array) -> pa.Array:
    """Return a text for each value of a column, which is the same for equal values in this process."""
    if not is_vector(column.type):
        return pc.cast(column, pa.large_string())
    rows = _values(path, {name: column}, {name: "vector"})[name]
    assert not isinstance(rows, Texts)
    return pa.array([str(hash(row.tobytes())) for row in rows], pa.large_string())


class _LabelFinder:
    """Numbers the classes in the target in the order in which they appear."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._number: dict[str, int] = {}

    def labels(self, block: Block) -> _Numbers:
        """Return the numbers of the classes of a block of rows, -1 for a missing class."""
        found = values_of(block[self._target], "text", self._target)
        assert isinstance(found, Texts)
        numbers = [self._number.setdefault(word, len(self._number)) for word in found.words]
        if len(self._number) > _MOST_CLASSES:
            raise self._no_classes()
        return np.array([*numbers, -1], dtype=np.int32)[found.codes]

    def numbered(self, path: Path, labels: _Numbers) -> tuple[tuple[str, ...], Labels]:
        """Return the sorted names of the classes, and the labels as indices into them.

        Raises InputError if the target does not contain classes.
        """
        numeric = _as_numbers(self._number)
        rows = int((labels >= 0).sum())
        fractions = numeric is not None and any(value != int(value) for value in numeric.values())
        if len(self._number) > (_FEW_CLASSES if fractions else max(_FEW_CLASSES, rows / 2)):
            raise self._no_classes()
        if not rows:
            raise InputError(f"{path} has no row with a value in {self._target!r}, which is the target: add rows")
        if any(len(name) > _LONGEST_NAME for name in self._number):
            raise InputError(f"column {self._target!r} of {path} has a class of more than {_LONGEST_NAME:,} characters")
        names = sorted(self._number, key=numeric.__getitem__ if numeric else None)
        place = np.argsort([self._number[name] for name in names])
        return tuple(names), np.append(place, -1)[labels]

    def _no_classes(self) -> InputError:
        what = f"column {self._target!r} has {counted(len(self._number), 'different value')}"
        need = "classes, because regression is not supported"
        return InputError(what, need=need, do="pass the column with the classes as --target")


def _as_numbers(words: Mapping[str, int]) -> dict[str, float] | None:
    """Return the words as finite numbers; None if one of them is something else."""
    try:
        found = {word: float(word) for word in words}
    except ValueError:
        return None
    return found if np.isfinite([*found.values()]).all() else None


def _split(path: Path, rows: _Rows, seed: int, *, grouped: bool) -> PartCodes:
    """Return the part of each row (n,), or -1 for a row without a class."""
    # Imported here because it imports torch, which is not needed to list data sets.
    from deeplda.sampling import stratified_split

    # A slice, because copies of the labels and keys of many rows would take much memory.
    labelled = np.flatnonzero(rows.labels >= 0) if (rows.labels < 0).any() else slice(None)
    unit, strata = _units(rows.labels[labelled], rows.keys[labelled], grouped=grouped)
    rng = np.random.Generator(np.random.PCG64(seed))
    test_size, val_size = part_size(len(strata), TEST_SHARE), part_size(len(strata), VAL_SHARE)
    rest, test = stratified_split(strata, test_size, rng)
    _, val = stratified_split(strata[rest], val_size, rng)
    for kind, taken in (("test", test), ("validation", val)):
        if not len(taken):
            raise too_few(path.name, len(unit), len(rows.class_names), kind, linked=grouped)
    of_units = np.full(len(strata), TRAIN, dtype=np.int8)
    of_units[test], of_units[rest[val]] = TEST, VAL
    parts = np.full(len(rows.labels), _LEFT_OUT, dtype=np.int8)
    parts[labelled] = of_units[unit]
    return parts


def _units(labels: Labels, keys: NDArray[np.int64], *, grouped: bool) -> tuple[NDArray[np.intp], Labels]:
    """Return the number of each row's unit (n,), and the most frequent label of each unit.

    A unit is a set of rows that stay together. Units are numbered by their first rows, so that the numbers do not
    depend on the keys, which are different in every process.
    """
    ordered = np.sort(keys)
    copies = np.count_nonzero(ordered[1:] == ordered[:-1])
    if not copies or (not grouped and copies > _MOST_COPIES * len(keys)):
        return np.arange(len(keys)), labels
    _, first, unit = np.unique(keys, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.intp)
    number[np.argsort(first)] = np.arange(len(first))
    unit = number[unit]
    classes = int(labels.max()) + 1
    pairs, counts = np.unique(unit * classes + labels, return_counts=True)
    order = np.lexsort((counts, pairs // classes))
    last = np.flatnonzero(np.diff(pairs[order] // classes, append=len(first)))
    return unit, pairs[order][last] % classes


def _fitted(
    table: TableFile, kinds: Mapping[str, Kind | None], training: NDArray[np.bool_], target: str
) -> TableEncoder:
    """Return the encoding that is fitted on the training rows."""
    statistics, start = TableStatistics(kinds), 0
    known = {name: kind for name, kind in kinds.items() if kind is not None}
    for block in table.blocks([*known, target]):
        rows = training[start : start + len(block[target])]
        values = _values(table.path, block, known, start + 1)
        start += len(rows)
        statistics.update({name: column[rows] for name, column in values.items()})
    try:
        return statistics.encoder(target)
    except InputError as error:
        raise InputError(f"{table.path}: {error}") from None


def _encoded(table: TableFile, encoder: TableEncoder, parts: PartCodes, labels: Labels) -> list[Part]:
    """Return the encoded rows of each part, in the order of PARTS."""
    shape = len(parts), len(encoder.outputs)
    size, what = 4 * shape[0] * shape[1], f"{table.path} in {shape[1]:,} encoded columns"
    if in_file := size > _MOST_IN_MEMORY:
        inputs = mapped_array(shape, np.float32, what)
    else:
        require_memory(size, what, do=_SMALLER)
        inputs = np.empty(shape, dtype=np.float32)
    start = 0
    for block in table.blocks(list(encoder.kinds)):
        encoded = encoder.transform(_values(table.path, block, encoder.kinds, start + 1))
        if start + len(encoded) <= len(inputs):
            inputs[start : start + len(encoded)] = encoded
        start += len(encoded)
    if start != len(parts):
        raise InputError(f"{table.path} changed while it was read: try again")
    places = [np.flatnonzero(parts == code) for code in range(len(PARTS))]
    rows = [MappedRows(inputs, of) if in_file else inputs[of] for of in places]
    return [Part(samples, labels[of], rows=of + 1) for samples, of in zip(rows, places, strict=True)]


def _values(path: Path, block: Block, kinds: Mapping[str, Kind], first_row: int = 1) -> dict[str, Values]:
    """Return the values of the columns. Raises InputError, with the path, if a column has values of another kind.

    The first row of the block is the row `first_row` of the table, counted from 1.
    """
    try:
        return {name: values_of(block[name], kind, name, first_row) for name, kind in kinds.items()}
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
