"""A run that is kept in memory: for estimators, which have no folder."""

from __future__ import annotations

from typing import Any, Literal

from deeplda.training.checkpoint import Snapshot


class MemoryRun:
    """Keeps the best snapshot and the rows of metrics; there is nothing to resume."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.rows: list[dict[str, Any]] = []
        self._best: Snapshot | None = None

    def latest(self) -> Snapshot | None:
        return None

    def best(self) -> Snapshot:
        assert self._best is not None
        return self._best

    def save(self, name: Literal["last", "best"], snapshot: Snapshot) -> None:
        if name == "best":
            self._best = snapshot

    def log(self, row: dict[str, Any]) -> None:
        self.rows.append(row)

    def keep_rows(self, epochs: int) -> None:
        self.rows = self.rows[:epochs]

    def save_model(self, model: object) -> None:
        """The caller has the model."""


class FollowerRun(MemoryRun):
    """Keeps nothing: for the processes of a job other than the first, which has the run."""

    def save(self, name: Literal["last", "best"], snapshot: Snapshot) -> None:
        """The first process does."""

    def log(self, row: dict[str, Any]) -> None:
        """The first process does."""
