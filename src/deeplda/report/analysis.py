"""Analysis for figures and pages: single dimensions of an embedding (the paper's Section 3), densities, scores.

Embeddings have shape (n, d) and labels (n,). Everything is computed in float64 relative to the first sample, so that a
large offset costs no precision. Differences within rounding error count as zero, so a dead dimension, which has the
same value for every sample, separates nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplda.errors import got

__all__ = ["fisher_ratios", "one_against_rest", "separated_class", "single_dimension_accuracy"]

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.integer[Any]]

_ROUNDING = 64 * np.finfo(np.float64).eps
# A density is estimated with this many bins per returned point, and with kernels at least this fraction of the range
# wide, because a narrower class would be an invisible spike.
_BINS_PER_POINT = 4
_NARROWEST_KERNEL = 1 / 128


def fisher_ratios(embedding: Floats, labels: Integers) -> NDArray[np.float64]:
    """Return the ratio of the between-class to the within-class variance in each dimension alone, (d,).

    This is diag(S_B) / diag(S_W), the counterpart of an eigenvalue for a single axis. It is 0 for a dead dimension, and
    infinite if the class means differ but no sample differs from its class mean.
    """
    x, member = _checked(embedding, labels), _membership(labels)
    x = x - x[0]
    means = _means(x, member)
    between = member.mean(0) @ (means - x.mean(0)) ** 2
    within = np.mean((x - member @ means) ** 2, axis=0)
    return _ratio(between, within, _rounding(x) ** 2)


def single_dimension_accuracy(
    train_embedding: Floats, train_labels: Integers, embedding: Floats, labels: Integers
) -> NDArray[np.float64]:
    """Return the accuracy of LDA with equal priors in each dimension alone, (d,).

    LDA is fitted to the training embedding and scored on the other one. In one dimension, it picks the nearest class
    mean. The result is the expected accuracy if ties are broken at random, so a dead dimension scores one over the
    number of classes.
    """
    train, x = _checked(train_embedding, train_labels), _checked(embedding, labels)
    if x.shape[1] != train.shape[1]:
        what = f"the embeddings have {train.shape[1]} and {x.shape[1]} dimensions"
        raise ValueError(f"{what}: use the same model for both")
    train, x = train - train[0], x - train[0]
    means, rounding = _means(train, _membership(train_labels)), _rounding(train)
    right = np.asarray(labels)[:, None] == np.unique(train_labels)
    accuracy = np.empty(x.shape[1])
    for j in range(x.shape[1]):
        distance = np.abs(x[:, j, None] - means[:, j])
        nearest = distance <= distance.min(1, keepdims=True) + rounding[j]
        accuracy[j] = np.mean((nearest & right).sum(1) / nearest.sum(1))
    return accuracy


def one_against_rest(embedding: Floats, labels: Integers) -> NDArray[np.float64]:
    """Return the separation of each class from all others in each dimension, (d, C), with classes in ascending order.

    This is Fisher's criterion for two classes, (mean - mean of the others)^2 / (variance + variance of the others). It
    is large if the class is far from the others *and* the others stay close together, as the paper describes. The area
    under the ROC curve is not suitable, because in a trained network it is 1 for several classes at once. Both
    variances have the same weight, however rare the class is.
    """
    x, member = _checked(embedding, labels), _membership(labels)
    x, rest = x - x[0], ~member
    difference = _means(x, member) - _means(x, rest)
    spread = _variances(x, member) + _variances(x, rest)
    return _ratio(difference**2, spread, _rounding(x) ** 2).T


def separated_class(embedding: Floats, labels: Integers) -> NDArray[np.int64]:
    """Return the label that each dimension separates best from all others, (d,); -1 if it separates none."""
    separation = one_against_rest(embedding, labels)
    best = np.unique(labels)[separation.argmax(1)]
    return np.where(separation.max(1) > 0, best, -1).astype(np.int64)


def class_densities(
    values: NDArray[np.float64], labels: Integers, classes: int, ends: tuple[float, float], points: int = 128
) -> NDArray[np.float64]:
    """Estimate each class's density along one dimension, (classes, points), at evenly spaced points between the ends.

    Each class has a Gaussian kernel with Silverman's bandwidth. The density of a class without samples is 0.
    """
    bins = _BINS_PER_POINT * points
    width = (ends[1] - ends[0]) / bins
    within = (values >= ends[0]) & (values < ends[1])
    values, labels = values[within], np.asarray(labels)[within]
    places = np.minimum(((values - ends[0]) / width).astype(np.int64), bins - 1)
    counts = np.bincount(labels * bins + places, minlength=classes * bins).reshape(classes, bins).astype(np.float64)
    totals = counts.sum(1, keepdims=True)
    shares = counts / np.maximum(totals, 1)
    bandwidth = np.array([_silverman_bandwidth(values[labels == c]) if totals[c] else 0.0 for c in range(classes)])
    bandwidth = np.maximum(bandwidth, (ends[1] - ends[0]) * _NARROWEST_KERNEL)
    # Convolve with a Gaussian by Fourier transform; the padding prevents wrap-around.
    frequencies = np.fft.rfftfreq(2 * bins, width)
    kernel = np.exp(-2 * (np.pi * bandwidth[:, None] * frequencies) ** 2)
    smooth = np.fft.irfft(np.fft.rfft(shares, 2 * bins) * kernel, 2 * bins)[:, :bins] / width
    return np.asarray(np.maximum(smooth, 0).reshape(classes, points, -1).mean(2))


@dataclass(frozen=True)
class ClassScores:
    """Scores for one class, computed from a confusion matrix.

    Attributes:
        n: number of samples of the class.
        recall: fraction of the class's samples that were predicted correctly; None if the class has no samples.
        precision: fraction of the samples predicted as this class that belong to it; None if there are none.
        confused_with: the class that its samples are most often mistaken for; None if there are no mistakes.
        mistakes: number of samples mistaken for that class.
    """

    n: int
    recall: float | None
    precision: float | None
    confused_with: int | None
    mistakes: int


def class_scores(confusion: Integers | Sequence[Sequence[int]]) -> list[ClassScores]:
    """Return the scores for each class, computed from confusion[true][predicted]."""
    counts = np.asarray(confusion)
    mistakes = counts - np.diag(np.diag(counts))
    found = []
    for c, (row, column) in enumerate(zip(counts, counts.T, strict=True)):
        n, predicted, most = int(row.sum()), int(column.sum()), int(mistakes[c].argmax())
        recall, precision = (float(row[c] / total) if total else None for total in (n, predicted))
        found.append(ClassScores(n, recall, precision, most if mistakes[c, most] else None, int(mistakes[c, most])))
    return found


def row_shares(confusion: Integers | Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Return each count in a confusion matrix as a fraction of its true class; 0 for a class without samples."""
    counts = np.asarray(confusion)
    return np.asarray(counts / np.maximum(counts.sum(1, keepdims=True), 1))


