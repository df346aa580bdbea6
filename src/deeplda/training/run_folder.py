"""The folder of a run: settings, environment, metrics, checkpoints, model. One process at a time."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch

from deeplda.errors import InputError
from deeplda.io import new_folder, read_small, write_text
from deeplda.training.checkpoint import Snapshot, read_checkpoint, write_checkpoint
from deeplda.training.config import AutoencoderConfig, RunConfig
from deeplda.training.metrics import EpochRow, Row, SummaryRow, parse_rows
from deeplda.training.run import Writeable

# A row has a number for each pair of classes, and there may be thousands of epochs.
_MOST_METRICS = 2**30
# To take a run's lock, and the seconds between them.
_TRIES, _BETWEEN_TRIES = 3, 0.02
_LIBRARIES = ("deeplda", "torch", "numpy", "scikit-learn", "safetensors")


class RunFolder:
    """Reads and writes one run's folder. Made by `open_run`, which holds its lock."""

    def __init__(self, path: Path, data_fingerprint: str) -> None:
        self.path = path
        # A checkpoint belongs to the run if settings and data are the same. The text of run.toml, not the settings
        # parsed from it: a later version with further settings finds the same identity.
        settings = (path / "run.toml").read_text(encoding="utf-8")
        self.identity = hashlib.blake2b(f"{settings}{data_fingerprint}".encode(), digest_size=16).hexdigest()
        self.notes: list[str] = []

    def save(self, name: Literal["last", "best"], snapshot: Snapshot) -> None:
        """Write a checkpoint; the `last` before it becomes `previous`."""
        checkpoints = self.path / "checkpoints"
        keep = checkpoints / "previous" if name == "last" else None
        write_checkpoint(snapshot, checkpoints / name, self.identity, keep=keep)

    def latest(self) -> Snapshot | None:
        """The newest whole checkpoint, or None where none was written yet.

        What is wrong with a newer one is added to `notes`. Raises InputError where there are some and none can be used.
        """
        found = self._first_whole("last", "previous")
        if found is None and self.notes:
            raise InputError(f"{self.notes[0]}: nothing of this run can be taken up, choose another --run")
        return found

    def best(self) -> Snapshot:
        """The checkpoint with the best validation."""
        # A kill while it was replaced leaves the one before under its hidden name.
        found = self._first_whole("best", ".best.old")
        if found is None:
            reason = self.notes[-1] if self.notes else f"{self.path / 'checkpoints' / 'best'} is gone"
            raise InputError(f"{reason}: train again")
        return found

    def _first_whole(self, *names: str) -> Snapshot | None:
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
        """Drop rows of metrics.jsonl from after `epochs` epochs, and a last one that was cut, before going on.

        Rows that should be there and are not are added to `notes`.
        """
        rows = [row for row in read_metrics(self.path) if isinstance(row, EpochRow) and row.epoch <= epochs]
        if lost := epochs - len(rows):
            self.notes.append(
                f"{self.path / 'metrics.jsonl'} has lost {lost} of {epochs} rows: the run goes on without"
            )
        write_text(self.path / "metrics.jsonl", "".join(row.to_json() + "\n" for row in rows))

    def save_model(self, model: Writeable) -> None:
        """Write the model folder."""
        with new_folder(self.path / "model") as temporary:
            model._write(temporary)


@contextmanager
def open_run(
    path: Path, config: RunConfig | AutoencoderConfig, data_fingerprint: str, *, wait: bool = False
) -> Iterator[RunFolder]:
    """The run folder, created where it is not there, locked while the block runs.

    Raises InputError where it cannot be written, was begun on other data, or another process has it; with `wait` it
    waits for that one.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}): choose another --run folder") from None
    try:
        _take(lock, path, wait=wait)
        if not (path / "run.toml").exists():
            write_text(path / "environment.json", json.dumps(_environment(data_fingerprint), indent=2) + "\n")
            write_text(path / "run.toml", config.to_toml())
        elif begun_on(path) not in (None, data_fingerprint):
            raise InputError(
                f"the data of {path} has changed since it was begun: bring it back, or choose another --run"
            )
        yield RunFolder(path, data_fingerprint)
    finally:
        os.close(lock)


def _take(lock: int, path: Path, *, wait: bool) -> None:
    """Lock, or raise InputError where another process keeps it. Who only looks whether it is locked has it briefly."""
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return
        except BlockingIOError:
            if not left:
                in_use = f"{path} is in use by another process: wait for it, or choose another --run"
                raise InputError(in_use) from None
            time.sleep(_BETWEEN_TRIES)


def read_metrics(path: Path) -> list[Row]:
    """The rows of a run's metrics.jsonl that are whole. Raises InputError where it may not be read."""
    try:
        return parse_rows(read_small(path / "metrics.jsonl", _MOST_METRICS))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{path / 'metrics.jsonl'} cannot be read ({error.strerror})") from None


def summary_row(path: Path) -> SummaryRow | None:
    """Return the last row of a finished run, or None if the run is not finished."""
    last = next(reversed(read_metrics(path)), None)
    return last if isinstance(last, SummaryRow) and (path / "model" / "model.json").exists() else None


def read_environment(path: Path) -> dict[str, Any]:
    """What a run was begun with; empty where that is not known."""
    try:
        found = json.loads(read_small(path / "environment.json"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def begun_on(path: Path) -> str | None:
    """The fingerprint of the data that a run was begun on; None where that is not known."""
    begun = read_environment(path).get("data_fingerprint")
    return begun if isinstance(begun, str) else None


def _without_secrets(argument: str) -> str:
    """An argument without what is secret in a URL: user, password and options."""
    return re.sub(r"://.*@", "://", argument.partition("?")[0]) if "://" in argument else argument


def _environment(data_fingerprint: str) -> dict[str, Any]:
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
