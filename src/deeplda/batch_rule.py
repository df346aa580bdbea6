"""Whether a batch is large enough for an LDA loss, and what to change if it is not.

The loss estimates the means and the scatter of its classes from the batch, so the batch has to be large enough for the
number of classes and for the width of the features. The constants were fitted to the trainings in
results/small-batches.csv, which `benchmarks/small_batches.py` runs; docs/small-batches.md has the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

# How batches are formed; "auto" is "stratified", with a subset of the classes in each batch if that is needed.
SamplerName = Literal["auto", "stratified", "shuffle"]

# A batch needs this many samples per class plus this many per dimension.
_PER_CLASS, _PER_DIMENSION = 1.5, 1.5
# The relative rounding error of an effective number of samples is less than this.
_ROUNDING = 1e-9
# A batch of a subset of the classes has at least this many samples of each, and at least this many classes.
_FEWEST_IN_SUBSET, _FEWEST_CLASSES = 8, 4


class SmallBatchWarning(UserWarning):
    """A batch is too small for its number of classes and dimensions, which costs accuracy."""


def is_too_small(counts: Sequence[float], dims: int) -> bool:
    """Return whether a batch with `counts` samples of its classes is too small for features of width `dims`.

    It is if its effective number of samples is less than needed, or if the features have too few dimensions for its
    classes, which can differ in C - 1 directions.
    """
    return dims < len(counts) - 1 or not enough_samples(counts, dims)


def enough_samples(counts: Sequence[float], dims: int) -> bool:
    """Return whether a batch has as many samples as its classes and dimensions need, whatever they are."""
    needed = _PER_CLASS * len(counts) + _PER_DIMENSION * dims
    return effective_samples(counts) >= needed * (1 - _ROUNDING)


def needed_samples(classes: int, dims: int) -> int:
    """Return the number of samples that a batch of this many classes needs for features of width `dims`."""
    return math.ceil(_PER_CLASS * classes + _PER_DIMENSION * dims)


def effective_samples(counts: Sequence[float]) -> float:
    """Return the number of classes times the harmonic mean of their numbers of samples.

    It is the number of samples if all classes have the same number, and less otherwise: the mean of a class of k
    samples has a variance proportional to 1/k, so rare classes are estimated poorly however common the others are.
    """
    return len(counts) ** 2 / sum(1 / count for count in counts)


def why_too_small(counts: Sequence[float], dims: int) -> str:
    """Return a sentence, without its final full stop, that compares a batch with what it needs."""
    classes, size, effective = len(counts), round(sum(counts)), effective_samples(counts)
    if dims < classes - 1:
        return f"{classes} classes differ in up to {classes - 1} directions, and {dims} dimensions cannot show them all"
    needed = (
        f"{classes} classes and {dims} dimensions need {needed_samples(classes, dims)} samples, {_PER_CLASS:g} per "
        f"class and {_PER_DIMENSION:g} per dimension"
    )
    if effective > 0.9 * size:
        return needed
    return f"{needed}, and a batch of {size} with classes this unbalanced is worth {effective:.0f}"


def default_width(classes: int, batch_size: int) -> int:
    """Return the width of the features unless the user chooses one: the number of classes, at most half a batch.

    Batches that are too small for several classes anyway do not reduce it below 16.
    """
    return min(classes, max(batch_size // 2, 2 * _FEWEST_IN_SUBSET))


def samples_in_subset(classes: int, batch_size: int, dims: int) -> int | None:
    """Return the number of samples per class in batches of a subset of the classes; None if there is no such subset.

    The features then have at least twice as many dimensions as a batch has classes, so that the classes outside the
    batch have room as well.
    """
    samples = max(_FEWEST_IN_SUBSET, math.ceil(2 * batch_size / dims))
    return samples if _FEWEST_CLASSES <= batch_size // samples < classes else None


class Remedies(NamedTuple):
    """Changes to a batch that is too small. Each of them suffices, and is None if it is not possible.

    Attributes:
        batch_size: the smallest sufficient number of samples of the same classes, and the width for it.
        dims: the range of sufficient widths.
        subset: the number of samples per class in batches of a subset of the classes.
        narrow_subset: the same, together with the largest sufficient width, if the present width is too large.
    """

    batch_size: tuple[int, int] | None
    dims: tuple[int, int] | None
    subset: int | None
    narrow_subset: tuple[int, int] | None


def remedies(counts: Sequence[float], dims: int) -> Remedies:
    """Return what can be changed if `is_too_small(counts, dims)`."""
    classes, size, effective = len(counts), round(sum(counts)), effective_samples(counts)
    widest = math.floor((effective / (1 - _ROUNDING) - _PER_CLASS * classes) / _PER_DIMENSION)
    widths = (classes - 1, widest) if widest >= classes - 1 else None
    larger, width = None, max(dims, classes - 1)
    if width == dims or widths is None:
        larger = math.ceil(size * needed_samples(classes, width) / effective), width
    subset = _sufficient_subset(classes, size, dims)
    narrow = None
    if subset is None and dims > (half := size // 2) and (samples := _sufficient_subset(classes, size, half)):
        narrow = samples, half
    return Remedies(larger, widths, subset, narrow)


def _sufficient_subset(classes: int, batch_size: int, dims: int) -> int | None:
    samples = samples_in_subset(classes, batch_size, dims)
    if samples is None:
        return None
    some = batch_size // samples
    return None if is_too_small([batch_size / some] * some, dims) else samples
