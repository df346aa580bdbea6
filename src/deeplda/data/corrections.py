"""Apply the decisions of an audit, CSV files, to the training and validation sets: relabel samples, or drop them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from deeplda.data.dataset import Data, Part
from deeplda.data.splitting import PARTS, PartName
from deeplda.errors import InputError, unreadable
from deeplda.formatting import counted
from deeplda.io import expanded, read_small
from deeplda.printing import csv_cell

# The suggested label is right, the given label is right, or neither is.
ACCEPTED, REJECTED, DROPPED = "accepted", "rejected", "dropped"
_DECISIONS = (ACCEPTED, REJECTED, DROPPED)
_COLUMNS = ("sample", "given", "suggested", "decision")
# A few million samples.
LARGEST_FILE = 2**29
# The number of test samples that a note names.
_MOST_NAMED = 5


class Decision(NamedTuple):
    """A row of an audit with a decision, with text as it is written in CSV."""

    given: str
    suggested: str
    decision: str


Rows = Mapping[str, Decision]


def sample_names(part: Part, name: str, places: Iterable[int] | None = None) -> tuple[str, ...]:
    """Return a name for each sample: its file, its row in a table, or the name of its set and its place in it.

    By default, the places are those that the samples had in the set before any of them were dropped.
    """
    if part.files is not None:
        return part.files
    if part.rows is not None:
        return tuple(f"row {row}" for row in part.rows.tolist())
    if places is None:
        places = range(len(part)) if part.places is None else part.places.tolist()
    return tuple(f"{name} {place}" for place in places)


def read_decisions(file: Path) -> dict[str, Decision]:
    """Return the rows with a decision in the CSV file of an audit, by the name of the sample.

    Raises InputError if the file cannot be read, a column is missing, a row has too few or too many fields, a decision
    is unknown, or two rows decide differently about a sample.
    """
    found: dict[str, Decision] = {}
    for row in _rows(file):
        decision = row["decision"].strip().lower()
        if not decision:
            continue
        if decision not in _DECISIONS:
            what = f"the decision about {row['sample']} in {file} is {decision!r}"
            raise InputError(f"{what}, need {', '.join(_DECISIONS)} or nothing")
        decided = Decision(row["given"], row["suggested"], decision)
        if found.setdefault(row["sample"], decided) != decided:
            raise InputError(f"{file} has two different decisions about {row['sample']}: delete one of the rows")
    return found


def has_decisions(file: Path) -> bool:
    """Return whether a CSV file of an audit has decisions; one that cannot be read counts as having some."""
    try:
        return bool(read_decisions(file))
    except InputError:
        return True


def _rows(file: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV file by its columns. Raises InputError as `read_decisions` does."""
    try:
        # Spreadsheets write a byte order mark.
        text = read_small(expanded(file), LARGEST_FILE).decode("utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        header = next(reader, [])
        if missing := [name for name in _COLUMNS if name not in header]:
            do = "pass a file that deeplda audit or its page wrote, with commas between the cells"
            raise InputError(f"{file} has no column {missing[0]!r}: {do}")
        for cells in reader:
            # Files that were appended to each other have more than one header.
            if cells and cells != header:
                yield dict(zip(header, _complete(cells, header, f"{file}, line {reader.line_num},"), strict=True))
    except OSError as error:
        raise unreadable(file, error, "check the path") from None
    except UnicodeDecodeError:
        raise InputError(f"{file} is not in UTF-8: save it as CSV in UTF-8") from None
    except csv.Error as error:
        raise InputError(f"{file} cannot be read as CSV ({error}): save it again") from None


def _complete(cells: list[str], header: list[str], where: str) -> list[str]:
    """Return the cells of a row, one for each column. Raises InputError if there are more or fewer."""
    # Excel omits the comma before an empty last cell if the cells above are empty too.
    if header[len(cells) :] == ["decision"] and not set(cells) & set(_DECISIONS):
        return [*cells, ""]
    if len(cells) != len(header):
        raise InputError(f"{where} has {counted(len(cells), 'field')}, need {len(header)}: complete or delete the row")
    return cells


def confirmed_labels(files: Iterable[Path]) -> dict[str, str]:
    """Return the labels that decisions have called right, by the name of the sample; later files overrule earlier ones.

    Raises InputError as `read_decisions` does.
    """
    decided = {sample: row for file in files for sample, row in read_decisions(file).items()}
    return {
        sample: row.given if row.decision == REJECTED else row.suggested
        for sample, row in decided.items()
        if row.decision != DROPPED
    }


def corrected(data: Data, *, relabel: Sequence[Path] = (), drop: Sequence[Path] = ()) -> Data:
    """Return the data with the decisions of files applied: those of `relabel` and then those of `drop`, in their order.

    A file of `relabel` gives accepted samples the suggested label, and leaves out those marked as dropped. One of
    `drop` leaves out both.

    The test set is not changed: scores on a test set that a model has corrected would be too good. Rows of samples that
    no longer exist, or whose label has changed since, have no effect. `Data.notes` says what was done.

    Raises InputError if a file cannot be read or has no effect, or if two files decide differently about a sample.
    """
    relabels = {file: _relabelling(read_decisions(file), file) for file in relabel}
    drops = {file: _dropping(read_decisions(file), file) for file in drop}
    _require_agreement(relabels, drops)
    for file, rows in (*relabels.items(), *drops.items()):
        data = _applied(data, file, rows)
    return data


def _relabelling(rows: Rows, file: Path) -> Rows:
    """Return the rows that change something if the file is passed with --relabel. Raises InputError if there are none.

    An accepted row whose suggestion was edited to be the given label changes nothing.
    """
    found = {
        sample: row
        for sample, row in rows.items()
        if row.decision == DROPPED or (row.decision == ACCEPTED and row.suggested != row.given)
    }
    return _not_empty(found, file)


def _dropping(rows: Rows, file: Path) -> Rows:
    """Return the rows that leave out a sample if the file is passed with --drop.

    Raises InputError if there are none.
    """
    found = {sample: row._replace(decision=DROPPED) for sample, row in rows.items() if row.decision != REJECTED}
    return _not_empty(found, file)


def _not_empty(rows: Rows, file: Path) -> Rows:
    if not rows:
        what = f"{file} has no row with the decision {ACCEPTED} or {DROPPED} that would change anything"
        do = "open the page of deeplda audit, decide, and download the decisions, or write them in that column"
        raise InputError(f"{what}: {do}")
    return rows


def _require_agreement(relabels: Mapping[Path, Rows], drops: Mapping[Path, Rows]) -> None:
    """Raise InputError if a sample is to be relabelled by one file and left out by another one."""
    accepted = {
        (sample, row.given): file
        for file, rows in relabels.items()
        for sample, row in rows.items()
        if row.decision == ACCEPTED
    }
    for file, rows in drops.items():
        for sample, row in rows.items():
            if (other := accepted.get((sample, row.given))) is not None:
                what = f"{sample} is accepted in {other} (--relabel) and in {file} (--drop)"
                raise InputError(f"{what}: delete it from one of them, or omit one of the options")


def _applied(data: Data, file: Path, rows: Rows) -> Data:
    """Apply the rows of a file to the training and validation sets. Raises InputError if that changes nothing."""
    own = {name: _matching(getattr(data, name), name, rows, data.class_names) for name in PARTS}
    done = [row.decision for name in PARTS[:2] for row in own[name].values()]
    untouched = _untouched(data, rows, own)
    if not done:
        what = f"{file} has decisions about {counted(len(rows), 'sample')}"
        raise InputError(f"{what}, but none in the training and validation sets of {data.name}{untouched}")
    counts = {"relabelled": done.count(ACCEPTED), "left out": done.count(DROPPED)}
    what = " and ".join(f"{counted(count, 'sample')} {verb}" for verb, count in counts.items() if count)
    note = f"{what} in the training and validation sets, as decided in {file}{untouched}"
    train, val = (_changed(getattr(data, name), own[name], data.class_names) for name in PARTS[:2])
    return replace(data, train=train, val=val, notes=(*data.notes, note))


def _untouched(data: Data, rows: Rows, own: Mapping[PartName, Mapping[int, Decision]]) -> str:
    """Say which rows have no effect, because their samples are in the test set or not in the data."""
    found = ""
    if tested := own["test"]:
        every = sample_names(data.test, "test")
        names = [every[index] for index in tested]
        more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
        are, them = ("is", "it") if len(names) == 1 else ("are", "them")
        shown = ", ".join(names[:_MOST_NAMED])
        found = f"; {shown}{more} {are} in the test set, which is never changed: correct {them} in your data"
    if others := len(rows) - sum(map(len, own.values())):
        found += (
            f"; {counted(others, 'sample')} {'is' if others == 1 else 'are'} not in {data.name} with the given label"
        )
    return found


def _matching(part: Part, name: PartName, rows: Rows, class_names: tuple[str, ...]) -> dict[int, Decision]:
    """Return the rows of the samples that still have the label given there, by the index of the sample."""
    given = [str(csv_cell(class_name)) for class_name in class_names]
    names = (str(csv_cell(sample)) for sample in sample_names(part, name))
    return {
        index: rows[sample]
        for index, (sample, label) in enumerate(zip(names, part.labels.tolist(), strict=True))
        if sample in rows and rows[sample].given == given[label]
    }


def _changed(part: Part, rows: Mapping[int, Decision], class_names: tuple[str, ...]) -> Part:
    """Return a set with the suggested labels for accepted samples, and without those to be dropped."""
    if not rows:
        return part
    number = {str(csv_cell(name)): label for label, name in enumerate(class_names)}
    labels = part.labels.copy()
    for index, row in rows.items():
        if row.decision == ACCEPTED:
            if row.suggested not in number:
                do = "pass the audit of this data, or write the name of one of its classes"
                raise InputError(f"the suggested label {row.suggested!r} is not a class of the data: {do}")
            labels[index] = number[row.suggested]
    changed = replace(part, labels=labels)
    dropped = [index for index, row in rows.items() if row.decision == DROPPED]
    if not dropped:
        return changed
    indices = np.arange(len(part))
    return replace(changed, places=indices if part.places is None else part.places).take(np.delete(indices, dropped))
