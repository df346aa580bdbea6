"""Where the workers of a sweep meet: an Optuna study in a journal beside the trials, or in a database."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.pruners import MedianPruner, NopPruner
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.study import StudyDirection

from deeplda.errors import InputError, TrainingError, got

if TYPE_CHECKING:
    from sqlalchemy import URL

# Two machines that create the tables of an empty database at the same moment get in each other's way once.
_TRIES = 5
_PIECE = 4096


@contextmanager
def while_it_answers() -> Iterator[None]:
    """A storage that goes away meanwhile is a TrainingError."""
    try:
        yield
    except StorageInternalError as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise TrainingError(
            f"the storage does not answer ({reason}); the runs are saved: start the same command again"
        ) from None


def open_study(name: str, folder: Path, url: str | None, *, prune: bool) -> tuple[optuna.Study, BaseStorage]:
    """The study of a sweep, created where it is not there, and its storage: `url`, or a journal in `folder`.

    A database holds many studies, by `name`. A journal holds one, whatever the folder was called when it was begun.
    With `prune`, trials below the median of the others at the same epoch may be ended early. Raises InputError where
    the storage cannot be used.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = _journal(folder) if url is None else _database(url)
    if url is None and (there := storage.get_all_studies()):
        name = there[0].study_name
    study = optuna.create_study(
        study_name=name,
        storage=storage,
        direction="maximize",
        pruner=MedianPruner() if prune else NopPruner(),
        load_if_exists=True,
    )
    if study.directions != [StudyDirection.MAXIMIZE]:
        raise InputError(f"the storage of {folder} holds a study named {name} that is no sweep of ours")
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
    if file.exists() and not file.is_file():
        raise InputError(f"{file} is not a regular file: remove it and start again")
    try:
        return JournalStorage(_Journal(file))
    except (OSError, InputError):
        raise
    except Exception as error:  # lines that are no journal's make Optuna raise nearly anything
        raise InputError(_damaged(file, error)) from None


def _damaged(file: Path, error: Exception) -> str:
    return (
        f"{file} is damaged ({type(error).__name__}: {error}): remove it and start again, finished trials are kept "
        "in their folders"
    )


class _Journal(JournalFileBackend):
    """Optuna's journal, which survives a full disk: half a line that could not be written whole is taken back.

    Optuna itself would write the next line behind it, and nobody could read the journal after that.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._own_lock = file, JournalFileSymlinkLock(str(file))
        super().__init__(str(file), self._own_lock)

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        try:
            yield from super().read_logs(log_number_from)
        except ValueError as error:
            raise InputError(_damaged(self._file, error)) from None

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode()
        self._own_lock.acquire()
        try:
            with self._file.open("r+b", buffering=0) as stream:
                end = _end_of_whole_lines(stream)
                stream.truncate(end)
                stream.seek(end)
                try:
                    while lines:
                        lines = lines[stream.write(lines) :]
                    os.fsync(stream.fileno())
                except OSError:
                    stream.truncate(end)
                    raise
        finally:
            self._own_lock.release()


def _end_of_whole_lines(stream: FileIO) -> int:
    end = stream.seek(0, os.SEEK_END)
    while end:
        start = stream.seek(max(0, end - _PIECE))
        last = stream.read(end - start).rfind(b"\n")
        if last >= 0:
            return start + last + 1
        end = start
    return 0


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
    except (ArgumentError, ValueError):
        raise InputError(
            got(
                "storage is no URL of a database",
                need="postgresql+psycopg://user:password@host/database or the like",
                do="leave it out to keep the trials' states beside them",
            )
        ) from None
