"""Storage for a run, either in memory or in a locked folder with settings, metrics, checkpoints and model."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal, Protocol

import torch

from deeplda.errors import InputError
from deeplda.io import new_folder, read_small, write_text
from deeplda.training.checkpoint import Snapshot, read_checkpoint, write_checkpoint
from deeplda.training.config import AutoencoderConfig, RunConfig
from deeplda.training.metrics import EpochRow, Row, SummaryRow, parse_rows

# Each row has a number for every pair of classes, and there may be thousands of epochs.
_LARGEST_METRICS_FILE = 2**30
# The number of attempts to lock a run, and the seconds between them.
_LOCK_ATTEMPTS, _LOCK_PAUSE = 3, 0.02
_LIBRARIES = ("deeplda", "torch", "numpy", "scikit-learn", "safetensors")


class Writeable(Protocol):
    """An object that can write itself to a folder."""

    def _write(self, folder: Path) -> None: ...


class Run(Protocol):
    """The storage of a run: a `RunFolder` on disk, or a `MemoryRun`."""

    notes: list[str]

    def latest(self) -> Snapshot | None: ...
    def best(self) -> Snapshot: ...
    def save(self, name: Literal["last", "best"], snapshot: Snapshot) -> None: ...
    def log(self, row: Row) -> None: ...
    def keep_rows(self, epochs: int) -> None: ...
    def save_model(self, model: Writeable) -> None: ...


class MemoryRun:
    """A run in memory: it holds the best snapshot and the metric rows, and cannot be resumed.

    It is also used by all processes of a job except the first, which owns the folder.
    """

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


class RunFolder:
    """Reads and writes a run folder. It is created by `open_run`, which holds the lock."""

    def __init__(self, path: Path, data_fingerprint: str) -> None:
        self.path = path
        # A checkpoint belongs to the run if the settings and the data are the same. The text of run.toml is hashed, not
        # the parsed settings, so that a later version with more settings computes the same identity.
        settings = read_small(path / "run.toml").decode()
        self.identity = hashlib.blake2b(f"{settings}{data_fingerprint}".encode(), digest_size=16).hexdigest()
        self.notes: list[str] = []

    def save(self, name: Literal["last", "best"], snapshot: Snapshot) -> None:
        """Write a checkpoint; the previous `last` becomes `previous`."""
        checkpoints = self.path / "checkpoints"
        keep = checkpoints / "previous" if name == "last" else None
        write_checkpoint(snapshot, checkpoints / name, self.identity, keep=keep)

    def latest(self) -> Snapshot | None:
        """Return the newest intact checkpoint, or None if none has been written yet.

        Problems with newer checkpoints are added to `notes`. Raises InputError if there are checkpoints but none is
        usable.
        """
        found = self._first_intact("last", "previous")
        if found is None and self.notes:
            raise InputError(f"{self.notes[0]}: this run cannot be resumed, so choose another --run folder")
        return found

    def best(self) -> Snapshot:
        """Return the checkpoint with the best validation score."""
        # If a process is killed while replacing the checkpoint, the previous one remains under its hidden name.
        found = self._first_intact("best", ".best.old")
        if found is None:
            reason = self.notes[-1] if self.notes else f"{self.path / 'checkpoints' / 'best'} is missing"
            raise InputError(f"{reason}: train again")
        return found

    def _first_intact(self, *names: str) -> Snapshot | None:
        for name in names:
            folder = self.path / "checkpoints" / name
            if folder.is_dir():
                try:
                    return read_checkpoint(folder, self.identity)
                except InputError as error:
                    self.notes.append(str(error))
        return None

    def log(self, row: Row) -> None:
        """Append a row to metrics.jsonl."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(row.to_json() + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    def keep_rows(self, epochs: int) -> None:
        """Remove rows beyond `epochs` epochs, and a last row that was cut off, from metrics.jsonl before resuming.

        Missing rows are reported in `notes`.
        """
        rows = [row for row in read_metrics(self.path) if isinstance(row, EpochRow) and row.epoch <= epochs]
        if lost := epochs - len(rows):
            self.notes.append(f"{lost} of {epochs} rows are missing from {self.path / 'metrics.jsonl'}")
        write_text(self.path / "metrics.jsonl", "".join(row.to_json() + "\n" for row in rows))

    def save_model(self, model: Writeable) -> None:
        """Write the model to its folder."""
        with new_folder(self.path / "model") as temporary:
            model._write(temporary)


