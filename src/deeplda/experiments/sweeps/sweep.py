"""A sweep as its workers see it: the folder, the definition and the ledger."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeplda.errors import InputError
from deeplda.experiments.sweeps.definition import Definition, sweep_file
from deeplda.experiments.sweeps.ledger import Attempt, Ledger
from deeplda.experiments.sweeps.storage import open_study, public_place


@dataclass(frozen=True)
class Sweep:
    """An open sweep. `trials` has each trial's own settings by its name."""

    folder: Path
    definition: Definition
    ledger: Ledger
    trials: dict[str, dict[str, Any]]

    def run_folder(self, name: str) -> Path:
        """Where a trial's run is."""
        return self.folder / "trials" / name

    def standings(self) -> dict[str, Attempt]:
        """The attempt that counts for each of this sweep's trials."""
        standings = self.ledger.standings()
        return {name: standings[name] for name in self.trials if name in standings}

    def settled(self) -> bool:
        """Whether every trial is done, pruned or failed."""
        standings = self.standings()
        return len(standings) == len(self.trials) and all(attempt.settled for attempt in standings.values())


def open_sweep(
    folder: Path, definition: Definition | None = None, url: str | None = None, *, retry: bool = False
) -> Sweep:
    """Join the sweep in `folder`, or start it there; every trial waits, runs or is settled afterwards.

    Without a `definition`, the one that is there holds. `url` is a database's, else the folder keeps the states too.
    With `retry`, failed trials wait again. Raises InputError where folder or storage hold another sweep.
    """
    place = None if url is None else public_place(url)
    if definition is not None:
        _checked_trials(definition)
        definition = definition.model_copy(update={"storage": place})
    elif not sweep_file(folder).exists():
        raise InputError(f"{folder} is no sweep: it has no {sweep_file(folder).name}")
    with alone(folder):
        definition = _agree(folder, definition, place)
        trials = _checked_trials(definition)
        study, storage = open_study(folder.resolve().name, folder, url, prune=definition.search is not None)
        ledger = Ledger(study, storage)
        ledger.agree(definition.settings)
        if not sweep_file(folder).exists():
            definition.write(sweep_file(folder))
        ledger.enqueue(trials, retry=retry)
    return Sweep(folder, definition, ledger, trials)


def _checked_trials(definition: Definition) -> dict[str, dict[str, Any]]:
    trials = definition.trials()
    for own in trials.values():
        definition.config(own)
    return trials


def _agree(folder: Path, definition: Definition | None, place: str | None) -> Definition:
    """The definition that is there, where it is the same as the one given; else the one given."""
    file = sweep_file(folder)
    if not file.exists():
        assert definition is not None
        return definition
    there = Definition.read(file)
    if there.storage != place:
        raise InputError(
            f"the states of {folder} are kept in {there.storage}: pass its URL as --storage"
            if there.storage
            else f"the states of {folder} are kept in the folder itself: leave --storage out, or, in a sweep that was "
            f'not begun yet, write storage = "{place}" at the top of {file.name}'
        )
    if definition is not None and (found := there.difference(definition)):
        raise InputError(
            f"{folder} was defined with {found}: leave it out, choose another --sweep, or edit {file.name}"
        )
    return there


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One process at a time sets up a folder, or writes down what is in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(f"{folder} cannot be written ({error.strerror}): choose another --sweep folder") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