def _silverman_bandwidth(values: NDArray[np.float64]) -> float:
    """Return Silverman's bandwidth for `values` (n,): 0.9 min(std, IQR / 1.34) / n^(1/5)."""
    low, high = np.quantile(values, [0.25, 0.75])
    spread = min(values.std(), (high - low) / 1.34) or values.std()
    return float(0.9 * spread * len(values) ** -0.2)


def _checked(embedding: Floats, labels: Integers) -> NDArray[np.float64]:
    x, y = np.asarray(embedding, np.float64), np.asarray(labels)
    if x.ndim != 2 or y.shape != x.shape[:1] or x.size == 0:
        what = f"embedding has shape {x.shape}, labels has shape {y.shape}"
        raise ValueError(got(what, need="(n, d) and (n,)", do="pass one feature vector and one label per sample"))
    if not np.isfinite(x).all():
        raise ValueError("the embedding contains NaN or infinity: find out why the run diverged")
    return x


def _membership(labels: Integers) -> NDArray[np.bool_]:
    """Return whether each sample (row) belongs to each class (column), (n, C)."""
    classes = np.unique(labels)
    if len(classes) < 2:
        raise ValueError(
            got(f"there is only {len(classes)} class", need="at least 2", do="add samples of another class")
        )
    return np.equal.outer(labels, classes)


def _means(x: NDArray[np.float64], member: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the mean of each group of samples (a column of `member`), (C, d)."""
    return np.asarray((member.T @ x) / member.sum(0)[:, None])


def _variances(x: NDArray[np.float64], member: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the variance of each group of samples, (C, d)."""
    means = _means(x, member)
    return np.stack([np.mean((x[group] - mean) ** 2, axis=0) for group, mean in zip(member.T, means, strict=True)])


def _rounding(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a bound on the rounding error of the mean of each dimension, (d,)."""
    return np.asarray(_ROUNDING * np.abs(x).max(0))


def _ratio(
    above: NDArray[np.float64], below: NDArray[np.float64], rounding: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return above / below, where values within rounding error count as 0, and 0 / 0 is 0."""
    above = np.where(above <= rounding, 0.0, above)
    below = np.where(below <= rounding, 0.0, below)
    ratio = np.full(above.shape, np.inf)
    np.divide(above, below, out=ratio, where=below > 0)
    return np.where(above > 0, ratio, 0.0)
