"""A sweep folder: the sweep's definition, its queue of trials, their run folders, and the workers' locks."""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from deeplda.errors import InputError
from deeplda.experiments.storage_url import VARIABLE, public_url
from deeplda.experiments.sweep_definition import SweepDefinition, TrialSettings, sweep_file
from deeplda.experiments.sweep_storage import open_study
from deeplda.experiments.trial_queue import Attempt, TrialQueue
from deeplda.output_folder import OutputFolder

_LOCK = ".lock"
_SUBFOLDERS = {"trials", "stages", "workers"}


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

    @property
    def stages(self) -> Path:
        """The folder in which trials that need the same autoencoders and subclasses share them."""
        return self.folder / "stages"

    def make_run_folder(self, name: str) -> Path:
        """Create the run folder of a trial, unless it exists, and return it. Raises InputError if it is a link."""
        with OutputFolder.open(self.folder, create=False) as output:
            _require_no_links(output)
            with output.subfolder("trials") as trials:
                trials.subfolder(name).close()
        return self.run_folder(name)

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
    require_usable(folder)
    with exclusive(folder, create=True) as output:
        _require_no_links(output)
        definition = _agreed(folder, definition, public)
        trials = _valid_trials(definition)
        if url is None:
            # This comes before the journal: from now on, the folder is known as a sweep.
            _write_once(definition, folder)
        queue = TrialQueue(*open_study(folder.resolve().name, folder, url, prune=definition.search is not None))
        queue.require_same(definition)
        _write_once(definition, folder)
        queue.enqueue(trials, retry=retry)
    return Sweep(folder, definition, queue, trials)


def require_usable(folder: Path) -> None:
    """Raise InputError unless `folder` is new, empty or a sweep, so that no other files can be changed."""
    if not folder.is_dir():
        return
    with OutputFolder.open(folder) as output:
        names = output.names() - {_LOCK}
    if sweep_file(folder).name in names:
        SweepDefinition.read(sweep_file(folder))
    elif names:
        what = f"{folder} contains {min(names)!r} but no {sweep_file(folder).name}"
        raise InputError(what, need="a new or empty folder, or a sweep", do="choose another --sweep folder")


@contextmanager
def exclusive(folder: Path, *, create: bool = False) -> Iterator[OutputFolder]:
    """Lock a sweep's folder, so that only one process at a time sets it up or writes its summary."""
    with ExitStack() as stack:
        try:
            output = stack.enter_context(OutputFolder.open(folder, create=create))
            stack.enter_context(output.locked(_LOCK, wait=True))
        except OSError as error:
            raise InputError(f"{folder} is not writable ({error.strerror}): choose another --sweep folder") from None
        yield output


def _require_no_links(output: OutputFolder) -> None:
    for name in sorted(_SUBFOLDERS & output.names()):
        output.subfolder(name).close()


def _write_once(definition: SweepDefinition, folder: Path) -> None:
    if not sweep_file(folder).exists():
        definition.write(sweep_file(folder))


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
            raise InputError(f"{what}: pass the URL of this database as --storage or in {VARIABLE}")
        add = f'add storage = "{public}" at the top of {file.name}'
        do = f"omit --storage and unset {VARIABLE}"
        raise InputError(f"{what}: {do} or, if the sweep has not been started yet, {add}")
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
    with OutputFolder.open(folder, create=False) as output, output.subfolder("workers") as workers:
        file = worker_file(folder, worker)
        with workers.locked(file.name, wait=True):
            yield worker
            workers.remove(file.name)


def worker_file(folder: Path, worker: str) -> Path:
    """Return the path of a worker's lock file."""
    return folder / "workers" / f"{worker}.lock"
