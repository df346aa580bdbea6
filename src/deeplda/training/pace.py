"""The pace of a training on this machine, measured before it starts."""

from __future__ import annotations

import math
from itertools import cycle
from statistics import median
from time import perf_counter

import numpy as np

from deeplda.data.dataset import Data
from deeplda.device import seeded
from deeplda.sampling import build_sampler
from deeplda.training.batches import BatchSource
from deeplda.training.config import FitConfig
from deeplda.training.loop import FIT_SAMPLES
from deeplda.training.parallel import ALONE, World
from deeplda.training.trainee import build_trainee

# Steps that are timed, after one that is not, and the time after which no further step is started.
_STEPS = 10
_SECONDS = 5.0
# Without the gradient, a sample takes about a third of the time.
_FORWARD = 1 / 3
# Scoring, logging and saving a small model after an epoch, whatever the number of samples.
_EPOCH_SECONDS = 0.1
# Writing the model and the report at the end.
_END_SECONDS = 5.0
# The views of an image in each kind of test-time augmentation.
_VIEWS = {"mirror": 2, "views": 6}


def seconds_of_step(config: FitConfig, data: Data, world: World = ALONE) -> float:
    """Return the duration of a training step, measured with steps that leave no trace.

    All processes of a `world` take part, and the result is that of the first one.
    """
    trainee = build_trainee(config, data, world=world)
    source = BatchSource(data.train, trainee.device, config)
    trainee.mute()
    sampler = build_sampler(
        config.sampler, data.train.labels, config.batch_size, seed=config.seed, lda_width=trainee.lda_width
    )
    trainee.trained.train()
    seconds: list[float] = []
    try:
        with seeded(config.seed, trainee.device):
            for indices in cycle(sampler):
                start = perf_counter()
                trainee.step(source.batch(world.share(np.array(indices)), 0), learning_rate=0.0)
                seconds.append(perf_counter() - start)
                if world.any(len(seconds) > _STEPS or sum(seconds) > _SECONDS):
                    break
    finally:
        trainee.close()
    # The first step also allocates memory.
    return world.from_first(median(seconds[1:] or seconds))


def scoring_share(train: int, val: int) -> float:
    """Return how long scoring an epoch takes, relative to its steps, for these numbers of samples."""
    return _FORWARD * (min(train, FIT_SAMPLES) + val) / train


def seconds_of_epoch(step: float, config: FitConfig, data: Data) -> float:
    """Return the estimated duration of an epoch with its share of validation, given that of a step."""
    steps, images = math.ceil(len(data.train) / config.batch_size), len(data.train)
    scoring = scoring_share(images, len(data.val)) * images * _per_sample(step, config, data)
    return steps * step + scoring / config.evaluate_every + _EPOCH_SECONDS


def seconds_at_end(step: float, config: FitConfig, data: Data) -> float:
    """Return the estimated time from the last epoch to the end of the report, given the duration of a step.

    The predictors are fitted on the training set and calibrated on the validation set; then both other sets are scored,
    once more for each view of test-time augmentation, and the test set is shown in the report.
    """
    held_out = len(data.val) + len(data.test)
    views = 0 if config.tta is None else _VIEWS[config.tta]
    scored = len(data.train) + 2 * held_out + views * held_out
    return _FORWARD * scored * _per_sample(step, config, data) + _END_SECONDS


def _per_sample(step: float, config: FitConfig, data: Data) -> float:
    """Return the part of a step's duration that falls to a sample."""
    return step / min(config.batch_size, len(data.train))
