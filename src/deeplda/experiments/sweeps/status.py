"""How far a sweep is: what runs, what is done, what is best, what is left."""

from __future__ import annotations

import json
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from deeplda.experiments.sweeps.definition import trial_name
from deeplda.experiments.sweeps.ledger import Attempt
from deeplda.experiments.sweeps.sweep import Sweep


@dataclass(frozen=True)
class Running:
    """A trial under way; `accuracy` is on validation after its last epoch."""

    name: str
    worker: str | None
    epoch: int
    epochs: int
    accuracy: float | None


@dataclass(frozen=True)
class Best:
    """The setting with the best mean validation accuracy over its seeds."""

    name: str
    settings: dict[str, Any]
    validation: float
    seeds: int


@dataclass(frozen=True)
class SweepStatus:
    """A sweep at one moment. `seconds_left` is None until a trial is done, or where none runs."""

    trials: int
    waiting: int
    running: tuple[Running, ...]
    done: dict[str, float]
    pruned: tuple[str, ...]
    failed: dict[str, str]
    best: Best | None
    seconds_left: float | None


def sweep_status(sweep: Sweep) -> SweepStatus:
    """How far the sweep is now, over all its workers."""
    standings = sweep.standings()

    def those(status: str) -> dict[str, Attempt]:
        return {name: attempt for name, attempt in standings.items() if attempt.status == status}

    running, done = tuple(_running(sweep, attempt) for attempt in those("running").values()), those("done")
    settled = len(done) + len(those("pruned")) + len(those("failed"))
    waiting = len(sweep.trials) - settled - len(running)
    return SweepStatus(
        trials=len(sweep.trials),
        waiting=waiting,
        running=running,
        done={name: _result(attempt)["validation"] for name, attempt in done.items()},
        pruned=tuple(those("pruned")),
        failed={name: attempt.error or "" for name, attempt in those("failed").items()},
        best=_best(done),
        seconds_left=_seconds_left(running, waiting, done),
    )


def _running(sweep: Sweep, attempt: Attempt) -> Running:
    epochs = sweep.definition.config(sweep.trials[attempt.name]).epochs
    epoch = max(attempt.accuracy, default=0)
    return Running(attempt.name, attempt.worker, epoch, epochs, attempt.accuracy.get(epoch))


def _best(done: dict[str, Attempt]) -> Best | None:
    """Chosen by validation among the settings that have the most seeds: of a few, the luckiest would win."""
    groups: dict[str, list[Attempt]] = {}
    for attempt in done.values():
        groups.setdefault(json.dumps(_without_seed(attempt), sort_keys=True), []).append(attempt)
    most = max(map(len, groups.values()), default=0)
    full = [group for group in groups.values() if len(group) == most]
    if not full:
        return None
    means = [fmean(_result(attempt)["validation"] for attempt in group) for group in full]
    group = full[means.index(max(means))]
    settings = _without_seed(group[0])
    name = group[0].name if group[0].drawn else trial_name(settings)
    return Best(name, settings, max(means), most)


def _without_seed(attempt: Attempt) -> dict[str, Any]:
    return {name: value for name, value in attempt.settings.items() if name != "seed"}


def _seconds_left(running: tuple[Running, ...], waiting: int, done: dict[str, Attempt]) -> float | None:
    if not done or not running:
        return None
    left = waiting + sum(1 - trial.epoch / trial.epochs for trial in running)
    return left * fmean(_result(attempt)["seconds"] for attempt in done.values()) / len(running)


def _result(attempt: Attempt) -> dict[str, Any]:
    assert attempt.result is not None
    return attempt.result
