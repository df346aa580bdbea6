"""The accuracies published in the paper, read from published.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

_FILE = Path(__file__).with_name("published.toml")


class PublishedAccuracy(NamedTuple):
    """One published accuracy, in percent; `alpha` is None for cross-entropy."""

    objective: str
    alpha: float | None
    subclasses: int
    predictor: str
    accuracy: float


class PublishedTable(NamedTuple):
    """One of the paper's results tables; `settings` describes in words how its networks were trained.

    It is named by its data; `number` is its number in the paper, whose first table shows the network.
    """

    name: str
    number: int
    data: str
    settings: str
    cells: tuple[PublishedAccuracy, ...]


class OriginalDLDA(NamedTuple):
    """The accuracy reported in the original DLDA paper, in percent, as quoted in the RDLDA paper."""

    data: str
    batch_size: int
    accuracy: float


@cache
def published_tables() -> tuple[PublishedTable, ...]:
    """Return the results tables: stl10, cifar10, and subclasses, which is on CIFAR-10 as well."""
    tables = []
    for table in tomllib.loads(_FILE.read_text())["table"]:
        cells = tuple(
            PublishedAccuracy(row["objective"], row.get("alpha"), row.get("subclasses", 1), name, row[name])
            for row in table["rows"]
            for name in table["predictors"]
            if name in row
        )
        tables.append(PublishedTable(table["name"], table["number"], table["data"], table["settings"], cells))
    return tuple(tables)


@cache
def original_dlda() -> OriginalDLDA:
    """Return the original DLDA paper's result on STL-10."""
    return OriginalDLDA(**tomllib.loads(_FILE.read_text())["original_dlda"])


def published_accuracy(data: str, predictor: str, alpha: float | None, subclasses: int = 1) -> float | None:
    """Return the paper's accuracy in percent, or None if there is none; `alpha` is None for cross-entropy."""
    cells = (cell for table in published_tables() if table.data == data for cell in table.cells)
    wanted = (predictor, alpha, subclasses)
    return next((cell.accuracy for cell in cells if (cell.predictor, cell.alpha, cell.subclasses) == wanted), None)
