"""The rows of a benchmark's CSV file: one for each measurement, so that an interrupted benchmark can be resumed."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def read_rows(file: Path | None) -> list[Row]:
    """Return the rows of a file, with all values as text; none if there is no file yet."""
    if file is None or not file.exists():
        return []
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def matching(rows: Iterable[Row], **values: object) -> list[Row]:
    """Return the rows that have these values. They are compared as text, which is what a file contains."""
    return [row for row in rows if all(str(row[name]) == str(value) for name, value in values.items())]


def append_rows(file: Path | None, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Append rows to a file, if there is one to write, with the names of the columns if it is new.

    All rows are written at once, so an interrupted benchmark leaves either all of them or none, and several processes
    can append to the same file. The file keeps its line endings.
    """
    if file is None:
        return
    is_new = not file.exists()
    ending = "\n" if is_new or b"\r\n" not in file.read_bytes() else "\r\n"
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator=ending)
    if is_new:
        writer.writeheader()
    writer.writerows(rows)
    with file.open("a", newline="") as stream:
        stream.write(text.getvalue())
