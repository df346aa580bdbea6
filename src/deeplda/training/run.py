"""Where a run keeps its state: the protocol that the loop needs, and runs in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

from deeplda.training.checkpoint import Snapshot
from deeplda.training.metrics import Row


class Writeable(Protocol):
    """Something that can write itself into a folder."""

    def _write(self, folder: Path) -> None: ...


class Run(Protocol):
    """Where a run is kept: a `RunFolder` on disk, or a `MemoryRun`."""

    notes: list[str]

    def latest(self) -> Snapshot | None: ...
    def best(self) -> Snapshot: ...
    def save(self, name: Literal["last", "best"], snapshot: Snapshot) -> None: ...
    def log(self, row: Row) -> None: ...
    def keep_rows(self, epochs: int) -> None: ...
    def save_model(self, model: Writeable) -> None: ...


class MemoryRun:
    """Keeps the best snapshot and the metric rows in memory; there is nothing to resume."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.rows: list[Row] = []
        self._best: Snapshot | None = None

    def latest(self) -> Snapshot | None:
        return None

    def best(self) -> Snapshot:
        assert self._best is not None
        return self._best

    def save(self, name: Literal["last", "best"], snapshot: Snapshot) -> None:
        if name == "best":
            self._best = snapshot

    def log(self, row: Row) -> None:
        self.rows.append(row)

    def keep_rows(self, epochs: int) -> None:
        self.rows = self.rows[:epochs]

    def save_model(self, model: object) -> None:
        """Do nothing: the caller has the model."""


class FollowerRun(MemoryRun):
    """Keeps nothing: for the processes of a job other than the first, which owns the run."""

    def save(self, name: Literal["last", "best"], snapshot: Snapshot) -> None:
        """Do nothing: the first process saves."""

    def log(self, row: Row) -> None:
        """Do nothing: the first process logs."""
