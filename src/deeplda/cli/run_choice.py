"""Choose the folder and the settings of `deeplda train`: of a new run, or of the run to resume."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

from deeplda.errors import InputError
from deeplda.training.config import RunConfig
from deeplda.user_code import require_named, short_name

_RUNS = Path("runs")
# Steps in an epoch, for a learning rate to show.
_STEPS = 1_000


class RunChoice(NamedTuple):
    """The folder of a run, its settings, and the id that it gets if it is new.

    Attributes:
        is_new: whether there is no run in the folder yet.
        settings_are_open: whether some settings are still to be chosen, once the data has been read.
    """

    folder: Path
    settings: RunConfig
    new_id: str
    is_new: bool
    settings_are_open: bool = False


@contextmanager
def chosen_run(
    run: Path | None,
    settings: RunConfig,
    recipe: Collection[str],
    given: Collection[str],
    *,
    resume: bool,
    note: Callable[[str], None],
) -> Iterator[RunChoice]:
    """Yield the run to start or resume. A new default folder that is still empty at the end is removed again.

    Without `run`, a new run is runs/DATA-OBJECTIVE, numbered if that exists already, and `resume` means the last of
    these. A job that torchrun has restarted resumes its own run, which it recognises by its id.

    Args:
        recipe, given: the names of the settings in the recipe, and of those that the user gave.
        note: called with one-line messages for the user.

    Raises InputError if the folder cannot be used, or if one of these settings differs from the run's.
    """
    from deeplda.training.parallel import job_id
    from deeplda.training.run_folder import find_run, run_id

    # Only a job that was restarted has an id already.
    known = job_id()
    folder = run
    if folder is None and known is not None:
        folder = find_run(known, _RUNS)
    if folder is None and resume:
        folder = _last_folder(settings)
    # After a restart, a job that resumes a run must find the same one.
    new_id = job_id((run_id(folder) if folder and resume else None) or secrets.token_hex(8))
    assert new_id is not None
    if folder is not None:
        own = known is not None and run_id(folder) == known
        existing = _existing_settings(folder, settings, recipe, given, resume=resume or own, note=note)
        yield RunChoice(folder, existing or settings, new_id, is_new=existing is None)
        return
    is_first = not _RUNS.exists()
    folder = _claimed_folder(settings)
    try:
        yield RunChoice(folder, settings, new_id, is_new=True)
    finally:
        if not (folder / "run.toml").exists():
            with suppress(OSError):
                (folder / ".lock").unlink()
                folder.rmdir()
                if is_first:
                    _RUNS.rmdir()


def _candidates(settings: RunConfig) -> Iterator[Path]:
    stem = f"{Path(short_name(settings.data)).stem}-{short_name(settings.objective)}"
    yield _RUNS / stem
    yield from (_RUNS / f"{stem}-{number}" for number in count(2))


def _claimed_folder(settings: RunConfig) -> Path:
    """Create the first default folder that does not exist; no other process can then choose the same one."""
    for folder in _candidates(settings):
        try:
            folder.mkdir(parents=True)
            # It marks the folder as ours if it lies in the data.
            (folder / ".lock").touch()
        except FileExistsError:
            if not _RUNS.is_dir():
                raise InputError(f"{_RUNS} is a file: pass a folder as --run") from None
        except OSError as error:
            raise InputError(f"{folder} cannot be written ({error.strerror}): choose another --run folder") from None
        else:
            return folder
    raise AssertionError("there are infinitely many candidates")


def _last_folder(settings: RunConfig) -> Path:
    """Return the last default folder that contains a run, or the first one if there is none."""
    candidates = _candidates(settings)
    last = folder = next(candidates)
    while folder.exists():
        if (folder / "run.toml").exists():
            last = folder
        folder = next(candidates)
    return last


def _existing_settings(
    folder: Path,
    settings: RunConfig,
    recipe: Collection[str],
    given: Collection[str],
    *,
    resume: bool,
    note: Callable[[str], None],
) -> RunConfig | None:
    """Return the settings of the run to resume in `folder`, with more epochs if given, or None for a new run."""
    from deeplda.training.run_folder import require_usable

    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: pass a folder as --run")
    require_usable(folder)
    if (folder / "report.html").is_dir():
        raise InputError(f"{folder / 'report.html'} is a folder, need a file: remove or rename it")
    if not (folder / "run.toml").exists():
        if resume and not (recipe or "data" in given):
            do = "check the name; to start a new run, also name the data, as in deeplda train digits"
            raise InputError(f"there is no run in {folder} to resume: {do}")
        if resume:
            note(f"there is no run in {folder} to resume; starting one")
        return None
    if not resume:
        raise InputError(f"{folder} already contains a run: pass --resume to resume it, or choose another --run folder")
    existing = RunConfig.read(folder / "run.toml")
    require_named(folder, dict(existing), dict(settings))
    is_longer = "epochs" in given and settings.epochs > existing.stretches[-1]
    allowed = {"epochs"} if is_longer or settings.epochs == existing.stretches[-1] else set()
    for name in sorted({*recipe, *given} - allowed):
        if (before := getattr(existing, name)) != (now := getattr(settings, name)):
            do = f"omit {name}" if name in given else f"resume it with deeplda train --resume --run {folder}"
            what = f"{folder} was started {_setting(name, before)}, not {_setting(name, now)}"
            raise InputError(f"{what}: {do}, or choose another --run folder")
    return _extended(folder, existing, settings.epochs, note) if is_longer else existing


def _setting(name: str, value: object) -> str:
    """Return a setting in words, such as "with seed 1" or "without relabel"."""
    if value is None:
        return f"without {name}"
    return f"with {name} {', '.join(map(str, value)) if isinstance(value, tuple) else value}"


def _extended(folder: Path, existing: RunConfig, epochs: int, note: Callable[[str], None]) -> RunConfig:
    """Return the settings of a run with more epochs, after telling the user what the added ones are."""
    from deeplda.training.optim import learning_rate

    found, end = existing.extended(epochs), existing.stretches[-1]
    # The rate depends on the step, but hardly on the number of steps in an epoch.
    rate = learning_rate(found, end * _STEPS, _STEPS)
    what = f"{folder} is extended from {end} to {epochs} epochs: epochs {end + 1} to {epochs} have the learning rates"
    note(f"{what} of a {found.schedule} run of {epochs} epochs, starting at {rate:.3g}")
    return found
