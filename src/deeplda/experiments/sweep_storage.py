"""The storage that a sweep's workers share: an Optuna study, in a journal file or in a database."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.pruners import MedianPruner, NopPruner
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.study import StudyDirection

from deeplda.errors import InputError, TrainingError

# If two machines create the tables of an empty database at the same moment, both may fail once.
_TRIES = 5
_BLOCK = 4096


@contextmanager
def reporting_lost_storage() -> Iterator[None]:
    """Convert errors from a storage that becomes unreachable in this block to TrainingError."""
    try:
        yield
    except StorageInternalError as error:
        what = f"the storage cannot be reached ({str(error.__cause__ or error).splitlines()[0]})"
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
    pruner = MedianPruner() if prune else NopPruner()
    study = optuna.create_study(
        study_name=name, storage=storage, direction="maximize", pruner=pruner, load_if_exists=True
    )
    if study.directions != [StudyDirection.MAXIMIZE]:
        raise InputError(f"the storage of {folder} has a study named {name} that is not a deeplda sweep")
    return study, storage


def public_url(url: str) -> str:
    """Return the URL of a database without user and password, so that it can be written to files.

    Raises InputError if it is not a URL, or if workers cannot share such a database.
    """
    from sqlalchemy import URL, make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise InputError(
            "storage is not the URL of a database",
            need="a URL such as postgresql+psycopg://user:password@host/database",
            do="omit --storage to keep the state in the sweep's folder",
        ) from None
    if parsed.get_backend_name() == "sqlite":
        raise InputError(
            "storage is an SQLite file, from which two workers can take the same trial",
            need="a database server such as PostgreSQL",
            do="omit --storage to use the journal in the sweep's folder, which workers can share",
        )
    return str(URL.create(parsed.drivername, host=parsed.host, port=parsed.port, database=parsed.database))


def _database(url: str) -> RDBStorage:
    from sqlalchemy import NullPool
    from sqlalchemy.exc import SQLAlchemyError

    public = public_url(url)
    reason = ""
    for _ in range(_TRIES):
        try:
            # Connections are not kept open, because hours of training may pass between two accesses.
            return RDBStorage(url, engine_kwargs={"poolclass": NullPool})
        except ImportError as error:
            raise InputError(
                f"the driver for {public} is not installed ({error}): see SQLAlchemy's list of drivers"
            ) from None
        except (SQLAlchemyError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            time.sleep(0.5)
    raise InputError(f"{public} cannot be used as storage: {reason}")


def _journal(folder: Path) -> JournalStorage:
    # The path must be absolute, because the lock next to the file is a symbolic link to it.
    file = (folder / "journal.jsonl").absolute()
    if file.exists() and not file.is_file():
        raise InputError(f"{file} is not a regular file: remove it and start again")
    try:
        return JournalStorage(_Journal(file))
    except (OSError, InputError):
        raise
    except Exception as error:  # Optuna can raise almost anything for lines that are not from a journal.
        raise _corrupt(file, error) from None


def _corrupt(file: Path, error: Exception) -> InputError:
    do = "remove it and start again; finished trials are kept in their folders"
    return InputError(f"{file} is corrupt ({type(error).__name__}: {error}): {do}")


class _Journal(JournalFileBackend):
    """Optuna's journal, made safe against a full disk.

    A partially written line is removed. Otherwise, Optuna would append the next line to it, which would make the
    journal unreadable.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._own_lock = file, JournalFileSymlinkLock(str(file))
        super().__init__(str(file), self._own_lock)

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        try:
            yield from super().read_logs(log_number_from)
        except ValueError as error:
            raise _corrupt(self._file, error) from None

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode()
        self._own_lock.acquire()
        try:
            with self._file.open("r+b", buffering=0) as stream:
                end = _end_of_last_line(stream)
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


def _end_of_last_line(stream: FileIO) -> int:
    """Return the position after the last complete line."""
    end = stream.seek(0, os.SEEK_END)
    while end:
        start = stream.seek(max(0, end - _BLOCK))
        last = stream.read(end - start).rfind(b"\n")
        if last >= 0:
            return start + last + 1
        end = start
    return 0
