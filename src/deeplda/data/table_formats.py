"""The file formats of tables, by the endings of file names; this file does not need pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

TableFormat = Literal["csv", "parquet", "arrow"]

READABLE = ".csv, .tsv, .parquet, .feather or .arrow"

_FORMATS: dict[str, TableFormat] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".feather": "arrow",
    ".arrow": "arrow",
}
# Arrow's names of the compressions of CSV files.
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


class FileFormat(NamedTuple):
    """The format of a table, the ending of its name, and Arrow's name for the compression of a CSV file."""

    format: TableFormat
    ending: str
    compression: str | None


def table_format(path: str | Path) -> FileFormat | None:
    """Return the format of a table by its name; None if the name is not that of a table."""
    *_, before, last = ("", "", *(suffix.lower() for suffix in Path(path).suffixes))
    if last in _COMPRESSIONS and _FORMATS.get(before) == "csv":
        return FileFormat("csv", before, _COMPRESSIONS[last])
    return FileFormat(_FORMATS[last], last, None) if last in _FORMATS else None
