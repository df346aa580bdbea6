"""The progress of a sweep, displayed as a live table on a terminal and as plain lines elsewhere."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass
from statistics import fmean
from typing import Self

from optuna.exceptions import StorageInternalError
from rich.console import Group
from rich.live import Live
from rich.table import Table

from deeplda.errors import InputError, one_line
from deeplda.experiments.results import TrialResult
from deeplda.experiments.sweep_definition import TrialSettings, trial_name
from deeplda.experiments.sweep_folder import Sweep
from deeplda.experiments.trial_queue import Attempt
from deeplda.formatting import counted, duration, percent
from deeplda.printing import plain_console

_SECONDS_BETWEEN_UPDATES = 1.0


@dataclass(frozen=True)
class RunningTrial:
    """A trial that is being trained; `accuracy` is its validation accuracy after `epoch` epochs."""

    name: str
    worker: str
    epoch: int
    epochs: int
    accuracy: float | None


@dataclass(frozen=True)
class BestTrials:
    """The settings with the best mean validation accuracy over their seeds."""

    name: str
    settings: TrialSettings
    validation: float
    seeds: int


@dataclass(frozen=True)
class SweepStatus:
    """The state of a sweep at one moment. All text that others wrote to the storage is printable.

    Attributes:
        done: validation accuracy by trial name.
        failed: error message by trial name.
        seconds_left: the estimated time left; None unless at least one trial is done and another is running.
    """

    trials: int
    waiting: int
    running: tuple[RunningTrial, ...]
    done: dict[str, float]
    pruned: tuple[str, ...]
    failed: dict[str, str]
    best: BestTrials | None
    seconds_left: float | None


def sweep_status(sweep: Sweep) -> SweepStatus:
    """Return the current state of a sweep, across all its workers."""
    current = sweep.current_attempts()
    results = {name: attempt.result for name, attempt in current.items() if attempt.status == "done" and attempt.result}
    running = tuple(_running(sweep, attempt) for attempt in current.values() if attempt.status == "running")
    pruned = tuple(name for name, attempt in current.items() if attempt.status == "pruned")
    failed = {name: one_line(attempt.error or "") for name, attempt in current.items() if attempt.status == "failed"}
    waiting = len(sweep.trials) - len(results) - len(running) - len(pruned) - len(failed)
    return SweepStatus(
        trials=len(sweep.trials),
        waiting=waiting,
        running=running,
        done={name: result.validation for name, result in results.items()},
        pruned=pruned,
        failed=failed,
        best=_best(current, results),
        seconds_left=_seconds_left(running, waiting, results),
    )


def _running(sweep: Sweep, attempt: Attempt) -> RunningTrial:
    epochs = sweep.definition.config(sweep.trials[attempt.name]).epochs
    epoch = max(attempt.accuracy, default=0)
    return RunningTrial(attempt.name, one_line(attempt.worker or ""), epoch, epochs, attempt.accuracy.get(epoch))


def _best(current: dict[str, Attempt], results: dict[str, TrialResult]) -> BestTrials | None:
    """Return the best settings among those with the most seeds; with few seeds, the luckiest settings would win."""
    groups: dict[str, list[str]] = {}
    for name in results:
        groups.setdefault(json.dumps(_without_seed(current[name]), sort_keys=True), []).append(name)
    if not groups:
        return None
    scored = [(len(names), fmean(results[name].validation for name in names), names[0]) for names in groups.values()]
    seeds, validation, first = max(scored, key=lambda found: found[:2])
    settings = _without_seed(current[first])
    return BestTrials(first if current[first].drawn else trial_name(settings), settings, validation, seeds)


def _without_seed(attempt: Attempt) -> TrialSettings:
    return {name: value for name, value in attempt.settings.items() if name != "seed"}


def _seconds_left(running: tuple[RunningTrial, ...], waiting: int, done: dict[str, TrialResult]) -> float | None:
    if not done or not running:
        return None
    left = waiting + sum(1 - trial.epoch / trial.epochs for trial in running)
    return left * fmean(result.seconds for result in done.values()) / len(running)


class SweepDisplay:
    """A context manager that shows the progress of a sweep on stderr while its block runs."""

    def __init__(self, sweep: Sweep, *, quiet: bool = False) -> None:
        self.console = plain_console(sys.stderr, soft_wrap=True, quiet=quiet)
        self._sweep, self._quick = sweep, sweep.definition.scale == "quick"
        self._seen: SweepStatus | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        terminal = self.console.is_terminal and not quiet
        self._live = Live(console=self.console, refresh_per_second=2, transient=True) if terminal else None

    def __enter__(self) -> Self:
        mark = " (quick scale)" if self._quick else ""
        self.console.print(
            f"sweep {one_line(str(self._sweep.folder))}{mark}: {counted(len(self._sweep.trials), 'trial')}"
        )
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
            self._over.wait(_SECONDS_BETWEEN_UPDATES)

    def _show(self) -> None:
        try:
            status = sweep_status(self._sweep)
        except (StorageInternalError, InputError, OSError):
            # The workers decide when to give up on the storage.
            return
        if self._live:
            self._live.update(status_table(status, quick=self._quick))
        else:
            for line in news(self._seen, status):
                self.console.print(line)
        self._seen = status


def status_table(status: SweepStatus, *, quick: bool) -> Group:
    """Return a table of the running trials, followed by the summary."""
    table = Table("running", title="quick scale" if quick else None, title_justify="left")
    for heading in ("epoch", "validation"):
        table.add_column(heading, justify="right")
    table.add_column("worker")
    for trial in status.running:
        accuracy = "" if trial.accuracy is None else percent(trial.accuracy)
        table.add_row(trial.name, f"{trial.epoch}/{trial.epochs}", accuracy, trial.worker)
    return Group(table, *summary_lines(status))


def summary_lines(status: SweepStatus) -> list[str]:
    """Describe the progress, the failed trials, the best settings and the time left."""
    lines = [f"{len(status.done)} of {status.trials} done, {len(status.running)} running, {status.waiting} waiting"]
    if status.pruned:
        lines.append(f"{len(status.pruned)} stopped early for being below the median")
    lines += [f"failed: {name}: {error}" for name, error in status.failed.items()]
    if best := status.best:
        lines.append(f"best by validation: {best.name}, {percent(best.validation)} ({counted(best.seeds, 'seed')})")
    if status.seconds_left is not None:
        lines.append(f"about {duration(status.seconds_left)} left")
    return lines


def news(before: SweepStatus | None, now: SweepStatus) -> list[str]:
    """Describe the changes since `before`, with one line per event."""
    if before is None:
        return summary_lines(now)
    running = {trial.name: trial for trial in before.running}
    lines = []
    for trial in now.running:
        last = running.get(trial.name)
        if trial.accuracy is not None and (last is None or trial.epoch > last.epoch):
            lines.append(f"{trial.name}: epoch {trial.epoch}/{trial.epochs}, validation {percent(trial.accuracy)}")
        elif last is None:
            lines.append(f"{trial.name}: running")
    settled = [f"{name}: done, validation {percent(now.done[name])}" for name in now.done if name not in before.done]
    settled += [f"{name}: stopped early" for name in now.pruned if name not in before.pruned]
    settled += [f"{name}: failed: {error}" for name, error in now.failed.items() if name not in before.failed]
    if settled:
        left = "" if now.seconds_left is None else f", about {duration(now.seconds_left)} left"
        settled.append(f"{len(now.done)} of {now.trials} done{left}")
    return lines + settled
