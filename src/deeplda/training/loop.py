"""The training loop, to be read from top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
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

    The arguments are the same as in `run_epochs`.
    """
    counters = run_epochs(config, data, trainee, run, progress, stop, world)
    data = trainee.grouped(data)
    start = time.monotonic()
    with while_training():
        model = trainee.finish(data, progress.watch)
    if counters.epoch == 0:
        counters.seconds = time.monotonic() - start
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
    counters = _resume(run, trainee, world)
    if config.stretches[-1] == 0:
        progress.start(config, data, counters, run.notes)
        progress.close()
        return counters
    data = trainee.grouped(data)
    source = BatchSource(data.train, trainee.device, config)
    sampler, fit_part, nothing = _sampler(config, data, trainee), _fit_part(config, data), data.val.take(np.arange(0))
    saved = time.monotonic()
    start = saved - counters.seconds
    progress.start(config, data, counters, run.notes)
    if isinstance(sampler, StratifiedBatchSampler) and sampler.samples_per_class > 1:
        progress.note(_subset_note(sampler))

    last = config.stretches[-1]
    patience = last if config.patience is None else config.patience
    waited_from = epochs_to_half_rate(config)
    while counters.epoch < last and not (
        config.evaluates(counters.epoch) and counters.epoch - max(counters.risen_epoch, waited_from) >= patience
    ):
        if counters.step == 0:
            # A network may draw random numbers in eval mode too.
            with while_training(), seeded(_step_seed(config, counters.epoch, world), trainee.device):
                regrouped = trainee.regroup(data, counters.epoch)
            if regrouped:
                data = trainee.grouped(data)
                source.relabel(data.train.labels)
                sampler, fit_part = _sampler(config, data, trainee), _fit_part(config, data)
        sampler.set_epoch(counters.epoch)
        batches = sampler.batches()
        if counters.step >= len(batches):
            where = f"step {counters.step}, but an epoch has {len(batches)} steps"
            raise InputError(f"the checkpoint is at {where}: choose another --run folder")
        trainee.trained.train()
        for indices in batches[counters.step :]:
            step = counters.epoch * len(batches) + counters.step
            rate = learning_rate(config, step, len(batches))
            with seeded(_step_seed(config, step, world), trainee.device):
                loss = trainee.step(source.batch(world.share(indices), counters.epoch), rate)
            counters.step += 1
            counters.loss_sum += loss
            progress.step(counters, len(batches), len(indices), loss, trainee.describe_step)
            stopping = world.any(stop())
            due = stopping or time.monotonic() - saved > config.checkpoint_seconds
            if due and counters.step < len(batches):
                counters.seconds = time.monotonic() - start
                run.save("last", _snapshot(trainee, counters))
                saved = time.monotonic()
                if stopping:
                    raise StoppedError(f"stopped in epoch {counters.epoch + 1}; the state is saved")

        mean_loss = counters.loss_sum / len(batches)
        scored = data.val if config.evaluates(counters.epoch + 1) else nothing
        with while_training(), seeded(_step_seed(config, step + 1, world), trainee.device):
            scores, spectrum = trainee.examine(fit_part, scored)
        counters = _next_epoch(
            counters,
            None if scores is None else scores.score,
            time.monotonic() - start,
            may_be_best=len(scored) == len(data.val),
        )
        row = EpochRow(
            epoch=counters.epoch,
            loss=mean_loss,
            steps=len(batches),
            learning_rate=rate,
            **spectrum,
            validation=scores,
            seconds=round(counters.seconds, 3),
        )
        if trainee.margins is not None:
            trainee.margins.gather(world)
        # A run in memory keeps the best epoch only; without scores, that is the last one, whose weights are loaded.
        snapshot = _snapshot(trainee, counters) if run.resumable or scores is not None else None
        if snapshot is not None and counters.best_epoch == counters.epoch:
            run.save("best", snapshot)
        run.log(row)
        if snapshot is not None:
            run.save("last", snapshot)
        saved = time.monotonic()
        progress.epoch(row, counters)
        if world.any(stop()):
            raise StoppedError(f"stopped after epoch {counters.epoch}; the state is saved")

    progress.close()
    best = world.from_first(run.best() if world.first else None)
    if best is None:
        return counters
    if best.counters.epoch > counters.epoch:
        what = f"the best checkpoint is of epoch {best.counters.epoch}, after the last epoch {counters.epoch}"
        raise InputError(f"{what}: choose another --run folder")
    best.restore(trainee.trained)
    # An epoch repeated after a kill, on different hardware, may differ from the one that was saved as the best.
    counters.best_epoch = best.counters.epoch
    return counters


def _sampler(config: LoopConfig, data: Data, trainee: Trainee) -> ShuffledBatchSampler | StratifiedBatchSampler:
    """Return the sampler of the run. It yields complete batches, which the loop splits among the processes."""
    labels = data.train.labels
    return build_sampler(config.sampler, labels, config.batch_size, seed=config.seed, lda_width=trainee.lda_width)


def _fit_part(config: LoopConfig, data: Data) -> Part:
    """Return the training samples on which predictors are fitted after each epoch."""
    return data.train.take(stratified_sample(data.train.labels, FIT_SAMPLES, config.seed))


def _resume(run: Run, trainee: Trainee, world: World) -> Counters:
    """Restore the newest intact checkpoint, if there is one, and return its counters."""
    snapshot = world.from_first(world.together(run.latest))
    if snapshot is None:
        run.keep_rows(0)
        return Counters()
    snapshot.restore(trainee.trained, trainee.optimizer)
    if trainee.margins is not None and world.first:
        snapshot.restore_margins(trainee.margins)
    run.keep_rows(snapshot.counters.epoch)
    return snapshot.counters


def _snapshot(trainee: Trainee, counters: Counters) -> Snapshot:
    return Snapshot.of(trainee.trained, trainee.optimizer, counters, trainee.margins)


def _subset_note(sampler: StratifiedBatchSampler) -> str:
    some, classes = sampler.batch_size // sampler.samples_per_class, len(np.unique(sampler.labels))
    what = f"a batch of {sampler.batch_size} samples is too small for {classes:,} classes"
    return f"{what}: each batch has about {some} of them, with about {sampler.samples_per_class} samples each"


def _step_seed(config: LoopConfig, step: int, world: World) -> int:
    """Return the seed of a step, counted from 0 over the whole run; each process has its own."""
    return config.seed * _SEED_STRIDE + step + world.rank * _RANK_STRIDE


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
