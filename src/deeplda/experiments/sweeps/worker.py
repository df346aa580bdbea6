"""A worker: takes a trial, runs it to its end, takes the next."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from deeplda.data import Data
from deeplda.errors import InputError, StoppedError, TrainingError
from deeplda.experiments.results import write_trials
from deeplda.experiments.sweeps.ledger import Attempt, LostError
from deeplda.experiments.sweeps.liveness import DeathWatch, Heart, Presence, is_locked
from deeplda.experiments.sweeps.search import draw
from deeplda.experiments.sweeps.storage import while_it_answers
from deeplda.experiments.sweeps.sweep import Sweep, alone
from deeplda.training.checkpoint import Counters
from deeplda.training.config import LoopConfig, RunConfig
from deeplda.training.metrics import EpochRow, Scores, SummaryRow
from deeplda.training.pipeline import run_to_end
from deeplda.training.progress import Progress

_IDLE_SECONDS = 1.0


class PrunedError(Exception):
    """The trial is not worth going on with."""


class TrialProgress(Progress):
    """Says nothing itself, and hands each epoch's validation accuracy on."""

    def __init__(self, report: Callable[[int, float], None]) -> None:
        self._report = report

    def start(self, config: LoopConfig, data: Data, counters: Counters, notes: list[str]) -> None:
        require_validation(config, data)
        super().start(config, data, counters, notes)

    def epoch(self, row: EpochRow, counters: Counters) -> None:
        super().epoch(row, counters)
        # An autoencoder, trained first for subclasses, has an error instead.
        if isinstance(row.validation, Scores):
            self._report(counters.epoch, row.validation.accuracy)


def require_validation(config: LoopConfig, data: Data) -> None:
    """Raise InputError where there is nothing to choose by."""
    if config.train_on_all:
        raise InputError(
            "a sweep chooses by the validation part that train_on_all trains on: pass --no-train-on-all, or set it to "
            "false in sweep.toml"
        )
    if len(data.val) == 0:
        raise InputError(f"{data.name} has no validation part, by which a sweep chooses: give it one")


def work(sweep: Sweep, stop: Callable[[], bool]) -> None:
    """Run trials until all are settled or `stop` says so; the trial in hand then is saved and waits again.

    While others run the last trials this worker stays, to take up what a dead one leaves.
    """
    with Presence(sweep.folder) as presence, while_it_answers():
        watch = DeathWatch(sweep.folder)
        while not stop():
            _bury_the_dead(sweep, watch)
            attempt = sweep.ledger.claim(presence.name, presence.machine, lambda name: _not_now(sweep, name))
            if attempt is not None:
                _run(sweep, attempt, stop)
                record(sweep)
            elif sweep.settled():
                return
            else:
                time.sleep(_IDLE_SECONDS)
                # A worker may have died between ending an attempt and having the trial wait again.
                sweep.ledger.enqueue(sweep.trials)


def record(sweep: Sweep) -> None:
    """Write trials.csv anew, with all trials that are finished by now."""
    with alone(sweep.folder):
        write_trials(sweep.folder, sweep.definition)


def _bury_the_dead(sweep: Sweep, watch: DeathWatch) -> None:
    for attempt in sweep.ledger.attempts():
        if attempt.status == "running" and watch.dead(attempt):
            sweep.ledger.bury(attempt)


def _not_now(sweep: Sweep, name: str) -> bool:
    """Whether a waiting trial is to be left: its run is still held, or the definition was extended since we read it."""
    return name not in sweep.trials or _run_held(sweep, name)


def _run_held(sweep: Sweep, name: str) -> bool:
    return bool(is_locked(sweep.run_folder(name) / ".lock"))


def _run(sweep: Sweep, attempt: Attempt, stop: Callable[[], bool]) -> None:
    """Bring an attempt to its end, one way or another."""
    ledger = sweep.ledger

    def report(epoch: int, accuracy: float) -> None:
        if ledger.report(attempt, epoch, accuracy):
            raise PrunedError

    try:
        with Heart(lambda count: ledger.note(attempt, "beat", count)) as heart:
            try:
                summary = _summary(sweep, attempt, TrialProgress(report), lambda: stop() or heart.lost)
                ledger.finish(attempt, _result(summary))
            except PrunedError:
                ledger.prune(attempt)
            except StoppedError:
                ledger.give_back(attempt)
            except OSError:
                # A full disk, mostly. Whoever goes on finds the trial waiting if that can still be written down.
                with suppress(OSError):
                    ledger.give_back(attempt)
                raise
            except (InputError, TrainingError) as error:
                if _run_held(sweep, attempt.name):
                    ledger.give_back(attempt)
                else:
                    ledger.fail(attempt, str(error))
    except LostError:
        # Another worker has the trial now, and its checkpoints.
        return


def _summary(sweep: Sweep, attempt: Attempt, progress: Progress, stop: Callable[[], bool]) -> SummaryRow:
    """Train, or go on training, the run of a trial."""
    # Of a grid not as the storage has them: others may write there, and settings can name code.
    own = sweep.trials[attempt.name]
    if sweep.definition.search is not None:
        own = draw(sweep.ledger.study, sweep.ledger.trial_id(attempt), attempt.number, sweep.definition)
        sweep.ledger.note(attempt, "settings", own)
    config, folder = sweep.definition.config(own), sweep.run_folder(attempt.name)
    _require_same(config, folder)
    return run_to_end(config, folder, progress, stop, stages=sweep.folder / "stages").summary


def _require_same(config: RunConfig, folder: Path) -> None:
    file = folder / "run.toml"
    if file.exists() and RunConfig.read(file).to_toml() != config.to_toml():
        raise InputError(f"{folder} holds a run with other settings: remove it, or choose another --sweep")


def _result(summary: SummaryRow) -> dict[str, Any]:
    if not isinstance(summary.validation, Scores):
        raise InputError("the run has no validation accuracy, by which a sweep chooses")
    return {"validation": summary.validation.accuracy, "seconds": summary.seconds}
