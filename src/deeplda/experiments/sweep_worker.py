"""The workers of a sweep: each takes a trial from the queue, runs it to its end, and takes the next one.

Workers take over the trials of dead workers. A worker on the same machine is dead if no process holds its lock. For
workers on other machines, only the heartbeat in the storage is visible. Clocks are never compared: a worker counts as
dead if its heartbeat has not changed for a while by the observer's clock.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import resource_tracker
from pathlib import Path

import torch
from optuna import Study
from optuna.samplers import TPESampler
from optuna.trial import Trial

from deeplda.core.options import statistics_for
from deeplda.data import Data
from deeplda.errors import InputError, StoppedError, TrainingError, one_line, print_warning, unwritten
from deeplda.experiments.results import TrialResult, recorded_result, write_trials
from deeplda.experiments.sweep_definition import SweepDefinition, TrialSettings
from deeplda.experiments.sweep_folder import Sweep, exclusive, open_sweep, worker_lock
from deeplda.experiments.sweep_storage import reporting_lost_storage
from deeplda.experiments.trial_queue import Attempt, LostTrialError
from deeplda.experiments.worker_liveness import DeadWorkerDetector, heartbeat, this_machine
from deeplda.output_folder import is_locked
from deeplda.training.checkpoint import Counters
from deeplda.training.config import LoopConfig, RunConfig
from deeplda.training.metrics import EpochRow, Scores
from deeplda.training.pipeline import run_to_end
from deeplda.training.progress import Progress
from deeplda.training.stopping import TERMINAL_SIGNALS, asked_to_stop, blocked_in_children

_IDLE_SECONDS = 1.0
_LAM_RANGE = (1e-5, 1e-1)
_LEARNING_RATE_FACTOR = 10


class PrunedError(Exception):
    """The trial is stopped early because other trials are better."""


class TrialProgress(Progress):
    """Progress that prints nothing and passes each epoch's validation accuracy to `report`."""

    def __init__(self, report: Callable[[int, float], None]) -> None:
        self._report = report

    def start(self, config: LoopConfig, data: Data, counters: Counters, notes: list[str]) -> None:
        require_validation(data)
        super().start(config, data, counters, notes)

    def epoch(self, row: EpochRow, counters: Counters) -> None:
        # With subclasses, an autoencoder is trained first, and its epochs have reconstruction scores instead.
        if isinstance(row.validation, Scores):
            self._report(counters.epoch, row.validation.accuracy)


def require_validation(data: Data) -> None:
    """Raise InputError if there is no validation set, which a sweep needs to compare trials."""
    if len(data.val) == 0:
        do = "add one or, if train_on_all is set, pass --no-train-on-all or set it to false in sweep.toml"
        raise InputError(f"{data.name} has no validation set, which a sweep needs to compare trials: {do}")


def work(sweep: Sweep, stop: Callable[[], bool]) -> None:
    """Run trials until all are settled or `stop` returns true.

    If stopped, the worker saves the current trial and enqueues it again. While other workers run the last trials, this
    worker waits, in case one of them dies.
    """

    def skip(name: str) -> bool:
        """Return whether a waiting trial cannot run now: it was added to the definition later, or its run is locked."""
        return name not in sweep.trials or _is_run_locked(sweep, name)

    with worker_lock(sweep.folder) as worker:
        detector = DeadWorkerDetector(sweep.folder)
        while not stop():
            for attempt in sweep.queue.attempts():
                if attempt.status == "running" and detector.is_dead(attempt):
                    sweep.queue.requeue_dead(attempt)
            claimed = sweep.queue.claim(worker, this_machine(), skip)
            if claimed is not None:
                _run(sweep, claimed, stop)
                update_trials_csv(sweep)
            elif sweep.settled():
                return
            else:
                time.sleep(_IDLE_SECONDS)
                # A worker may have died after ending an attempt but before enqueueing the trial again.
                sweep.queue.enqueue(sweep.trials)


def update_trials_csv(sweep: Sweep) -> None:
    """Rewrite trials.csv with all trials that have finished so far."""
    with exclusive(sweep.folder):
        write_trials(sweep.folder, sweep.definition)


def _is_run_locked(sweep: Sweep, name: str) -> bool:
    return bool(is_locked(sweep.run_folder(name) / ".lock"))


