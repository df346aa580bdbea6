"""What an exported graph is verified on: samples of the run's data, or random ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplda.errors import InputError
from deeplda.model import Model
from deeplda.training.assembly import read_data
from deeplda.training.config import RunConfig

_REAL = 1000
_RANDOM = 100


def samples_of(folder: Path, model: Model, *, verify_all: bool, data_dir: Path | None) -> tuple[NDArray[Any], str]:
    """What to verify on, and that in words: samples of the run's data, or random ones where it cannot be had."""
    try:
        return _real_samples(folder, model, verify_all=verify_all, data_dir=data_dir)
    except InputError as error:
        if verify_all:
            raise
        kind = "images" if len(model.card.sample_shape) == 3 else "rows"
        return _random_samples(model, estimator=(folder / "classifier.json").exists()), f"random {kind}, as {error}"


def _real_samples(folder: Path, model: Model, *, verify_all: bool, data_dir: Path | None) -> tuple[NDArray[Any], str]:
    if not (folder / "run.toml").exists():
        raise InputError(f"{folder} is no run with data of its own")
    config = RunConfig.read(folder / "run.toml")
    data = read_data(config if data_dir is None else config.model_copy(update={"data_dir": data_dir}))
    if data.sample_shape != model.card.sample_shape:
        raise InputError(f"{config.data} has changed since {folder} was trained: samples are of another shape")
    name, part = ("test", data.test) if len(data.test) else ("validation", data.val)
    if not len(part):
        raise InputError(f"{config.data} has neither test nor validation samples")
    count = len(part) if verify_all else min(len(part), _REAL)
    # Spread over the part, as its samples may stand class by class.
    places = np.linspace(0, len(part) - 1, count).astype(int)
    return part.inputs[places], f"{count:,} of {len(part):,} {name} samples of {config.data}"


def _random_samples(model: Model, *, estimator: bool) -> NDArray[Any]:
    rng, shape = np.random.default_rng(0), (_RANDOM, *model.card.sample_shape)
    if len(shape) == 4 and not estimator:
        return rng.integers(0, 256, shape, dtype=np.uint8)
    mean, deviation = model.normalisation.mean.numpy(), model.normalisation.deviation.numpy()
    return (mean + deviation * rng.standard_normal(shape)).astype(mean.dtype)
