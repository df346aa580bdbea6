"""The storage that a sweep's workers share: an Optuna study, in a journal file or in a database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
from optuna.exceptions import StorageInternalError
from optuna.pruners import MedianPruner, NopPruner
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.study import StudyDirection

from deeplda.errors import InputError, TrainingError
from deeplda.experiments.storage_url import public_url, without_password
from deeplda.experiments.sweep_journal import SweepJournal, corrupt

# If two machines create the tables of an empty database at the same moment, both may fail once.
_TRIES = 5


@contextmanager
def reporting_lost_storage(url: str | None) -> Iterator[None]:
    """Convert errors from a storage that becomes unreachable in this block to TrainingError."""
    try:
        yield
    except StorageInternalError as error:
        what = f"the storage cannot be reached ({_reason(error.__cause__ or error, url)})"
        raise TrainingError(f"{what}, but the runs are saved: run the same command again to continue") from None


def open_study(name: str, folder: Path, url: str | None, *, prune: bool) -> tuple[optuna.Study, BaseStorage]:
    """Open or create the study of a sweep, in the database at `url` or in a journal in `folder`.

    A database can hold many studies, identified by `name`. A journal holds only one, which keeps its name if the folder
    is renamed. With `prune`, trials below the median of the other trials at the same epoch may be stopped early. Raises
    InputError if the storage is unusable.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = _journal(folder) if url is None else _database(url)
    if url is None and (there := storage.get_all_studies()):
        name = there[0].study_name
        if not isinstance(name, str):
            raise corrupt(folder, "the name of its study is not text")
    pruner = MedianPruner() if prune else NopPruner()
    study = optuna.create_study(
        study_name=name, storage=storage, direction="maximize", pruner=pruner, load_if_exists=True
    )
    if study.directions != [StudyDirection.MAXIMIZE]:
        raise InputError(f"the storage of {folder} has a study named {name} that is not a deeplda sweep")
    return study, storage


def _database(url: str) -> RDBStorage:
    from sqlalchemy import NullPool

    public = public_url(url)
    reason = ""
    for _ in range(_TRIES):
        try:
            # Connections are not kept open, because hours of training may pass between two accesses. Optuna replaces
            # names in braces, and a password may contain braces.
            template = url.replace("{", "{{").replace("}", "}}")
            return RDBStorage(template, engine_kwargs={"poolclass": NullPool})
        except ImportError as error:
            raise InputError(
                f"the driver for {public} is not installed ({error}): see SQLAlchemy's list of drivers"
            ) from None
        except Exception as error:  # Drivers can raise almost anything for options that they do not know.
            reason = _reason(error, url)
            time.sleep(0.5)
    raise InputError(f"{public} cannot be used as storage: {reason}")


def _reason(error: BaseException, url: str | None) -> str:
    """Return the first line of an error's message, without the password in `url`."""
    return without_password(str(error), url).partition("\n")[0]


def _journal(folder: Path) -> JournalStorage:
    try:
        return JournalStorage(SweepJournal(folder))
    except (OSError, InputError):
        raise
    except Exception as error:  # Optuna can raise almost anything for lines that are not from a journal.
        raise corrupt(folder, f"{type(error).__name__}: {error}") from None
