"""The paper's numbers, from published.toml: what our tables set ours beside."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("published.toml")


@dataclass(frozen=True)
class Cell:
    """One published accuracy, in percent. `alpha` is None for cross-entropy; `subclasses` is 1 without Algorithm 1."""

    objective: str
    alpha: float | None
    subclasses: int
    predictor: str
    accuracy: float


@dataclass(frozen=True)
class PublishedTable:
    """One of the paper's tables of results.

    `settings` is how the paper's networks were trained, in words.
    """

    number: int
    data: str
    settings: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class OriginalDLDA:
    """The accuracy of the first DLDA paper, as this one quotes it, in percent."""

    data: str
    batch_size: int
    accuracy: float


@cache
def published_tables() -> tuple[PublishedTable, ...]:
    """The tables of results, counted from 1: STL-10, CIFAR-10, and CIFAR-10 with subclasses."""
    return tuple(_table(found) for found in _read()["table"])


def original_dlda() -> OriginalDLDA:
    """DLDA with batches of 200 on STL-10."""
    return OriginalDLDA(**_read()["original_dlda"])


def published_accuracy(data: str, predictor: str, alpha: float | None, subclasses: int = 1) -> float | None:
    """The paper's accuracy in percent for a setting on `data`, or None where it has none; alpha None: cross-entropy."""
    for table in published_tables():
        for cell in table.cells if table.data == data else ():
            if (cell.predictor, cell.alpha, cell.subclasses) == (predictor, alpha, subclasses):
                return cell.accuracy
    return None


@cache
def _read() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text())


def _table(found: dict[str, Any]) -> PublishedTable:
    cells = tuple(
        Cell(row["objective"], row.get("alpha"), row.get("subclasses", 1), name, row[name])
        for row in found["rows"]
        for name in found["predictors"]
        if name in row
    )
    return PublishedTable(found["number"], found["data"], found["settings"], cells)
