"""The training loop, to be read from top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from deeplda.data.dataset import Data, Part
from deeplda.device import seeded
from deeplda.errors import InputError, StoppedError, while_training
from deeplda.sampling import ShuffledBatchSampler, StratifiedBatchSampler, build_sampler, stratified_sample
from deeplda.training.batches import Batch, BatchSource
from deeplda.training.checkpoint import Counters, Snapshot
from deeplda.training.config import LoopConfig
from deeplda.training.evaluation import Watch
from deeplda.training.margin_sums import MarginSums
from deeplda.training.metrics import EpochRow, FinalScores, ReconstructionScores, Scores, Spectrum, SummaryRow
from deeplda.training.optim import epochs_to_half_rate, learning_rate
from deeplda.training.parallel import ALONE, World
from deeplda.training.progress import Progress
from deeplda.training.run_folder import Run, Writeable

# After each epoch, predictors are fitted on at most this many training samples; at the end, on all of them.
FIT_SAMPLES = 5_000
_SEED_STRIDE = 1_000_003
_RANK_STRIDE = 2**52


class Trainee(Protocol):
    """A network with its criterion and optimiser, which the loop trains.

    Attributes:
        trained: the module that contains all trained parameters.
    """

    @property
    def trained(self) -> nn.Module: ...
    @property
    def optimizer(self) -> torch.optim.Optimizer: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def margins(self) -> MarginSums | None:
        """The margins of the training samples so far, to which each step adds; None if there are no classes."""

    @property
    def lda_width(self) -> int | None:
        """The width of the features if the criterion is an LDA loss, which depends on the batches; otherwise None."""

    def step(self, batch: Batch, learning_rate: float) -> float:
        """Take one optimiser step and return the loss before it."""

    def regroup(self, data: Data, epoch: int) -> bool:
        """Find new labels for the training set if that is due before `epoch`, counted from 0; return whether it was."""

    def grouped(self, data: Data) -> Data:
        """Return the data with the current labels; they are part of the state of `trained`."""

    def examine(self, fit_part: Part, validation: Part) -> tuple[Scores | ReconstructionScores | None, Spectrum]:
        """Return the scores after an epoch and the spectrum of its last batch; the scores select the best epoch."""

    def finish(self, data: Data, watch: Watch) -> Writeable:
        """Return the finished model, with the current weights."""

    def score(self, data: Data, watch: Watch) -> FinalScores:
        """Return the scores of the finished model."""

    def flops(self, sample_shape: tuple[int, ...]) -> int:
        """Return the number of floating-point operations needed to train on one sample once."""

    def describe_step(self) -> str:
        """Return a few numbers about the last step, for the progress bar."""


def train(
    config: LoopConfig,
    data: Data,
    trainee: Trainee,
    run: Run,
    progress: Progress,
    stop: Callable[[], bool] = lambda: False,
    world: World = ALONE,
) -> SummaryRow:
    """Train to the end, save and score the model, and return the summary row.

    The arguments are the same as in `run_epochs`. If `stop` returns True after the predictors have been fitted or the
    model has been scored, StoppedError is raised as well.
    """

    def stop_here(activity: str) -> None:
        if world.any(stop()):
            raise StoppedError(f"stopped after {activity}")

    counters = run_epochs(config, data, trainee, run, progress, stop, world)
    data = trainee.grouped(data)
    start = time.monotonic()
    with while_training():
        model = trainee.finish(data, progress.watch)
    if counters.epoch == 0:
        counters.seconds = time.monotonic() - start
    stop_here("fitting the predictors")
    run.save_model(model)
    if trainee.margins is not None:
        run.save_margins(trainee.margins.means())
    with while_training():
        scores = trainee.score(data, progress.watch)
    summary = SummaryRow(
        epochs=counters.epoch,
        best_epoch=counters.best_epoch,
        seconds=round(counters.seconds, 3),
        flops=counters.epoch * len(data.train) * trainee.flops(data.sample_shape),
        **{name: getattr(scores, name) for name in scores.model_fields_set},
    )
    run.log(summary)
    stop_here("scoring")
    return summary


def run_epochs(
    config: LoopConfig,
    data: Data,
    trainee: Trainee,
    run: Run,
    progress: Progress,
    stop: Callable[[], bool] = lambda: False,
    world: World = ALONE,
) -> Counters:
    """Train to the last epoch, resuming from the newest checkpoint if there is one; leave the best weights loaded.

    The best epoch is one of those that `config.evaluates`, and patience ends a run only after one of them. Without a
    validation set, the last epoch counts as the best. Without epochs, the network stays as it is. Each batch is split
    among the processes of a `world`; only the first process owns the run.

    Every step derives its random numbers from the seed and its own number, so a run that was killed and resumed ends
    with the same weights as an uninterrupted one, and trainings in several threads do not disturb each other: their
    steps are taken one at a time. With several processes, the running means of batch normalisation may differ. Soon
    after `stop` returns True, the state is saved and StoppedError is raised.
    """
    if config.stretches[-1] == 0:
        counters = _resume(run, trainee, world)
        progress.start(config, data, counters, run.notes)
        progress.close()
        return counters
    epochs = _Epochs(config, data, trainee, run, progress, stop, world)
    while epochs.remain():
        steps = epochs.train_one()
        epochs.finish_one(steps)
    progress.close()
    return epochs.load_best()


class _Epochs:
    """The epochs of a training, with its state between two steps. The arguments are the same as in `run_epochs`.

    Attributes:
        counters: how far the training is, which is saved with each checkpoint.
        data: the data with the current labels.
        modules: the trained module and all modules in it.
        saved: the time of the last checkpoint, on the monotonic clock.
        started: the time at which an uninterrupted training would have started, on the same clock.
    """

    def __init__(
        self,
        config: LoopConfig,
        data: Data,
        trainee: Trainee,
        run: Run,
        progress: Progress,
        stop: Callable[[], bool],
        world: World,
    ) -> None:
        self.config, self.trainee, self.run, self.progress = config, trainee, run, progress
        self.stop, self.world = stop, world
        self.counters = _resume(run, trainee, world)
        self.data = trainee.grouped(data)
        self.source = BatchSource(self.data.train, trainee.device, config)
        self.sampler, self.fit_part = self._sampler(), self._fit_part()
        self.modules = tuple(trainee.trained.modules())
        self.saved = time.monotonic()
        self.started = self.saved - self.counters.seconds
        progress.start(config, self.data, self.counters, run.notes)
        if isinstance(self.sampler, StratifiedBatchSampler) and self.sampler.samples_per_class > 1:
            progress.note(_subset_note(self.sampler))

    def remain(self) -> bool:
        """Return whether there is another epoch to train: patience can end the training before the last one."""
        config, epoch = self.config, self.counters.epoch
        if config.patience is None or not config.evaluates(epoch):
            return epoch < config.stretches[-1]
        waited = epoch - max(self.counters.risen_epoch, epochs_to_half_rate(config))
        return epoch < config.stretches[-1] and waited < config.patience

    def train_one(self) -> int:
        """Take the remaining steps of the epoch, with a checkpoint whenever one is due; return how many it has in all.

        Raises StoppedError if the training has to stop before the last of them.
        """
        if self.counters.step == 0:
            self._regroup()
        counters, batches = self.counters, self._batches()
        # Usually all are, and `train` takes ten times as long as looking.
        if not all(module.training for module in self.modules):
            self.trainee.trained.train()
        for indices in batches[counters.step :]:
            step = counters.epoch * len(batches) + counters.step
            rate = learning_rate(self.config, step, len(batches))
            with self._seeded(step):
                loss = self.trainee.step(self.source.batch(self.world.share(indices), counters.epoch), rate)
            counters.step += 1
            counters.loss_sum += loss
            self.progress.step(counters, len(batches), len(indices), loss, self.trainee.describe_step)
            stopping = self.world.any(self.stop())
            due = stopping or time.monotonic() - self.saved > self.config.checkpoint_seconds
            if due and counters.step < len(batches):
                counters.seconds = time.monotonic() - self.started
                self._save_last(self._snapshot())
                if stopping:
                    raise StoppedError(f"stopped in epoch {counters.epoch + 1}; the state is saved")
        return len(batches)

    def finish_one(self, steps: int) -> None:
        """Score the epoch, given its number of steps, log its row and save a checkpoint.

        Raises StoppedError if the training has to stop.
        """
        config, data, trainee = self.config, self.data, self.trainee
        mean_loss = self.counters.loss_sum / steps
        next_step = (self.counters.epoch + 1) * steps
        scored = data.val if config.evaluates(self.counters.epoch + 1) else data.val.take(np.arange(0))
        # Without samples to score, no random numbers are drawn.
        with while_training(), self._seeded(next_step) if len(scored) else nullcontext():
            scores, spectrum = trainee.examine(self.fit_part, scored)
        score, seconds = None if scores is None else scores.score, time.monotonic() - self.started
        counters = _next_epoch(self.counters, score, seconds, may_be_best=len(scored) == len(data.val))
        self.counters = counters
        row = EpochRow(
            epoch=counters.epoch,
            loss=mean_loss,
            steps=steps,
            learning_rate=learning_rate(config, next_step - 1, steps),
            **spectrum,
            validation=scores,
            seconds=round(counters.seconds, 3),
        )
        if trainee.margins is not None:
            trainee.margins.gather(self.world)
        self._save_epoch(row, is_scored=scores is not None)
        self.progress.epoch(row, counters)
        if self.world.any(self.stop()):
            raise StoppedError(f"stopped after epoch {counters.epoch}; the state is saved")

    def load_best(self) -> Counters:
        """Load the weights of the best epoch, and return the counters."""
        best, counters = self.world.in_first(self.run.best), self.counters
        if best is None:
            return counters
        if best.counters.epoch > counters.epoch:
            what = f"the best checkpoint is from epoch {best.counters.epoch}, after the last epoch {counters.epoch}"
            raise InputError(f"{what}: choose another --run folder")
        best.restore(self.trainee.trained)
        # An epoch repeated after a kill, on different hardware, may differ from the one that was saved as the best.
        counters.best_epoch = best.counters.epoch
        return counters

    def _regroup(self) -> None:
        """Train with new labels from this epoch on, if they are due."""
        # A network may draw random numbers in eval mode too.
        with while_training(), self._seeded(self.counters.epoch):
            regrouped = self.trainee.regroup(self.data, self.counters.epoch)
        if regrouped:
            self.data = self.trainee.grouped(self.data)
            self.source.relabel(self.data.train.labels)
            self.sampler, self.fit_part = self._sampler(), self._fit_part()

    def _batches(self) -> list[NDArray[np.int64]]:
        """Return the places of the samples of each batch of the epoch. Raises InputError if none are left to train."""
        self.sampler.set_epoch(self.counters.epoch)
        batches = self.sampler.batches()
        if self.counters.step >= len(batches):
            where = f"step {self.counters.step}, but an epoch has {len(batches)} steps"
            raise InputError(f"the checkpoint is at {where}: choose another --run folder")
        return batches

    def _sampler(self) -> ShuffledBatchSampler | StratifiedBatchSampler:
        """Return the sampler of the run. It yields complete batches, which the loop splits among the processes."""
        config, labels = self.config, self.data.train.labels
        return build_sampler(
            config.sampler, labels, config.batch_size, seed=config.seed, lda_width=self.trainee.lda_width
        )

    def _fit_part(self) -> Part:
        """Return the training samples on which predictors are fitted after each epoch."""
        train = self.data.train
        return train.take(stratified_sample(train.labels, FIT_SAMPLES, self.config.seed))

    def _seeded(self, step: int) -> AbstractContextManager[None]:
        """Draw the random numbers of a step, counted from 0 over the whole run; each process has its own."""
        seed = self.config.seed * _SEED_STRIDE + step + self.world.rank * _RANK_STRIDE
        return seeded(seed, self.trainee.device)

    def _snapshot(self) -> Snapshot:
        return Snapshot.of(self.trainee.trained, self.trainee.optimizer, self.counters, self.trainee.margins)

    def _save_epoch(self, row: EpochRow, *, is_scored: bool) -> None:
        """Log an epoch and save its checkpoint.

        A run in memory keeps the best epoch only. Without scores, that is the last one, whose weights are loaded.
        """
        if not self.run.resumable and not is_scored:
            self.run.log(row)
            return
        snapshot = self._snapshot()
        if self.counters.best_epoch == self.counters.epoch:
            self.run.save("best", snapshot)
        self.run.log(row)
        self._save_last(snapshot)

    def _save_last(self, snapshot: Snapshot) -> None:
        self.run.save("last", snapshot)
        self.saved = time.monotonic()


def _resume(run: Run, trainee: Trainee, world: World) -> Counters:
    """Restore the newest intact checkpoint, if there is one, and return its counters."""
    snapshot = world.in_first(run.latest)
    if snapshot is None:
        run.keep_rows(0)
        return Counters()
    snapshot.restore(trainee.trained, trainee.optimizer)
    if trainee.margins is not None and world.first:
        snapshot.restore_margins(trainee.margins)
    run.keep_rows(snapshot.counters.epoch)
    return snapshot.counters


def _subset_note(sampler: StratifiedBatchSampler) -> str:
    some, classes = sampler.batch_size // sampler.samples_per_class, len(np.unique(sampler.labels))
    what = f"a batch of {sampler.batch_size} samples is too small for {classes:,} classes"
    return f"{what}: each batch has about {some} of them, with about {sampler.samples_per_class} samples each"


def _next_epoch(counters: Counters, score: float | None, seconds: float, *, may_be_best: bool) -> Counters:
    """Return the counters after an epoch, which `may_be_best` unless it was not scored although others are.

    Ties for the best epoch go to the latest one; without scores, the best epoch is always the latest.
    """
    before = counters.best_score
    better = may_be_best and (score is None or before is None or score >= before)
    rose = score is not None and (before is None or score > before)
    return Counters(
        epoch=counters.epoch + 1,
        seconds=seconds,
        best_epoch=counters.epoch + 1 if better else counters.best_epoch,
        risen_epoch=counters.epoch + 1 if rose else counters.risen_epoch,
        best_score=score if better else before,
    )
