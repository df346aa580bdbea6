"""Conditions under which a training cannot go well, known before its first step.

`deeplda train` prints this advice before it starts, and `deeplda doctor` gives the same advice afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from deeplda.batch_rule import is_too_small, remedies, why_too_small
from deeplda.data.dataset import Data
from deeplda.formatting import counted
from deeplda.sampling import build_sampler, first_batch_counts
from deeplda.training.config import LDA_OBJECTIVES, SOFTMAX_OBJECTIVES, FitConfig
from deeplda.training.trainee import default_embedding_dim

FEWEST_STEPS = 90  # With fewer, a network has hardly left its initial state.
FEWEST_SAMPLES = 10  # With fewer training samples, a class cannot be learnt reliably.
_LARGER = [1.25**k for k in range(1, 30)]  # The factors by which larger batch sizes are tried.


@dataclass(frozen=True)
class Advice:
    """A poor condition, in complete sentences: `what` it is, `why` it matters, and what to `do`."""

    what: str
    why: str
    do: str

    def __str__(self) -> str:
        return f"{self.what} {self.why} {self.do}"


def poor_conditions(config: FitConfig, data: Data) -> list[Advice]:
    """Return advice about the settings and the training set; empty if there is nothing to improve."""
    epochs = config.stretches[-1]
    if epochs == 0:
        return []
    steps = epochs * math.ceil(len(data.train) / config.batch_size)
    counts = np.bincount(data.train.labels, minlength=len(data.class_names)).tolist()
    found = [
        few_steps(steps, epochs, config.batch_size),
        small_batch(config, counts),
        small_classes(counts, data.class_names),
    ]
    return [advice for advice in found if advice is not None]


def few_steps(steps: int, epochs: int, batch_size: int) -> Advice | None:
    """Return advice if a run has too few steps to train a network."""
    if steps >= FEWEST_STEPS:
        return None
    return Advice(
        f"Only {counted(steps, 'step')} in {counted(epochs, 'epoch')}: the network will learn little.",
        f"With batches of {batch_size:,} samples, an epoch on this data has {counted(steps // epochs, 'step')}. Even "
        "our shortest recipe, quick on CIFAR-10, takes 96.",
        f"Train with a smaller --batch-size ({batch_size} here) that still leaves a few samples of each class, and "
        f"with more --epochs ({epochs} here).",
    )


def small_batch(config: FitConfig, counts: Sequence[int]) -> Advice | None:
    """Return advice if the batches are too small for the classes and the embedding, by the rule of `DeepLDALoss`.

    Args:
        counts: the number of training samples of each class. If their number is fixed, the subclasses of a class are
            assumed to be equally large.
    """
    if config.objective not in LDA_OBJECTIVES or config.objective in SOFTMAX_OBJECTIVES:
        return None
    each = config.subclasses if isinstance(config.subclasses, int) else 1
    labels = np.repeat(np.arange(each * len(counts)), np.repeat(counts, each) // each)
    groups, size = len(np.unique(labels)), config.batch_size
    width = groups if config.embedding_dim == "subclasses" else config.embedding_dim
    width = width or default_embedding_dim(config, len(counts))
    in_batch = _batch_counts(config, labels, size, width)
    if not is_too_small(in_batch, width):
        return None
    found, options = remedies(in_batch, width), []
    if size < len(labels):
        if found.subset is not None:
            options.append("--sampler auto, which puts fewer classes into each batch")
        if found.narrow_subset is not None:
            options.append(f"--embedding-dim {found.narrow_subset[1]} and --sampler auto")
    if found.dims is not None:
        options.append(f"--embedding-dim {max(found.dims[0], min(width, found.dims[1]))}")
    if not options or width >= len(in_batch) - 1:
        options += _larger_batch(config, labels, width)
    if not options:
        return None
    kind = "classes" if each == 1 else "subclasses"
    return Advice(
        f"The batches do not suit the {groups} {kind} and the embedding of {counted(width, 'dimension')}.",
        f"A batch of {size} has samples of {len(in_batch)} {kind}: {why_too_small(in_batch, width)}. In such batches, "
        "LDA losses were less accurate than cross-entropy in our study.",
        f"Train with {', or with '.join(options)}. See docs/small-batches.md.",
    )


def _larger_batch(config: FitConfig, labels: NDArray[np.int64], width: int) -> list[str]:
    """Return the options of a larger batch and, if necessary, a wider embedding; none if it has all samples already."""
    size, groups = config.batch_size, len(np.unique(labels))
    larger = [round(size * factor) for factor in _LARGER if size * factor < len(labels)]
    for enough, batch_size in product((max(width, groups - 1), groups), larger):
        if not is_too_small(_batch_counts(config, labels, batch_size, enough), enough):
            return [f"--batch-size {batch_size}" + ("" if enough == width else f" and --embedding-dim {enough}")]
    return [f"--batch-size {len(labels)}, all samples at once"] if size < len(labels) else []


def _batch_counts(config: FitConfig, labels: NDArray[np.int64], batch_size: int, width: int) -> list[int]:
    sampler = build_sampler(config.sampler, labels, batch_size, seed=config.seed, lda_width=width)
    return first_batch_counts(sampler)


def small_classes(counts: Sequence[int], class_names: Sequence[str]) -> Advice | None:
    """Return advice if a class has too few training samples, given their number for each class."""
    small = [(count, name) for count, name in zip(counts, class_names, strict=True) if count < FEWEST_SAMPLES]
    if not small:
        return None
    (count, name), more = min(small), len(small) - 1
    others = f", and {counted(more, 'other')} of the {len(counts)} classes have fewer than {FEWEST_SAMPLES}"
    return Advice(
        f'The class "{name}" has only {counted(count, "training sample")}{others if more else ""}.',
        "A network can memorise so few samples instead of learning what they have in common, and the scores of such a "
        "class depend on a handful of samples.",
        f"Add samples until every class has at least {FEWEST_SAMPLES} for training, or remove or merge small classes.",
    )
