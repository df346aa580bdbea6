"""The training loop: read it from top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, Protocol

import torch
from torch import nn

from deeplda.data import Data
from deeplda.errors import StoppedError
from deeplda.model import Model
from deeplda.objective import RDLDALoss
from deeplda.training.assembly import Trainee, assemble
from deeplda.training.batches import BatchSource
from deeplda.training.checkpoint import Counters, Snapshot
from deeplda.training.config import RunConfig
from deeplda.training.evaluation import evaluate
from deeplda.training.progress import Progress
from deeplda.training.sampler import epoch_batches, stratified_sample
from deeplda.training.schedule import learning_rate

# During training the predictors are fitted on at most this many training samples; the final ones on all.
_FIT_SAMPLES = 5_000
_SEED_STRIDE = 1_000_003


class Run(Protocol):
    """Where a run is kept: a `RunFolder` on disk, or a `MemoryRun`."""

    notes: list[str]

    def latest(self) -> Snapshot | None: ...
    def best(self) -> Snapshot: ...
    def save(self, name: Literal["last", "best"], snapshot: Snapshot) -> None: ...
    def log(self, row: dict[str, Any]) -> None: ...
    def keep_rows(self, epochs: int) -> None: ...
    def save_model(self, model: Model) -> None: ...


def train(
    config: RunConfig,
    data: Data,
    run: Run,
    progress: Progress,
    stop: Callable[[], bool] = lambda: False,
    network: nn.Module | None = None,
) -> tuple[Model, dict[str, Any]]:
    """Train from the run's newest checkpoint, or from the start, to the end; return the model and the summary row.

    `network` is trained in place of the one the settings name. Without a validation part the last epoch is kept.

    Every step draws its random numbers from the seed and its own number, so a run that was killed and resumed ends
    in the same weights as one that was not. Raises StoppedError soon after `stop` says so, with the state saved.
    """
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        trainee = assemble(config, data, network)
        counters = _take_up(run, trainee)
        source = BatchSource(data.train, trainee.device, flip=config.flip, translate=config.translate)
        fit_part = data.train.take(stratified_sample(data.train.labels, _FIT_SAMPLES, config.seed))
        clock = _Clock(counters.seconds)
        progress.start(config, data, counters, run.notes)

        while counters.epoch < config.epochs and not _out_of_patience(config, counters):
            batches = epoch_batches(
                data.train.labels, config.batch_size, kind=config.sampler, seed=config.seed, epoch=counters.epoch
            )
            trainee.trained.train()
            for places in batches[counters.step :]:
                step = counters.epoch * len(batches) + counters.step
                torch.manual_seed(config.seed * _SEED_STRIDE + step)
                rate = learning_rate(config, step, len(batches))
                loss = trainee.step(*source.batch(places), rate)
                counters.step += 1
                counters.loss_sum += loss
                progress.step(counters, len(batches), len(places), loss, trainee.criterion)
                stopping = stop()
                if counters.step < len(batches) and (stopping or clock.checkpoint_due(config.checkpoint_seconds)):
                    counters.seconds = clock.total()
                    run.save("last", trainee.snapshot(counters))
                    clock.checkpoint()
                    if stopping:
                        raise StoppedError(f"stopped in epoch {counters.epoch + 1}, saved")

            row = {"kind": "epoch", "epoch": counters.epoch + 1, "loss": counters.loss_sum / len(batches)}
            row |= {"learning_rate": rate} | _spectrum(trainee.criterion)
            trainee.fit_predictors(fit_part)
            validation = evaluate(trainee.model, data.val)
            counters = _next_epoch(counters, validation, clock.total())
            row |= {"validation": validation, "seconds": round(counters.seconds, 3)}
            snapshot = trainee.snapshot(counters)
            if counters.best_epoch == counters.epoch:
                run.save("best", snapshot)
            run.log(row)
            run.save("last", snapshot)
            clock.checkpoint()
            progress.epoch(row, counters)
            if stop():
                raise StoppedError(f"stopped after epoch {counters.epoch}, saved")

        progress.close()
        return trainee.model, _finish(data, run, trainee, counters, progress)


def _take_up(run: Run, trainee: Trainee) -> Counters:
    """Restore the newest whole checkpoint, if there is one."""
    snapshot = run.latest()
    if snapshot is None:
        run.keep_rows(0)
        return Counters()
    snapshot.restore(trainee.trained, trainee.optimizer)
    run.keep_rows(snapshot.counters.epoch)
    return snapshot.counters


def _spectrum(criterion: nn.Module) -> dict[str, Any]:
    """What the last batch looked like to an LDA objective; nothing for cross-entropy."""
    if not isinstance(criterion, RDLDALoss):
        return {}
    seen = criterion.diagnostics
    return {"eigenvalues": seen.eigenvalues.tolist(), "selected": seen.selected, "dead_dims": seen.dead_dims}


def _next_epoch(counters: Counters, validation: dict[str, Any] | None, seconds: float) -> Counters:
    """The counters after an epoch; the last of equally good epochs is the best, and without validation the last."""
    accuracy = validation["accuracy"] if validation else counters.best_accuracy
    better = accuracy >= counters.best_accuracy
    return Counters(
        epoch=counters.epoch + 1,
        seconds=seconds,
        best_epoch=counters.epoch + 1 if better else counters.best_epoch,
        risen_epoch=counters.epoch + 1 if accuracy > counters.best_accuracy else counters.risen_epoch,
        best_accuracy=accuracy if better else counters.best_accuracy,
    )


def _out_of_patience(config: RunConfig, counters: Counters) -> bool:
    return config.patience is not None and counters.epoch - counters.risen_epoch >= config.patience


def _finish(data: Data, run: Run, trainee: Trainee, counters: Counters, progress: Progress) -> dict[str, Any]:
    """Best weights, predictors fitted on the whole training part, the model saved and scored."""
    run.best().restore(trainee.trained)
    trainee.fit_predictors(data.train, progress.watch)
    run.save_model(trainee.model)
    summary = {
        "kind": "summary",
        "epochs": counters.epoch,
        "best_epoch": counters.best_epoch,
        "seconds": round(counters.seconds, 3),
        "validation": evaluate(trainee.model, data.val),
        "test": evaluate(trainee.model, data.test, progress.watch),
        "class_names": list(data.class_names),
    }
    run.log(summary)
    return summary


class _Clock:
    """Seconds spent on a run over all its sessions, and since its last checkpoint."""

    def __init__(self, before: float) -> None:
        self._before, self._start = before, time.monotonic()
        self._checkpoint = self._start

    def total(self) -> float:
        return self._before + time.monotonic() - self._start

    def checkpoint_due(self, interval: float) -> bool:
        return time.monotonic() - self._checkpoint > interval

    def checkpoint(self) -> None:
        self._checkpoint = time.monotonic()