def _run(sweep: Sweep, attempt: Attempt, stop: Callable[[], bool]) -> None:
    """Run an attempt and record its outcome."""
    queue = sweep.queue

    def report(epoch: int, accuracy: float) -> None:
        if queue.report(attempt, epoch, accuracy):
            raise PrunedError

    # After a LostTrialError, another worker owns the trial and its checkpoints.
    with suppress(LostTrialError), heartbeat(lambda count: queue.annotate(attempt, "beat", count)) as lost:
        try:
            queue.finish(attempt, _train(sweep, attempt, TrialProgress(report), lambda: stop() or lost()))
        except PrunedError:
            queue.prune(attempt)
        except StoppedError:
            queue.requeue(attempt)
        except OSError:
            # The disk is usually full. Enqueue the trial again if that can still be written.
            with suppress(OSError):
                queue.requeue(attempt)
            raise
        except (InputError, TrainingError) as error:
            if _is_run_locked(sweep, attempt.name):
                queue.requeue(attempt)
            else:
                queue.fail(attempt, str(error))


def _train(sweep: Sweep, attempt: Attempt, progress: Progress, stop: Callable[[], bool]) -> TrialResult:
    """Start or resume the run of a trial."""
    # A grid's settings come from the definition, never from the storage, because others may write to the storage, and
    # settings can name code to run.
    own = sweep.trials[attempt.name]
    if (recorded := recorded_result(sweep.folder, sweep.definition, attempt.name)) is not None:
        return recorded
    if sweep.definition.search is not None:
        own = draw(sweep.queue.study, sweep.queue.trial_id(attempt), attempt.number, sweep.definition)
        sweep.queue.annotate(attempt, "settings", own)
    config, folder = sweep.definition.config(own), sweep.make_run_folder(attempt.name)
    if (folder / "run.toml").exists() and RunConfig.read(folder / "run.toml").to_toml() != config.to_toml():
        raise InputError(f"{folder} has a run with different settings: remove it, or choose another --sweep folder")
    summary = run_to_end(config, folder, progress, stop, stages=sweep.stages).summary
    if not isinstance(summary.validation, Scores):
        raise InputError(f"{folder} has no validation accuracy, which a sweep needs to compare trials")
    return TrialResult(validation=summary.validation.accuracy, seconds=summary.seconds)


def draw(study: Study, trial_id: int, number: int, definition: SweepDefinition) -> TrialSettings:
    """Draw the settings of a search trial with TPE, based on the finished trials.

    The sampler's seed combines the search's seed with the trial's number, so no two workers draw the same settings, and
    a search with one worker is reproducible.
    """
    assert definition.search is not None
    base = definition.config({})
    study.sampler = TPESampler(seed=definition.search.seed * 100_003 + number)
    trial = Trial(study, trial_id)
    rates = base.learning_rate / _LEARNING_RATE_FACTOR, base.learning_rate * _LEARNING_RATE_FACTOR
    return {
        "alpha": trial.suggest_float("alpha", 0.0, 1.0),
        "lam": trial.suggest_float("lam", *_LAM_RANGE, log=True),
        "learning_rate": trial.suggest_float("learning_rate", *rates, log=True),
        "statistic": trial.suggest_categorical("statistic", statistics_for(base.scatter)),
        "seed": definition.search.seed,
    }


def run_workers(folder: Path, url: str | None, count: int, stop: Callable[[], bool]) -> None:
    """Run `count` worker processes, with this process's threads split among them, until they end or `stop` is true."""
    context = multiprocessing.get_context("spawn")
    arguments = (folder, url, max(1, torch.get_num_threads() // count), os.getpid())
    processes = [context.Process(target=_worker_process, args=arguments) for _ in range(count)]
    # Started with the first worker, the resource tracker would unblock SIGINT.
    resource_tracker.ensure_running()
    # The workers do not get what a terminal sends to every process, because this process tells them to stop.
    with blocked_in_children(*TERMINAL_SIGNALS):
        for process in processes:
            process.start()
    try:
        while any(process.is_alive() for process in processes) and not stop():
            time.sleep(0.1)
        for process in processes:
            process.terminate()  # has no effect on a process that has ended
        for process in processes:
            process.join()
    except BaseException:
        for process in processes:
            process.kill()
        raise
    finally:
        for process in processes:
            process.join()


def _worker_process(folder: Path, url: str | None, threads: int, parent: int) -> None:
    """Run a worker until SIGTERM arrives or the parent process is gone."""
    torch.set_num_threads(threads)
    warnings.showwarning = print_warning
    with asked_to_stop(signal.SIGTERM) as stopped:
        try:
            with reporting_lost_storage(url):
                work(open_sweep(folder, url=url), lambda: stopped() or os.getppid() != parent)
        except (InputError, TrainingError) as error:
            sys.exit(f"deeplda: {one_line(str(error))}")
        except OSError as error:
            if (sentence := unwritten(error)) is None:
                raise
            sys.exit(f"deeplda: {sentence}")
        except KeyboardInterrupt:
            sys.exit(130)
