"""Progress reports during training: a bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sized
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, TypeVar

from deeplda.data import Data
from deeplda.errors import one_line
from deeplda.formatting import percent
from deeplda.printing import plain_console
from deeplda.training.checkpoint import Counters
from deeplda.training.config import LoopConfig
from deeplda.training.metrics import EpochRow, Scores

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

Batches = TypeVar("Batches", bound=Sized)
_SECONDS_BETWEEN_UPDATES = 0.5


class Progress:
    """A progress report that shows nothing. Override its methods to report to a terminal or elsewhere."""

    def start(self, config: LoopConfig, data: Data, counters: Counters, notes: list[str]) -> None:
        """Called before the first step of a new or resumed run; `notes` are messages about the run folder."""

    def note(self, text: str) -> None:
        """Called with a one-line message for the user, which may contain names from untrusted data."""

    def status(self, text: str) -> AbstractContextManager[object]:
        """Return a context that shows `text` while its block runs."""
        del text
        return nullcontext()

    def step(self, counters: Counters, steps: int, samples: int, loss: float, describe: Callable[[], str]) -> None:
        """Called after each step; `describe` returns numbers about the step and is called only if they are shown."""

    def epoch(self, row: EpochRow, counters: Counters) -> None:
        """Called after each epoch, once it has been validated."""

    def watch(self, batches: Iterator[Batches], samples: int, activity: str) -> Iterator[Batches]:
        """Return the batches of a long computation, and report progress as they are consumed."""
        del samples, activity
        return batches

    def close(self) -> None:
        """Called at the end, even after an error."""


class TerminalProgress(Progress):
    """A progress report on stderr: a bar on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self.console = plain_console(sys.stderr, soft_wrap=True)
        self._bar: Bar | None = None
        self._epochs, self._samples, self._since, self._shown = 0, 0, time.monotonic(), 0.0
        self._evaluates: Callable[[int], bool] = lambda _epoch: True

    def start(self, config: LoopConfig, data: Data, counters: Counters, notes: list[str]) -> None:
        for note in (*data.notes, *notes):
            self.note(note)
        shape = "x".join(map(str, data.sample_shape))
        self.note(
            f"{data.name}: {len(data.train):,} training, {len(data.val):,} validation and {len(data.test):,} test "
            f"samples of {shape}, {len(data.class_names)} classes"
        )
        if counters.epoch or counters.step:
            self.note(f"resuming after epoch {counters.epoch}, step {counters.step}")
        self._epochs, self._since, self._evaluates = config.stretches[-1], time.monotonic(), config.evaluates
        if self.console.is_terminal:
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[figures]}"),
                TextColumn("left"), TimeRemainingColumn(), console=self.console, transient=True,
            )  # fmt: skip
            self._bar.add_task("", total=None, figures="")
            self._bar.start()

    def note(self, text: str) -> None:
        self.console.print(text)

    def status(self, text: str) -> AbstractContextManager[object]:
        from rich.text import Text

        return self.console.status(Text(one_line(text)))

    def step(self, counters: Counters, steps: int, samples: int, loss: float, describe: Callable[[], str]) -> None:
        self._samples += samples
        now = time.monotonic()
        if self._bar is None or now - self._shown < _SECONDS_BETWEEN_UPDATES:
            return
        self._shown = now
        rate = self._samples / (now - self._since)
        self._bar.update(
            self._bar.task_ids[0],
            description=f"epoch {counters.epoch + 1}/{self._epochs}",
            total=self._epochs * steps,
            completed=counters.epoch * steps + counters.step,
            figures=f"{rate:,.0f}/s  loss {loss:.3f}{describe()}",
        )

    def epoch(self, row: EpochRow, counters: Counters) -> None:
        if not self._evaluates(counters.epoch):
            return
        now = time.monotonic()
        rate, self._samples, self._since = self._samples / max(now - self._since, 1e-9), 0, now
        spectrum = f"  eigenvalues {row.eigenvalues[0]:.2f} to {row.eigenvalues[-1]:.2f}" if row.eigenvalues else ""
        scores, validation = row.validation, ""
        if scores is not None:
            figure = percent(scores.accuracy) if isinstance(scores, Scores) else f"error {scores.error:.5f}"
            validation = f"  validation {figure}"
        best = ""
        if scores and counters.best_epoch == counters.epoch:
            best = "  best so far" if counters.risen_epoch == counters.epoch else "  equal to the best so far"
        left = row.seconds / counters.epoch * (self._epochs - counters.epoch)
        self.console.print(
            f"epoch {counters.epoch:3}/{self._epochs}  loss {row.loss:8.3f}{spectrum}{validation}  "
            f"{rate:,.0f} samples/s  left {left:,.0f} s{best}"
        )

    def watch(self, batches: Iterator[Batches], samples: int, activity: str) -> Iterator[Batches]:
        if not self.console.is_terminal:
            self.console.print(f"{activity}: {samples:,} samples")
            yield from batches
            return
        from rich.progress import Progress as Bar

        with Bar(*Bar.get_default_columns(), console=self.console, transient=True) as bar:
            task = bar.add_task(activity, total=samples)
            for batch in batches:
                yield batch
                bar.advance(task, len(batch))

    def close(self) -> None:
        if self._bar is not None:
            # If the terminal is closed, this must not hide the error that ended the training.
            with suppress(OSError):
                self._bar.stop()
            self._bar = None
