"""What a person sees while training: a bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from torch import Tensor

from deeplda.data import Data
from deeplda.errors import one_line
from deeplda.training.checkpoint import Counters
from deeplda.training.config import LoopConfig


class Progress:
    """Reports to stderr. `style` is "auto" (a bar on a terminal, else lines) or "quiet"."""

    def __init__(self, style: Literal["auto", "quiet"] = "auto") -> None:
        # Names are the data's own: brackets in them are no markup.
        self.console = Console(file=sys.stderr, highlight=False, markup=False, soft_wrap=True, quiet=style == "quiet")
        self._bar: Bar | None = None
        self._samples = 0
        self._since = time.monotonic()
        self._shown = 0.0
        self._epochs = 0

    def start(self, config: LoopConfig, data: Data, counters: Counters, notes: list[str]) -> None:
        """Training is about to begin, or to go on; `notes` say what was found in the run folder."""
        for note in (*(f"left out: {file}" for file in data.left_out), *notes):
            self.note(note)
        what = "x".join(map(str, data.sample_shape))
        self.note(
            f"{data.name}: {len(data.train):,} training, {len(data.val):,} validation and {len(data.test):,} test "
            f"samples of {what}, {len(data.class_names)} classes"
        )
        if counters.epoch or counters.step:
            self.console.print(f"going on after epoch {counters.epoch}, step {counters.step}")
        self._epochs, self._since = config.epochs, time.monotonic()
        if self.console.is_terminal and not self.console.quiet:
            self._bar = Bar(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[figures]}"),
                TextColumn("left"), TimeRemainingColumn(), console=self.console, transient=True,
            )  # fmt: skip
            self._bar.add_task("", total=None, figures="")
            self._bar.start()

    def note(self, text: str) -> None:
        """Say something in a line of its own, whatever names are in it."""
        self.console.print(one_line(text))

    def step(self, counters: Counters, steps: int, samples: int, loss: float, words: Callable[[], str]) -> None:
        """A step is done; `words` are asked for when they are shown."""
        self._samples += samples
        now = time.monotonic()
        if self._bar is None or now - self._shown < 0.5:
            return
        self._shown = now
        rate = self._samples / (now - self._since)
        figures = f"{rate:,.0f}/s  loss {loss:.3f}{words()}"
        self._bar.update(
            self._bar.task_ids[0],
            description=f"epoch {counters.epoch + 1}/{self._epochs}",
            total=self._epochs * steps,
            completed=counters.epoch * steps + counters.step,
            figures=figures,
        )

    def epoch(self, row: dict[str, Any], counters: Counters) -> None:
        """An epoch is done and validated."""
        now = time.monotonic()
        rate, self._samples, self._since = self._samples / max(now - self._since, 1e-9), 0, now
        eigenvalues = row.get("eigenvalues")
        spectrum = f"  eigenvalues {eigenvalues[0]:.2f} to {eigenvalues[-1]:.2f}" if eigenvalues else ""
        validation = row["validation"]
        accuracy = f"  validation {_in_words(validation)}" if validation else ""
        mark = "  best so far" if validation and counters.best_epoch == counters.epoch else ""
        left = row["seconds"] / counters.epoch * (self._epochs - counters.epoch)
        self.console.print(
            f"epoch {counters.epoch:3}/{self._epochs}  loss {row['loss']:8.3f}{spectrum}{accuracy}  "
            f"{rate:,.0f} samples/s  left {left:,.0f} s{mark}"
        )

    def watch(self, batches: Iterator[Tensor], samples: int, words: str) -> Iterator[Tensor]:
        """Hand on the batches of a long pass, and show how far it is."""
        if not self.console.is_terminal or self.console.quiet:
            self.console.print(f"{words}: {samples:,} samples")
            yield from batches
            return
        with Bar(*Bar.get_default_columns(), console=self.console, transient=True) as bar:
            task = bar.add_task(words, total=samples)
            for batch in batches:
                yield batch
                bar.advance(task, len(batch))

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _in_words(validation: dict[str, Any]) -> str:
    if "error" in validation:
        return f"error {validation['error']:.5f}"
    return f"{100 * validation['accuracy']:.2f} %"
