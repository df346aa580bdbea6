"""Conditions under which a training cannot go well, known before its first step.

`deeplda train` prints this advice before it starts, and `deeplda doctor` gives the same advice afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from deeplda.data.dataset import Data
from deeplda.formatting import counted
from deeplda.training.config import LDA_OBJECTIVES, FitConfig

FEWEST_STEPS = 90  # With fewer, a network has hardly left its initial state.
FEWEST_PER_CLASS = 4  # With fewer samples per class in a batch, the within-class scatter is mostly noise.
FEWEST_SAMPLES = 10  # With fewer training samples, a class cannot be learnt reliably.


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
    steps = epochs * math.ceil(len(data.train) / config.batch_size)
    counts = np.bincount(data.train.labels, minlength=len(data.class_names)).tolist()
    found = [
        few_steps(steps, epochs, config.batch_size),
        small_batch(config.batch_size, len(counts), config.subclasses) if config.objective in LDA_OBJECTIVES else None,
        small_classes(counts, data.class_names),
    ]
    return [advice for advice in found if advice is not None]


def few_steps(steps: int, epochs: int, batch_size: int) -> Advice | None:
    """Return advice if a run has too few steps to train a network."""
    if steps >= FEWEST_STEPS:
        return None
    return Advice(
        f"The network is hardly trained by {counted(steps, 'step')} in {counted(epochs, 'epoch')}.",
        f"With batches of {batch_size:,} samples, an epoch on this data has {counted(steps // epochs, 'step')}. Even "
        "our shortest recipe, quick on CIFAR-10, takes 96.",
        f"Train with a smaller --batch-size ({batch_size} here) that still leaves a few samples of each class, and "
        f"with more --epochs ({epochs} here).",
    )


def small_batch(batch_size: int, classes: int, subclasses: int | Literal["auto"]) -> Advice | None:
    """Return advice if a batch has too few samples of each class or, if their number is fixed, of each subclass."""
    groups = classes * subclasses if isinstance(subclasses, int) else classes
    kind = "classes" if groups == classes else "subclasses"
    if batch_size >= FEWEST_PER_CLASS * groups:
        return None
    return Advice(
        f"The batch is too small for {groups} {kind}.",
        f"On average, a batch of {batch_size} contains {batch_size / groups:.3g} samples of each. That is too few to "
        "estimate the within-class scatter, so the eigenvalues of such a batch are large whatever the network does.",
        f"Train with --batch-size {FEWEST_PER_CLASS * groups} or more; the paper's batches hold 15 to 100 samples per "
        "class. If memory runs short, use smaller images (--image-size) or a narrower network (--width).",
    )


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
