"""Storage for a run, either in memory or in a locked folder with settings, metrics, checkpoints and model."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save

from deeplda.data.corrections import LARGEST_FILE
from deeplda.data.folder_options import FolderSplit
from deeplda.data.stored_split import SPLIT_FILE, StoredSplit, read_split
from deeplda.errors import InputError, TrainingError, unreadable
from deeplda.io import expanded, read_arrays, read_small, read_toml
from deeplda.model import MODEL_FILES
from deeplda.output_folder import InUseError, OutputFolder
from deeplda.training.checkpoint import CHECKPOINT_FILES, Snapshot, read_checkpoint, write_checkpoint
from deeplda.training.config import DECISION_SETTINGS, AutoencoderConfig, RunConfig, as_toml
from deeplda.training.metrics import EpochRow, Row, SummaryRow, parse_rows

MARGINS_FILE = "margins.safetensors"
# Each row has a number for every pair of classes, and there may be thousands of epochs.
_LARGEST_METRICS_FILE = 2**30
# Where the previous checkpoint is kept while a new one is put in its place. A process that is killed at this moment
# leaves a complete checkpoint under the second name.
_KEPT = {"last": "previous", "best": ".best.old"}
# The line of run.toml that changes when a run is extended. It is not part of the identity of checkpoints.
_EXTENSION = re.compile(r"^extended_to = .*\n", re.MULTILINE)
_LIBRARIES = ("deeplda", "torch", "numpy", "scikit-learn", "safetensors")


class Writeable(Protocol):
    """An object that can write itself to a folder."""

    def _write(self, folder: OutputFolder) -> None: ...


class Run(Protocol):
    """The storage of a run: a `RunFolder` on disk, or a `MemoryRun`.

    Attributes:
        resumable: whether a stopped run can be resumed, for which it needs a snapshot of every epoch.
    """

    notes: list[str]
    resumable: bool

    def latest(self) -> Snapshot | None: ...
    def best(self) -> Snapshot | None: ...
    def save(self, name: Literal["last", "best"], snapshot: Snapshot) -> None: ...
    def log(self, row: Row) -> None: ...
    def keep_rows(self, epochs: int) -> None: ...
    def save_model(self, model: Writeable) -> None: ...
    def save_margins(self, margins: NDArray[np.float32]) -> None: ...


class MemoryRun:
    """A run in memory: it holds the best snapshot and the metric rows, and cannot be resumed.

    It is also used by all processes of a job except the first, which owns the folder.
    """

    resumable = False

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.rows: list[Row] = []
        self._best: Snapshot | None = None

    def latest(self) -> Snapshot | None:
        return None

    def best(self) -> Snapshot | None:
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

    def save_margins(self, margins: object) -> None:
        """Do nothing: the caller has the margins."""


class RunFolder:
    """Reads and writes a run folder. It is created by `open_run`, which holds the lock."""

    resumable = True

    def __init__(self, output: OutputFolder, data_fingerprint: str) -> None:
        self.path, self._output = output.path, output
        # A checkpoint belongs to the run if the settings and the data are the same. The text of run.toml is hashed, not
        # the parsed settings, so that a later version with more settings computes the same identity.
        settings = _EXTENSION.sub("", read_small(self.path / "run.toml").decode())
        self.identity = hashlib.blake2b(f"{settings}{data_fingerprint}".encode(), digest_size=16).hexdigest()
        self.notes: list[str] = []

    def save(self, name: Literal["last", "best"], snapshot: Snapshot) -> None:
        """Write a checkpoint; the previous `last` becomes `previous`.

        Raises TrainingError if the folder was moved or replaced; the checkpoint is then in the moved folder.
        """
        with self._in_place(), self._output.subfolder("checkpoints") as checkpoints:
            write_checkpoint(snapshot, checkpoints, name, self.identity, keep=_KEPT[name])
            if name == "best":
                checkpoints.remove(_KEPT[name])

    def latest(self) -> Snapshot | None:
        """Return the newest intact checkpoint, or None if none has been written yet.

        Problems with newer checkpoints are added to `notes`. Raises InputError if there are checkpoints but none is
        usable.
        """
        found = self._first_intact("last", _KEPT["last"])
        if found is None and self.notes:
            raise InputError(f"{self.notes[0]}: this run cannot be resumed, so choose another --run folder")
        if found is None and self._has_metrics() and not self._is_in_first_epoch():
            what = f"{self.path} has metrics but no checkpoints, so it cannot be resumed"
            raise InputError(f"{what}: choose another --run folder")
        before, now = read_environment(self.path).get("threads"), torch.get_num_threads()
        if found is not None and isinstance(before, int) and before != now:
            self.notes.append(f"resuming with {now} threads instead of {before}, so the last digits may differ")
        return found

    def _has_metrics(self) -> bool:
        file = self.path / "metrics.jsonl"
        return file.exists() and file.stat().st_size > 0

    def _is_in_first_epoch(self) -> bool:
        """Return whether the run was killed after its first row was written, but before the checkpoint after it."""
        best = self._first_intact("best", _KEPT["best"])
        return best is not None and best.counters.epoch == 1 and len(read_metrics(self.path)) <= 1

    def best(self) -> Snapshot:
        """Return the checkpoint with the best validation score."""
        found = self._first_intact("best", _KEPT["best"])
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
        with self._in_place():
            self._output.append_lines("metrics.jsonl", f"{row.to_json()}\n".encode())

    def keep_rows(self, epochs: int) -> None:
        """Remove rows beyond `epochs` epochs, and a last row that was cut off, from metrics.jsonl before resuming.

        The report, which a run has if it was finished and then extended, is removed too. Missing rows are reported in
        `notes`.
        """
        rows = [row for row in read_metrics(self.path) if isinstance(row, EpochRow) and row.epoch <= epochs]
        if lost := epochs - len(rows):
            self.notes.append(f"{lost} of {epochs} rows are missing from {self.path / 'metrics.jsonl'}")
        self._output.write("metrics.jsonl", "".join(row.to_json() + "\n" for row in rows))
        if (self.path / "report.html").is_file():
            self._output.remove("report.html")

    def save_model(self, model: Writeable) -> None:
        """Write the model to its folder. Raises TrainingError if the run folder was moved or replaced."""
        with self._in_place(), self._output.new_folder("model", ours=MODEL_FILES) as folder:
            model._write(folder)

    def save_margins(self, margins: NDArray[np.float32]) -> None:
        """Write the margin of each training sample, (n,), to margins.safetensors."""
        with self._in_place():
            self._output.write(MARGINS_FILE, save({"margins": margins}))

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        """Write in this block. Raises TrainingError if the folder was moved, replaced or deleted."""
        try:
            yield
        except FileNotFoundError:
            if self._output.is_still_at(self.path):
                raise
            raise TrainingError(f"{self.path} was deleted during the run, which is lost: train again") from None
        if not self._output.is_still_at(self.path):
            what = f"{self.path} was moved or replaced during the run; the state is saved in the folder that was moved"
            raise TrainingError(f"{what}: resume it there, with deeplda train --resume --run FOLDER")


@contextmanager
def open_run(
    path: Path,
    config: RunConfig | AutoencoderConfig,
    data_fingerprint: str,
    *,
    wait: bool = False,
    new_id: str | None = None,
    create: bool = True,
    split: StoredSplit | None = None,
) -> Iterator[RunFolder]:
    """Open a run folder, creating it if it does not exist, and hold its lock while the block runs.

    Without `create`, a missing folder is an InputError, because it was there before.

    A new run stores `split`, copies of its decision files, and the id `new_id`, by default a random one, which it keeps
    when its folder is moved. If `config` extends an existing run, this is recorded in its run.toml.

    Raises InputError if the folder cannot be written, if it contains anything but a run, if it was started with
    different settings or data, or if another process is using it; with `wait`, it waits for that process instead.
    """
    require_usable(path)
    try:
        output = OutputFolder.open(path, create=create)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}): choose another --run folder") from None
    with output, ExitStack() as stack:
        try:
            stack.enter_context(output.locked(".lock", wait=wait))
        except InUseError as error:
            raise InputError(f"{error}: wait, or choose another --run folder") from None
        except OSError as error:
            raise InputError(f"{path} cannot be written ({error.strerror}): choose another --run folder") from None
        require_usable(path)
        output.require_ours("model", MODEL_FILES)
        if "checkpoints" in output.names():
            with output.subfolder("checkpoints") as checkpoints:
                for name in (*_KEPT, *_KEPT.values()):
                    checkpoints.require_ours(name, CHECKPOINT_FILES)
                checkpoints.clean()
        if "run.toml" not in output.names():
            # This comes first: from now on, the folder is known as a run.
            output.write("run.toml", f'{config.to_toml()}\n[run]\nid = "{new_id or secrets.token_hex(8)}"\n')
        else:
            _require_same(path, config, data_fingerprint)
            _record_extension(output, config)
        if "environment.json" not in output.names():
            # These come first: a run that has only environment.json is from a version that did not store them.
            _store_decisions(output, config)
            if split is not None:
                output.write(SPLIT_FILE, split.to_jsonl())
            output.write("environment.json", json.dumps(_environment(data_fingerprint), indent=2) + "\n")
        output.clean()
        yield RunFolder(output, data_fingerprint)


def require_usable(path: Path) -> None:
    """Raise InputError unless `path` is new, an empty folder, or a run, so that no other files can be overwritten."""
    if path.is_dir() and not (path / "run.toml").exists():
        with OutputFolder.open(path) as folder:
            others = sorted(folder.names() - {".lock"})
        if others:
            what = f"{path} contains {others[0]!r} but no run"
            raise InputError(what, need="a new or empty folder, or a run", do="choose another --run folder")


def _require_same(path: Path, config: RunConfig | AutoencoderConfig, data_fingerprint: str) -> None:
    before = type(config).read(path / "run.toml")
    if isinstance(config, RunConfig) and config.stretches[: len(before.stretches)] == before.stretches:
        before = before.model_copy(update={"extended_to": config.extended_to})
    if before != config:
        raise InputError(f"{path} was started with different settings: choose another --run folder")
    if started_on(path) not in (None, data_fingerprint):
        what = f"the data used by {path} has changed since the run started"
        raise InputError(f"{what}: restore the data, or choose another --run folder")


def _record_extension(output: OutputFolder, config: RunConfig | AutoencoderConfig) -> None:
    """Write the epochs to which a run is extended to run.toml, and leave the rest of its text as it is."""
    text = read_small(output.path / "run.toml").decode()
    extension = f"extended_to = {as_toml(list(config.stretches[1:]))}\n" if config.stretches[1:] else ""
    if extension not in text:
        output.write("run.toml", extension + _EXTENSION.sub("", text))


def _decision_copies(config: RunConfig | AutoencoderConfig) -> dict[str, dict[str, Path]]:
    """Return the decision files of a run by their settings and by the names of their copies in the run folder."""
    files: dict[str, tuple[Path, ...]] = {name: getattr(config, name) or () for name in DECISION_SETTINGS}
    return {
        name: {f"{name}-{number}.csv": file for number, file in enumerate(files[name], 1)}
        for name in DECISION_SETTINGS
        if files[name]
    }


def _store_decisions(output: OutputFolder, config: RunConfig | AutoencoderConfig) -> None:
    """Copy the decision files of a new run to its folder. Raises InputError if one cannot be read."""
    for copies in _decision_copies(config).values():
        for copy, file in copies.items():
            try:
                output.write(copy, read_small(expanded(file), LARGEST_FILE))
            except FileNotFoundError as error:
                raise unreadable(file, error, "restore it") from None


def with_stored_decisions(config: RunConfig, path: Path) -> RunConfig:
    """Return the settings of a run with its own copies of the decision files.

    Files without a copy, as in a new run, stay as they are.
    """
    stored = {
        name: tuple(path / copy if (path / copy).exists() else file for copy, file in copies.items())
        for name, copies in _decision_copies(config).items()
    }
    return config.model_copy(update=stored)


def read_metrics(path: Path) -> list[Row]:
    """Return the valid rows from a run's metrics.jsonl. Raises InputError if the file cannot be read."""
    try:
        return parse_rows(read_small(path / "metrics.jsonl", _LARGEST_METRICS_FILE))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{path / 'metrics.jsonl'} cannot be read ({error.strerror})") from None