@contextmanager
def open_run(
    path: Path, config: RunConfig | AutoencoderConfig, data_fingerprint: str, *, wait: bool = False
) -> Iterator[RunFolder]:
    """Open a run folder, creating it if it does not exist, and hold its lock while the block runs.

    Raises InputError if the folder cannot be written, if it was started with different settings or data, or if another
    process is using it; with `wait`, it waits for that process instead.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}): choose another --run folder") from None
    try:
        _lock(lock, path, wait=wait)
        if not (path / "run.toml").exists():
            write_text(path / "environment.json", json.dumps(_environment(data_fingerprint), indent=2) + "\n")
            write_text(path / "run.toml", config.to_toml())
        else:
            if type(config).read(path / "run.toml") != config:
                raise InputError(f"{path} was started with different settings: choose another --run folder")
            if started_on(path) not in (None, data_fingerprint):
                what = f"the data used by {path} has changed since the run started"
                raise InputError(f"{what}: restore the data, or choose another --run folder")
        yield RunFolder(path, data_fingerprint)
    finally:
        os.close(lock)


def _lock(lock: int, path: Path, *, wait: bool) -> None:
    """Lock an open file. Raises InputError if another process holds the lock; warns if the system has no locks."""
    try:
        import fcntl
    except ImportError:
        message = f"this system has no file locks: make sure that no other process uses {path}"
        warnings.warn(message, UserWarning, stacklevel=2)
        return
    for left in reversed(range(_LOCK_ATTEMPTS)):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return
        except BlockingIOError:
            if not left:
                raise InputError(f"{path} is in use by another process: wait, or choose another --run folder") from None
            # Retry: a status check holds the lock for a moment.
            time.sleep(_LOCK_PAUSE)


def read_metrics(path: Path) -> list[Row]:
    """Return the valid rows from a run's metrics.jsonl. Raises InputError if the file cannot be read."""
    try:
        return parse_rows(read_small(path / "metrics.jsonl", _LARGEST_METRICS_FILE))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{path / 'metrics.jsonl'} cannot be read ({error.strerror})") from None


def summary_row(path: Path) -> SummaryRow | None:
    """Return the last row of a finished run, or None if the run is not finished."""
    last = next(reversed(read_metrics(path)), None)
    return last if isinstance(last, SummaryRow) and (path / "model" / "model.json").exists() else None


def read_environment(path: Path) -> dict[str, object]:
    """Return the environment in which a run was started; empty if it is unknown."""
    try:
        found = json.loads(read_small(path / "environment.json"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def started_on(path: Path) -> str | None:
    """Return the fingerprint of the data that a run was started with; None if it is unknown."""
    fingerprint = read_environment(path).get("data_fingerprint")
    return fingerprint if isinstance(fingerprint, str) else None


def _without_secrets(argument: str) -> str:
    """Remove the user name, password and query options from a URL."""
    # The user and password come first, because they may contain a question mark.
    return re.sub(r"://.*@", "://", argument, flags=re.DOTALL).partition("?")[0] if "://" in argument else argument


def _environment(data_fingerprint: str) -> dict[str, object]:
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [Path(sys.argv[0]).name, *map(_without_secrets, sys.argv[1:])],
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "versions": {name: version(name) for name in _LIBRARIES},
        "data_fingerprint": data_fingerprint,
    }
