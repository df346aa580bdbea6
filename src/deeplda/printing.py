"""Print text from untrusted files and folders: as lines and tables on a terminal, as JSON, and as CSV.

Commands print only with these functions, so that a name cannot control the terminal or run as a formula.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from deeplda.errors import one_line, printable

if TYPE_CHECKING:
    from rich.console import Console

# A spreadsheet evaluates a cell that starts with one of these as a formula, unless it contains only numbers.
_FORMULA_STARTS = ("=", "+", "-", "@")
_NUMBER = r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?"
_NUMBERS = re.compile(f"{_NUMBER}( {_NUMBER})*")


def say(text: str, *, file: TextIO | None = None) -> None:
    """Print one line, by default to stdout."""
    print(one_line(text), file=file)


def say_lines(text: str) -> None:
    """Print several lines to stdout, each of them in full."""
    print(printable_lines(text), end="")


def printable_lines(text: str) -> str:
    """Return text with all control characters except line breaks escaped."""
    return "\n".join(map(printable, text.split("\n")))


def say_json(value: object) -> None:
    """Print a value as one line of JSON to stdout."""
    print(as_json(value))


def plain_console(file: TextIO | None = None, *, soft_wrap: bool = False, quiet: bool = False) -> Console:
    """Return a console on which strings are not markup, and each string is one printable line, even in a table."""
    from rich.console import Console
    from rich.text import Text

    class PlainConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(one_line(text), **options)

    return PlainConsole(file=file, highlight=False, markup=False, emoji=False, soft_wrap=soft_wrap, quiet=quiet)


def as_json(value: object, indent: int | None = None) -> str:
    """Return a value as JSON, with null for NaN and infinity, which JSON does not have."""
    return json.dumps(_without_nan(value), allow_nan=False, indent=indent)


def as_csv(columns: Iterable[str], rows: Iterable[Mapping[str, object]], *, header: bool = True) -> str:
    """Return rows as comma-separated values, by default with a header line; text cannot be a formula."""
    names = list(columns)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if header:
        writer.writerow(map(csv_cell, names))
    writer.writerows([csv_cell(row.get(name, "")) for name in names] for row in rows)
    return stream.getvalue()


def csv_cell(value: object) -> object:
    """Return text with control characters escaped, and with ' in front of a formula; return numbers unchanged."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(_FORMULA_STARTS) and not _NUMBERS.fullmatch(text) else text


def _without_nan(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
