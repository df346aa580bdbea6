"""A sweep as a person watches it: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from typing import Self

from optuna.exceptions import StorageInternalError
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from deeplda.experiments.sweeps.status import SweepStatus, sweep_status
from deeplda.experiments.sweeps.sweep import Sweep

_SECONDS = 1.0


class Display:
    """Shows the sweep on stderr while the block runs."""

    def __init__(self, sweep: Sweep, *, quiet: bool = False) -> None:
        self.console = Console(file=sys.stderr, highlight=False, markup=False, soft_wrap=True, quiet=quiet)
        self._sweep, self._quick = sweep, sweep.definition.scale == "quick"
        self._seen: SweepStatus | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        terminal = self.console.is_terminal and not quiet
        self._live = Live(console=self.console, refresh_per_second=2, transient=True) if terminal else None

    def __enter__(self) -> Self:
        mark = " (quick scale)" if self._quick else ""
        count = len(self._sweep.trials)
        self.console.print(f"sweep {self._sweep.folder}{mark}: {count} {'trial' if count == 1 else 'trials'}")
        if self._live:
            self._live.start()
        if not self.console.quiet:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
            self._show()
        if self._live:
            self._live.stop()

    def _run(self) -> None:
        while not self._over.is_set():
            self._show()
            self._over.wait(_SECONDS)

    def _show(self) -> None:
        try:
            status = sweep_status(self._sweep)
        except StorageInternalError:
            # It is the workers' part to give up on a storage.
            return
        if self._live:
            self._live.update(status_table(status, quick=self._quick))
        else:
            for line in news(self._seen, status):
                self.console.print(line)
        self._seen = status


def status_table(status: SweepStatus, *, quick: bool) -> Group:
    """What runs, and under it how far the whole is."""
    table = Table("running", title="quick scale" if quick else None, title_justify="left")
    for heading in ("epoch", "validation"):
        table.add_column(heading, justify="right")
    table.add_column("worker")
    for trial in status.running:
        accuracy = "" if trial.accuracy is None else f"{100 * trial.accuracy:.2f} %"
        table.add_row(trial.name, f"{trial.epoch}/{trial.epochs}", accuracy, trial.worker or "")
    return Group(table, *summary_lines(status))


def summary_lines(status: SweepStatus) -> list[str]:
    """How far, what failed, what is best, how long yet."""
    lines = [f"{len(status.done)} of {status.trials} done, {len(status.running)} running, {status.waiting} waiting"]
    if status.pruned:
        lines.append(f"{len(status.pruned)} ended early, below the median")
    lines += [f"failed: {name}: {error}" for name, error in status.failed.items()]
    if status.best:
        seeds = "1 seed" if status.best.seeds == 1 else f"{status.best.seeds} seeds"
        lines.append(f"best by validation: {status.best.name}, {100 * status.best.validation:.2f} % ({seeds})")
    if status.seconds_left is not None:
        lines.append(f"about {timedelta(seconds=round(status.seconds_left))} left")
    return lines


def news(before: SweepStatus | None, now: SweepStatus) -> list[str]:
    """What has happened since `before`, a line each."""
    if before is None:
        return summary_lines(now)
    running = {trial.name: trial for trial in before.running}
    lines = []
    for trial in now.running:
        last = running.get(trial.name)
        if trial.accuracy is not None and (last is None or trial.epoch > last.epoch):
            lines.append(f"{trial.name}: epoch {trial.epoch}/{trial.epochs}, validation {100 * trial.accuracy:.2f} %")
        elif last is None:
            lines.append(f"{trial.name}: running")
    settled = [f"{name}: done, validation {100 * now.done[name]:.2f} %" for name in now.done if name not in before.done]
    settled += [f"{name}: ended early" for name in now.pruned if name not in before.pruned]
    settled += [f"{name}: failed: {error}" for name, error in now.failed.items() if name not in before.failed]
    if settled:
        left = "" if now.seconds_left is None else f", about {timedelta(seconds=round(now.seconds_left))} left"
        settled.append(f"{len(now.done)} of {now.trials} done{left}")
    return lines + settled
