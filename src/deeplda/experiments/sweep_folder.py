"""A sweep folder: the sweep's definition, its queue of trials, their run folders, and the workers' locks."""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from deeplda.errors import InputError
from deeplda.experiments.sweep_definition import SweepDefinition, TrialSettings, sweep_file
from deeplda.experiments.sweep_storage import open_study, public_url
from deeplda.experiments.trial_queue import Attempt, TrialQueue


@dataclass(frozen=True)
class Sweep:
    """An open sweep. `trials` contains each trial's own settings, keyed by trial name."""

    folder: Path
    definition: SweepDefinition
    queue: TrialQueue
    trials: dict[str, TrialSettings]

    def run_folder(self, name: str) -> Path:
        """Return the run folder of a trial."""
        return self.folder / "trials" / name

    def current_attempts(self) -> dict[str, Attempt]:
        """Return the attempt that counts for each trial of the definition."""
        current = self.queue.current_attempts()
        return {name: current[name] for name in self.trials if name in current}

    def settled(self) -> bool:
        """Return whether every trial is done, pruned or failed."""
        current = self.current_attempts()
        return len(current) == len(self.trials) and all(attempt.settled for attempt in current.values())


def open_sweep(
    folder: Path, definition: SweepDefinition | None = None, url: str | None = None, *, retry: bool = False
) -> Sweep:
    """Join the sweep in `folder`, or start it there, and enqueue the trials that are not in the queue yet.

    `definition` defaults to the one in the folder. `url` is the URL of a database for the state of the trials; by
    default, the state is kept in the folder. With `retry`, failed trials are enqueued again. Raises InputError if the
    folder or the storage contains a different sweep.
    """
    public = None if url is None else public_url(url)
    if definition is not None:
        _valid_trials(definition)
        definition = definition.model_copy(update={"storage": public})
    elif not sweep_file(folder).exists():
        raise InputError(f"{folder} is not a sweep folder: it has no {sweep_file(folder).name}")
    with exclusive(folder):
        definition = _agreed(folder, definition, public)
        trials = _valid_trials(definition)
        queue = TrialQueue(*open_study(folder.resolve().name, folder, url, prune=definition.search is not None))
        queue.require_same(definition)
        if not sweep_file(folder).exists():
            definition.write(sweep_file(folder))
        queue.enqueue(trials, retry=retry)
    return Sweep(folder, definition, queue, trials)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Create `folder` if needed and lock it, so that only one process at a time sets it up or writes its summary."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = (folder / ".lock").open("a+b", buffering=0)
    except OSError as error:
        raise InputError(f"{folder} is not writable ({error.strerror}): choose another --sweep folder") from None
    with stream:
        _lock(stream)
        yield


def _valid_trials(definition: SweepDefinition) -> dict[str, TrialSettings]:
    trials = definition.trials()
    for own in trials.values():
        definition.config(own)
    return trials


def _agreed(folder: Path, definition: SweepDefinition | None, public: str | None) -> SweepDefinition:
    """Return the folder's definition after checking that the given one agrees; if it has none, return the given one."""
    file = sweep_file(folder)
    if definition is not None and not file.exists():
        return definition
    there = SweepDefinition.read(file)
    if there.storage != public:
        what = f"{folder} keeps the state of its trials in {there.storage or 'the folder itself'}"
        if there.storage:
            raise InputError(f"{what}: pass the URL of this database as --storage")
        add = f'add storage = "{public}" at the top of {file.name}'
        raise InputError(f"{what}: omit --storage or, if the sweep has not been started yet, {add}")
    if definition is not None and (found := there.difference(definition)):
        do = f"use the original value, choose another --sweep folder, or edit {file.name}"
        raise InputError(f"{folder} was defined with {found}: {do}")
    return there


@contextmanager
def worker_lock(folder: Path) -> Iterator[str]:
    """Hold a new worker's lock while the block runs, and yield the worker's name.

    The operating system releases the lock however the worker ends. After an error, the unlocked file remains, so that
    other workers on this machine see at once that this worker is dead.
    """
    worker = f"{platform.node()}-{os.getpid()}-{secrets.token_hex(3)}"
    file = worker_file(folder, worker)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+b", buffering=0) as stream:
        _lock(stream)
        yield worker
        file.unlink(missing_ok=True)


def worker_file(folder: Path, worker: str) -> Path:
    """Return the path of a worker's lock file."""
    return folder / "workers" / f"{worker}.lock"


def is_locked(file: Path) -> bool | None:
    """Return whether a process holds the lock on a file, or None if there is no such file."""
    try:
        with file.open("r+b", buffering=0) as stream:
            _lock(stream, wait=False)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return True
    return False


def _lock(stream: FileIO, *, wait: bool = True) -> None:
    """Lock an open file until it is closed. Raises BlockingIOError if it is already locked and `wait` is false."""
    try:
        import fcntl
    except ImportError:
        raise InputError("sweeps need file locks, which this system does not have: use Linux or macOS") from None
    fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
