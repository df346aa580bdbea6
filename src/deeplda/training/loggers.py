"""Loggers, which receive the row of each epoch: TensorBoard, and your own."""

from __future__ import annotations

import inspect
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Protocol

from deeplda.data import Data
from deeplda.errors import InputError, TrainingError
from deeplda.output_folder import OutputFolder
from deeplda.training.checkpoint import Counters
from deeplda.training.config import LoopConfig
from deeplda.training.metrics import EpochRow
from deeplda.training.progress import Batches, Progress
from deeplda.user_code import find_callable, importable_here, own_code


class Logger(Protocol):
    """Receives the rows of a run. If it also has a method `close()`, this is called at the end, even after an error."""

    def on_epoch(self, row: EpochRow) -> None:
        """Called after each epoch, once it has been validated and its checkpoint is saved."""


# Makes a logger when a run is started or resumed, given the run folder and the settings in its run.toml.
LoggerBuilder = Callable[[Path, Mapping[str, object]], Logger]


def find_logger(name: str) -> LoggerBuilder:
    """Import the builder "module.path:name". Raises InputError if it does not take (folder, settings).

    If the user's code fails during training, its logger raises TrainingError.
    """
    need = "a class or function of (folder, settings) that makes a logger"
    found = find_callable(name, "logger", need)
    try:
        inspect.signature(found).bind(Path(), {})
    except TypeError:
        raise InputError(f"logger {name!r} takes {inspect.signature(found)}, need {need}") from None
    if inspect.isclass(found) and not callable(getattr(found, "on_epoch", None)):
        raise InputError(f"logger {name!r} has no method on_epoch(row)")

    def build(folder: Path, settings: Mapping[str, object]) -> Logger:
        with own_code("logger", name, TrainingError), importable_here():
            logger = found(folder, settings)
        if not callable(getattr(logger, "on_epoch", None)):
            raise InputError(f"logger {name!r} is of type {type(logger).__name__}, need a method on_epoch(row)")
        return _OwnLogger(name, logger)

    return build


class _OwnLogger:
    """A logger of the user's, whose errors become a TrainingError that has the line of its code."""

    def __init__(self, name: str, logger: Logger) -> None:
        self._name, self._logger = name, logger

    def on_epoch(self, row: EpochRow) -> None:
        with own_code("logger", self._name, TrainingError):
            self._logger.on_epoch(row)

    def close(self) -> None:
        if (close := getattr(self._logger, "close", None)) is not None:
            with own_code("logger", self._name, TrainingError):
                close()


class LoggedProgress(Progress):
    """Passes the rows of a run to loggers, and everything to another progress report.

    The autoencoder that is trained first for subclasses has loggers of its own; its settings have no objective.

    Args:
        folder: the run folder.
        builders: make the loggers.
        shown: the other progress report.
    """

    def __init__(self, folder: Path, builders: Sequence[LoggerBuilder], shown: Progress) -> None:
        self._folder, self._builders, self._shown = folder, builders, shown
        self._loggers: list[Logger] = []

    def start(self, config: LoopConfig, data: Data, counters: Counters, notes: list[str]) -> None:
        self._shown.start(config, data, counters, notes)
        self._close_loggers()
        settings = config.model_dump(mode="json", exclude_none=True)
        for build in self._builders:
            self._loggers.append(build(self._folder, settings))

    def epoch(self, row: EpochRow, counters: Counters) -> None:
        self._shown.epoch(row, counters)
        for logger in self._loggers:
            logger.on_epoch(row)

    def note(self, text: str) -> None:
        self._shown.note(text)

    def status(self, text: str) -> AbstractContextManager[object]:
        return self._shown.status(text)

    def step(self, counters: Counters, steps: int, samples: int, loss: float, describe: Callable[[], str]) -> None:
        self._shown.step(counters, steps, samples, loss, describe)

    def watch(self, batches: Iterator[Batches], samples: int, activity: str) -> Iterator[Batches]:
        return self._shown.watch(batches, samples, activity)

    def close(self) -> None:
        self._shown.close()
        self._close_loggers()

    def _close_loggers(self) -> None:
        while self._loggers:
            close = getattr(self._loggers.pop(), "close", None)
            if close is not None:
                close()


class TensorBoardLogger:
    """Writes the scalars of each epoch to a TensorBoard event file in tensorboard/ in the run folder.

    TensorBoard's own writer opens the file by its path for each event: it would follow a link that appears there, and
    a training would fail if the folder is deleted. Here, the file stays open.
    """

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._open = ExitStack()
        output = self._open.enter_context(OutputFolder.open(folder))
        output = self._open.enter_context(output.subfolder("tensorboard"))
        if "objective" not in settings:
            output = self._open.enter_context(output.subfolder("autoencoder"))
        # TensorBoard recognises the files by their names and reads them in alphabetical order.
        name = f"events.out.tfevents.{time.time_ns():020d}.{secrets.token_hex(8)}"
        self._events = RecordWriter(self._open.enter_context(output.create(name)))
        self._is_empty = True

    def on_epoch(self, row: EpochRow) -> None:
        """Write the scalars. The first row purges what an earlier process wrote for this epoch and later ones."""
        from tensorboard.compat.proto.event_pb2 import SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary

        if self._is_empty:
            self._write(row.epoch, file_version="brain.Event:2")
            self._write(row.epoch, session_log=SessionLog(status=SessionLog.START))
            self._is_empty = False
        values = [Summary.Value(tag=name, simple_value=value) for name, value in row.scalars.items()]
        self._write(row.epoch, summary=Summary(value=values))
        self._events.flush()

    def _write(self, step: int, **content: object) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._events.write(Event(wall_time=time.time(), step=step, **content).SerializeToString())

    def close(self) -> None:
        self._open.close()
