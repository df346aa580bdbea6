"""What the single dimensions of an embedding (n, d) with labels (n,) can tell: the claims of the paper's Section 3.

Everything is computed in float64, from the first sample's place so that a large offset costs no digits. Differences
that rounding alone could make count as none: a dead dimension, the same for every sample, separates nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplda.errors import got

__all__ = [
    "agreement",
    "fisher_ratios",
    "one_against_rest",
    "output_variances",
    "separated_class",
    "single_dimension_accuracy",
    "stability",
]

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.integer[Any]]

_ROUNDING = 64 * np.finfo(np.float64).eps


def fisher_ratios(embedding: Floats, labels: Integers) -> NDArray[np.float64]:
    """Variance between the class means over variance within the classes, of each dimension alone, (d,).

    The diagonals of the paper's S_B and S_W, one over the other: what an eigenvalue is for a direction, this is for an
    axis. 0 for a dead dimension, infinite where the classes differ and no sample differs from its class.
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
    """Accuracy on the second part of LDA with equal priors fitted on the first, in each dimension alone, (d,).

    In one dimension that is the nearest class mean. Of several equally near ones each is taken with the same
    probability and the expected accuracy is given: a dead dimension scores one over the number of classes.
    """
    train, x = _checked(train_embedding, train_labels), _checked(embedding, labels)
    if x.shape[1] != train.shape[1]:
        raise ValueError(
            got(f"embeddings have {train.shape[1]} and {x.shape[1]} dimensions", need="the same", do="use one model")
        )
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
    """How well each dimension separates each class from all others together, (d, C), classes in ascending order.

    Fisher's criterion of two classes, (mean - mean of the others)^2 / (variance + variance of the others): large for a
    class that stands away from the others *and* leaves them close together, the pattern the paper describes. The area
    under the ROC curve would not do: in a trained network it is 1 for several classes at once, and the largest of them
    a lottery. The two variances weigh the same, however rare the class.
    """
    x, member = _checked(embedding, labels), _membership(labels)
    x, rest = x - x[0], ~member
    difference = _means(x, member) - _means(x, rest)
    spread = _variances(x, member) + _variances(x, rest)
    return _ratio(difference**2, spread, _rounding(x) ** 2).T


def separated_class(embedding: Floats, labels: Integers) -> NDArray[np.int64]:
    """The label that each dimension separates best from all others, (d,); -1 where it separates none."""
    separation = one_against_rest(embedding, labels)
    best = np.unique(labels)[separation.argmax(1)]
    return np.where(separation.max(1) > 0, best, -1).astype(np.int64)


def stability(separated: Sequence[Integers]) -> float:
    """From `separated_class` of runs with different seeds: how often a dimension separates the same class in two.

    The share among all (dimension, pair of runs); a dimension that separates no class agrees with none. Classes dealt
    out at random would give one over the number of classes.
    """
    if len(separated) < 2:
        raise ValueError(got(f"{len(separated)} run", need="two or more", do="train with another seed"))
    same = [(a == b) & (a >= 0) for a, b in combinations(map(np.asarray, separated), 2)]
    return float(np.mean(same))


def output_variances(embedding: Floats) -> NDArray[np.float64]:
    """Variance of each dimension over all samples, (d,)."""
    variances: NDArray[np.float64] = np.asarray(embedding, np.float64).var(0)
    return variances


def silverman_width(values: NDArray[np.float64]) -> float:
    """Silverman's width of a Gaussian kernel for the density of `values` (n,): 0.9 min(std, IQR / 1.34) / n^(1/5)."""
    low, high = np.quantile(values, [0.25, 0.75])
    spread = min(values.std(), (high - low) / 1.34) or values.std()
    return float(0.9 * spread * len(values) ** -0.2)


def agreement(decisions: Mapping[str, Integers]) -> dict[tuple[str, str], float]:
    """For each pair of predictors the share of the samples for which they decide alike."""
    return {
        (first, second): float(np.mean(np.asarray(decisions[first]) == np.asarray(decisions[second])))
        for first, second in combinations(decisions, 2)
    }


def _checked(embedding: Floats, labels: Integers) -> NDArray[np.float64]:
    """The embedding in float64."""
    x, y = np.asarray(embedding, np.float64), np.asarray(labels)
    if x.ndim != 2 or y.shape != x.shape[:1] or x.size == 0:
        what = f"embedding has shape {x.shape}, labels {y.shape}"
        raise ValueError(got(what, need="(n, d) and (n,)", do="give each sample one row and one label"))
    if not np.isfinite(x).all():
        raise ValueError(got("embedding holds NaN or infinity", need="finite numbers", do="see why the run diverged"))
    return x


def _membership(labels: Integers) -> NDArray[np.bool_]:
    """Which sample (row) is of which class (column), (n, C)."""
    classes = np.unique(labels)
    if len(classes) < 2:
        raise ValueError(got(f"{len(classes)} class", need="two or more", do="pass samples of other classes as well"))
    member: NDArray[np.bool_] = np.asarray(labels)[:, None] == classes
    return member


def _means(x: NDArray[np.float64], member: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Mean of each group of samples (a column of `member`), (C, d)."""
    means: NDArray[np.float64] = (member.T @ x) / member.sum(0)[:, None]
    return means


def _variances(x: NDArray[np.float64], member: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Variance of each group of samples, (C, d)."""
    means = _means(x, member)
    return np.stack([np.mean((x[group] - mean) ** 2, axis=0) for group, mean in zip(member.T, means, strict=True)])


def _rounding(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """By how much rounding may move a mean of each dimension, (d,)."""
    rounding: NDArray[np.float64] = _ROUNDING * np.abs(x).max(0)
    return rounding


def _ratio(
    above: NDArray[np.float64], below: NDArray[np.float64], rounding: NDArray[np.float64]
) -> NDArray[np.float64]:
    """above / below, with what rounding could have made taken for 0, and 0 / 0 = 0."""
    above = np.where(above <= rounding, 0.0, above)
    below = np.where(below <= rounding, 0.0, below)
    ratio = np.full(above.shape, np.inf)
    np.divide(above, below, out=ratio, where=below > 0)
    return np.where(above > 0, ratio, 0.0)
