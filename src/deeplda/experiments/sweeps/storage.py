"""Where the workers of a sweep meet: an Optuna study in a journal beside the trials, or in a database."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import optuna
from optuna.pruners import MedianPruner, NopPruner
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

from deeplda.errors import InputError, got

if TYPE_CHECKING:
    from sqlalchemy import URL

# Two machines that create the tables of an empty database at the same moment get in each other's way once.
_TRIES = 5


def open_study(name: str, folder: Path, url: str | None, *, prune: bool) -> tuple[optuna.Study, BaseStorage]:
    """The study of a sweep, created where it is not there, and its storage: `url`, or a journal in `folder`.

    With `prune`, trials below the median of the others at the same epoch may be ended early. Raises InputError where
    the storage cannot be used.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = _journal(folder) if url is None else _database(url)
    study = optuna.create_study(
        study_name=name,
        storage=storage,
        direction="maximize",
        pruner=MedianPruner() if prune else NopPruner(),
        load_if_exists=True,
    )
    return study, storage


def public_place(url: str) -> str:
    """A database's URL without user and password: what may be written down.

    Raises InputError where it is no URL, or that of a database which workers cannot share.
    """
    from sqlalchemy import URL

    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        raise InputError(
            got(
                "storage is an SQLite file, which two workers can take the same trial from",
                need="a database server, such as PostgreSQL",
                do="leave it out: the file in the sweep's folder can be shared",
            )
        )
    return str(URL.create(parsed.drivername, host=parsed.host, port=parsed.port, database=parsed.database))


def _journal(folder: Path) -> JournalStorage:
    # An absolute path: the lock beside it is a symbolic link to it.
    file = (folder / "journal.jsonl").absolute()
    try:
        return JournalStorage(JournalFileBackend(str(file)))
    except (ValueError, KeyError) as error:
        raise InputError(
            f"{file} is damaged ({error}): remove it and start again, finished trials are kept in their folders"
        ) from None


def _database(url: str) -> RDBStorage:
    from sqlalchemy import NullPool
    from sqlalchemy.exc import SQLAlchemyError

    place = public_place(url)
    for left in reversed(range(_TRIES)):
        try:
            # No connection is kept: a trial may train for hours between two words with the storage.
            return RDBStorage(url, engine_kwargs={"poolclass": NullPool})
        except ImportError as error:
            raise InputError(
                got(f"the driver of {place} is not installed ({error})", need="one that is", do="see SQLAlchemy's list")
            ) from None
        except (SQLAlchemyError, RuntimeError) as error:
            if not left:
                raise InputError(f"{place} cannot be used as storage: {str(error).splitlines()[0]}") from None
            time.sleep(0.5)
    raise AssertionError("the last try returns or raises")


def _parse(url: str) -> URL:
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(url)
    except ArgumentError:
        raise InputError(
            got(
                "storage is no URL of a database",
                need="postgresql+psycopg://user:password@host/database or the like",
                do="leave it out to keep the trials' states beside them",
            )
        ) from None
