"""Apply the decisions of an audit, a CSV file, to the training and validation sets: drop samples, or relabel them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeplda.data.dataset import Data, Part
from deeplda.data.splitting import PARTS, PartName
from deeplda.errors import InputError, unreadable
from deeplda.formatting import counted
from deeplda.io import expanded, read_small
from deeplda.printing import csv_cell

ACCEPTED, REJECTED = "accepted", "rejected"
_COLUMNS = ("sample", "given", "suggested", "decision")
# A few million samples.
_LARGEST_FILE = 2**29


class Accepted(NamedTuple):
    """An accepted row of an audit, with text as it is written in CSV."""

    given: str
    suggested: str


def sample_names(part: Part, name: str, places: Iterable[int] | None = None) -> tuple[str, ...]:
    """Return a name for each sample: its file, its row in a table, or the name of its set and its place in it.

    By default, the places are those in `part`.
    """
    if part.files is not None:
        return part.files
    if part.rows is not None:
        return tuple(f"row {row}" for row in part.rows.tolist())
    return tuple(f"{name} {place}" for place in (range(len(part)) if places is None else places))


def read_accepted(file: Path) -> dict[str, Accepted]:
    """Return the accepted rows of the CSV file of an audit, by the name of the sample.

    Raises InputError if the file cannot be read, a column is missing, a decision is neither empty, "accepted" nor
    "rejected", or two rows decide differently about a sample.
    """
    decided: dict[str, dict[str, str]] = {}
    for row in _decided(file):
        if decided.setdefault(row["sample"], row) != row:
            raise InputError(f"{file} has two different decisions about {row['sample']}: delete one of the rows")
    return {
        sample: Accepted(row["given"], row["suggested"])
        for sample, row in decided.items()
        if row["decision"] == ACCEPTED
    }


def has_decisions(file: Path) -> bool:
    """Return whether a CSV file of an audit has decisions; one that cannot be read counts as having some."""
    try:
        return bool(_decided(file))
    except InputError:
        return True


def _decided(file: Path) -> list[dict[str, str]]:
    """Return the rows with a decision. Raises InputError as `read_accepted` does."""
    try:
        # Spreadsheets write a byte order mark.
        text = read_small(expanded(file), _LARGEST_FILE).decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        if missing := [name for name in _COLUMNS if name not in (reader.fieldnames or ())]:
            do = "pass a file that deeplda audit or its page wrote, with commas between the cells"
            raise InputError(f"{file} has no column {missing[0]!r}: {do}")
        rows = [{name: row[name] or "" for name in _COLUMNS} for row in reader]
    except OSError as error:
        raise unreadable(file, error, "check the path") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file} cannot be read as CSV in UTF-8 ({error}): save it again") from None
    found = [{**row, "decision": row["decision"].strip().lower()} for row in rows if row["decision"].strip()]
    if unknown := [row for row in found if row["decision"] not in (ACCEPTED, REJECTED)]:
        what = f"the decision about {unknown[0]['sample']} in {file} is {unknown[0]['decision']!r}"
        raise InputError(f"{what}, need {ACCEPTED}, {REJECTED} or nothing")
    return found


def corrected(data: Data, *, drop: Path | None, relabel: Path | None) -> Data:
    """Return the data without the accepted samples of `drop`, and with the suggested labels for those of `relabel`.

    The test set is not changed: scores on a test set that a model has corrected would be too good. Rows of samples that
    no longer exist, or whose label has changed since, have no effect. `Data.notes` says what was done.

    Raises InputError if a file cannot be read or has no effect, or if a sample is accepted in both.
    """
    dropped, relabelled = ({} if file is None else read_accepted(file) for file in (drop, relabel))
    if both := sorted(dropped.keys() & relabelled.keys()):
        raise InputError(f"{both[0]} is accepted in {drop} and in {relabel}: pass it with --drop or with --relabel")
    if relabel is not None:
        data = _applied(data, relabel, relabelled, _with_suggested_labels, "relabelled")
    if drop is not None:
        data = _applied(data, drop, dropped, _without, "left out")
    return data


Rows = Mapping[str, Accepted]
# Returns a set without these samples, or with other labels for them.
_Change = Callable[[Part, NDArray[np.intp], list[Accepted], tuple[str, ...]], Part]


def _applied(data: Data, file: Path, rows: Rows, change: _Change, done: str) -> Data:
    """Apply the rows of a file to the training and validation sets. Raises InputError if that changes nothing."""
    if not rows:
        do = f"open the page of deeplda audit, decide, and download the decisions, or write {ACCEPTED} in that column"
        raise InputError(f"{file} has no row with the decision {ACCEPTED}, so it would change nothing: {do}")
    parts: dict[str, Part] = {}
    count = 0
    for name in PARTS[:2]:
        part: Part = getattr(data, name)
        places, own = _matching(part, name, rows, data.class_names)
        parts[name] = change(part, places, own, data.class_names) if own else part
        count += len(own)
    tested = len(_matching(data.test, "test", rows, data.class_names)[1])
    in_test = f"; {tested:,} in the test set, which is never changed" if tested else ""
    others = len(rows) - count - tested
    missing = f"; {others:,} are not in {data.name} with their given label" if others else ""
    if not count:
        what = f"{file} has {counted(len(rows), 'accepted row')}, none of them a training or validation sample"
        raise InputError(f"{what} of {data.name}{in_test}{missing}: pass the audit of this data")
    note = f"{counted(count, 'training or validation sample')} {done}, as accepted in {file}{in_test}{missing}"
    return replace(data, train=parts["train"], val=parts["val"], notes=(*data.notes, note))


def _matching(
    part: Part, name: PartName, rows: Rows, class_names: tuple[str, ...]
) -> tuple[NDArray[np.intp], list[Accepted]]:
    """Return the places of the samples that have a row with their given label, and these rows."""
    given = [str(csv_cell(class_name)) for class_name in class_names]
    names = (str(csv_cell(sample)) for sample in sample_names(part, name))
    found = {
        place: rows[sample]
        for place, (sample, label) in enumerate(zip(names, part.labels.tolist(), strict=True))
        if sample in rows and rows[sample].given == given[label]
    }
    return np.array(list(found), dtype=np.intp), list(found.values())


def _without(part: Part, places: NDArray[np.intp], _rows: list[Accepted], _class_names: tuple[str, ...]) -> Part:
    return part.take(np.delete(np.arange(len(part)), places))


def _with_suggested_labels(
    part: Part, places: NDArray[np.intp], rows: list[Accepted], class_names: tuple[str, ...]
) -> Part:
    number = {str(csv_cell(name)): label for label, name in enumerate(class_names)}
    if unknown := [row.suggested for row in rows if row.suggested not in number]:
        do = "pass the audit of this data, or write the name of one of its classes"
        raise InputError(f"the suggested label {unknown[0]!r} is not a class of the data: {do}")
    labels = part.labels.copy()
    labels[places] = [number[row.suggested] for row in rows]
    return replace(part, labels=labels)