def summary_row(path: Path, config: RunConfig | None = None) -> SummaryRow | None:
    """Return the last row of a finished run, or None if the run is not finished.

    With `config`, a run that these settings extend is not finished, even if it has a summary from before.
    """
    last = recorded_summary(path)
    if last is None or not has_model(path):
        return None
    is_extended = config is not None and any(last.epochs <= end for end in config.stretches[:-1])
    return None if is_extended else last


def recorded_summary(path: Path) -> SummaryRow | None:
    """Return the last row of a run that was finished, even if its model was removed, as from published results."""
    last = next(reversed(read_metrics(path)), None)
    return last if isinstance(last, SummaryRow) else None


def has_model(path: Path) -> bool:
    return (path / "model" / "model.json").exists()


def has_checkpoint(path: Path) -> bool:
    """Return whether a run has a checkpoint to resume from, whether intact or not."""
    return any((path / "checkpoints" / name).is_dir() for name in ("last", _KEPT["last"]))


def run_id(path: Path) -> str | None:
    """Return the id of a run; None if there is no run, or if it was started by a version without ids."""
    try:
        table = read_toml(path / "run.toml").get("run")
    except InputError:
        return None
    found = table.get("id") if isinstance(table, dict) else None
    return found if isinstance(found, str) else None


def find_run(own_id: str, parent: Path) -> Path | None:
    """Return the run in the folder `parent` that has this id, or None if there is none."""
    return next((file.parent for file in sorted(parent.glob("*/run.toml")) if run_id(file.parent) == own_id), None)


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


def split_of(path: Path) -> FolderSplit:
    """Return how the folder of images of a run is split: the stored split or, for runs of earlier versions, "seed".

    If nothing was stored yet, this is "content", as for a new run. Raises InputError if the stored split is damaged.
    """
    if not (path / "environment.json").exists():
        return "content"
    return read_split(path / SPLIT_FILE) if os.path.lexists(path / SPLIT_FILE) else "seed"


def read_margins(path: Path, samples: int) -> NDArray[np.float32] | None:
    """Return the margins of a run's training samples, (samples,); None if an earlier version trained the run.

    Raises InputError if the file is damaged or belongs to other samples.
    """
    if not os.path.lexists(path / MARGINS_FILE):
        return None
    found = read_arrays(path / MARGINS_FILE).get("margins", np.empty(0))
    if found.shape != (samples,) or found.dtype != np.float32 or np.isinf(found).any():
        what = f"{path / MARGINS_FILE} does not have a margin for each of {samples:,} training samples"
        raise InputError(f"{what}: restore it, or remove it to use the final scores")
    return found


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
