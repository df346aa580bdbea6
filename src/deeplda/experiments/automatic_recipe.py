"""The settings for images of your own: a function of the data, and a number of epochs that fits a time budget.

Everything except the number of epochs depends only on the data, so it is the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from time import monotonic
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeplda.data.dataset import TEST_SHARE, VAL_SHARE, Data
from deeplda.data.sources import outline_images
from deeplda.experiments.recipes import read_recipe
from deeplda.networks.fastnet import FastNet
from deeplda.training.conditions import FEWEST_STEPS
from deeplda.training.config import RunConfig, merged
from deeplda.training.pace import scoring_share, seconds_at_end, seconds_of_epoch, seconds_of_step
from deeplda.training.parallel import ALONE, World
from deeplda.training.table_settings import SAMPLES_PER_SCORE

_NETWORK, _OPTIMIZER = "fastnet", "muon"
# From this number of training images on, they are smaller and the network is narrower, so that a few epochs fit.
_MANY = 10_000
_SIDE, _SIDE_OF_MANY = 48, 32
_WIDTH, _WIDTH_OF_MANY = 0.5, 0.25
# Shifts by up to this fraction of the side.
_SHIFT, _SHIFT_OF_MANY = 1 / 8, 1 / 16
# A batch has 4 sqrt(n) of n images within these limits, and at least this many of each class.
_SMALLEST_BATCH, _LARGEST_BATCH, _PER_CLASS = 64, 1_000, 5
# A network needs FEWEST_STEPS, and this many samples, to learn from few images, whatever the budget.
_FEWEST_SAMPLES = 20_000
# More steps hardly help, unless they are fewer than this many epochs.
_MOST_STEPS, _MOST_EPOCHS = 1_000, 20
# Scoring takes at most this fraction of the time of the steps: with up to 5,000 images, it would take 0.4 of it if it
# came after every epoch.
_MOST_SCORING = 0.15
# Steps of a run in a sweep.
_SWEEP_STEPS = 300


class Fit(NamedTuple):
    """The number of epochs for a run, and its estimated duration in seconds, from the command to the report.

    Attributes:
        in_budget: whether that is within the budget; if not, this is the least number of epochs.
    """

    epochs: int
    seconds: float
    in_budget: bool


def automatic_settings(given: Mapping[str, object], *, fixed_epochs: bool = False) -> dict[str, object] | None:
    """Return the given settings, completed by those that suit the data.

    The result is None unless the data is a folder or an .npz file of images. If the user chose another network or
    optimiser, the settings that were chosen for ours keep their defaults. With `fixed_epochs`, the number of epochs is
    included. It does not depend on the machine, so that all runs of a sweep can be compared.

    Raises InputError if the data does not exist or is broken.
    """
    outline = outline_images(str(given.get("data", RunConfig.model_fields["data"].default)))
    # Reading a folder without enough images raises an error that says what is missing.
    if outline is None or outline.images < 1:
        return None
    found = settings_for(outline.sizes, outline.images, outline.classes)
    dropped: set[str] = set()
    if given.get("network", _NETWORK) != _NETWORK:
        dropped = found.keys() - {
            "image_size", "batch_size", "flip", "flip_order", "translate", "evaluate_every",
        }  # fmt: skip
    elif given.get("optimizer", _OPTIMIZER) != _OPTIMIZER:
        dropped = {"filter_learning_rate", "learning_rate", "momentum", "schedule"}
    chosen = merged({name: value for name, value in found.items() if name not in dropped}, given)
    if fixed_epochs:
        batch_size = int(str(chosen["batch_size"]))
        chosen.setdefault("epochs", math.ceil(_SWEEP_STEPS * batch_size / max(outline.images, batch_size)))
    return chosen


def settings_for(sizes: NDArray[np.int64], images: int, classes: int) -> dict[str, object]:
    """Return the settings, except epochs, for a number of training images.

    Args:
        sizes: (height, width) of some of the images, (N, 2).
    """
    many = images >= _MANY
    most = _SIDE_OF_MANY if many else _SIDE
    shorter = int(np.median(sizes.min(axis=1))) if len(sizes) else most
    side = max(FastNet.least_side, min(shorter, most))
    batch = min(max(round(4 * math.sqrt(images)), _SMALLEST_BATCH), _LARGEST_BATCH)
    recipe = {name: value for name, value in read_recipe("quick").items() if name != "epochs"}
    return recipe | {
        "image_size": side,
        "width": _WIDTH_OF_MANY if many else _WIDTH,
        "batch_size": max(batch, _PER_CLASS * classes),
        "translate": round(side * (_SHIFT_OF_MANY if many else _SHIFT)),
        "evaluate_every": _epochs_between_scores(images),
    }


def _epochs_between_scores(images: int) -> int:
    validation = round(images * VAL_SHARE / (1 - VAL_SHARE - TEST_SHARE))
    costly = math.ceil(scoring_share(images, validation) / _MOST_SCORING)
    return max(costly, math.ceil(SAMPLES_PER_SCORE / images))


def epochs_between(images: int, batch_size: int) -> tuple[int, int]:
    """Return the least and the greatest number of epochs that are worth training."""
    steps = math.ceil(images / batch_size)
    least = max(math.ceil(FEWEST_STEPS / steps), math.ceil(_FEWEST_SAMPLES / images))
    return least, max(least, math.ceil(_MOST_STEPS / steps), _MOST_EPOCHS)


def fitted_epochs(config: RunConfig, data: Data, seconds: float, spent: float, world: World = ALONE) -> Fit:
    """Return the number of epochs that fits into `seconds`, of which some are spent, by the pace of this machine.

    All processes of a `world` take part in measuring it, and the first one decides.
    """
    start = monotonic()
    step = seconds_of_step(config, data, world)
    spent = world.from_first(spent + monotonic() - start) + seconds_at_end(step, config, data)
    each = seconds_of_epoch(step, config, data)
    least, most = epochs_between(len(data.train), config.batch_size)
    fitting = math.floor((seconds - spent) / each)
    epochs = min(max(fitting, least), most)
    return Fit(epochs, spent + epochs * each, in_budget=fitting >= least)
