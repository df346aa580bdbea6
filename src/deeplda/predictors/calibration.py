"""Turn scores into probabilities that can be trusted, and measure how far probabilities can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Floats = NDArray[np.float64]
Integers = NDArray[np.integer]

# The prior's inverse temperature times the median margin: odds of 22,000 to 1, which leaves the doubt to the share u.
_PRIOR_LOG_ODDS = 10.0
# Inverse temperatures relative to the prior's that are tried before the best one is refined, a factor of 2 apart.
_TRIED = np.log(2.0) * np.arange(-24, 25)
# Larger values would leave almost nothing of the scores, which still have to order the classes.
_LARGEST_SHARE = 0.99
_SHARE_DIGITS = 1e-12
# The posterior of u is computed for these values, which are denser near 0, and for inverse temperatures up to 64 times
# smaller and larger than the best one.
_SHARES = _LARGEST_SHARE * np.square((np.arange(200) + 0.5) / 200)
_AROUND = np.log(2.0) * np.linspace(-6, 6, 49)
# Probabilities that underflow are raised to this, whose logarithm and inverse are finite.
_LEAST = 1e-300
_BINS = 15


class Calibration(nn.Module):
    """The map from scores to probabilities: p = (1 - u) softmax(beta * scores) + u / C.

    The inverse temperature beta is the same for all samples and classes, and so is the share u of the probability that
    is spread evenly over the C classes. The class with the highest score always has the highest probability. Until
    `fit` is called, beta is 1 and u is 0, and the probabilities are the softmax of the scores.

    Buffers, all of shape (): inverse_temperature, beta > 0; uniform_share, 0 <= u <= 0.99; samples, the number of
    samples that they were fitted on, 0 if they were not.
    """

    inverse_temperature: Tensor
    uniform_share: Tensor
    samples: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("inverse_temperature", torch.tensor(1.0, dtype=torch.float64))
        self.register_buffer("uniform_share", torch.tensor(0.0, dtype=torch.float64))
        self.register_buffer("samples", torch.tensor(0))

    def forward(self, scores: Tensor) -> Tensor:
        """Return the probabilities (n, C) for scores (n, C)."""
        # Relative to the best score, an offset that all scores share costs no digits when it is multiplied.
        sharpened = ((scores - scores.amax(1, keepdim=True)) * self.inverse_temperature).softmax(1)
        return (1 - self.uniform_share) * sharpened + self.uniform_share / scores.shape[1]

    def log_probabilities(self, scores: Floats) -> Floats:
        """Return the logarithms of the probabilities (n, C) for scores (n, C); they do not underflow."""
        logits = float(self.inverse_temperature) * (scores - scores.max(1, keepdims=True))
        logs: Floats = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        share = float(self.uniform_share)
        return logs if share == 0 else np.logaddexp(np.log1p(-share) + logs, np.log(share / scores.shape[1]))

    def fit(self, scores: Floats, labels: Integers, sample_weight: Floats | None = None) -> Self:
        """Fit beta and u to scores (n, C) of samples outside the training set, with the classes 0..C-1 as labels (n,).

        They minimise the log loss of these samples plus one assumed mistake: each sample counts n + 1 times with its
        label and once with the most likely other class, out of n + 2, as in Laplace's rule of succession. A prior keeps
        few or perfectly separated samples from making beta extreme: it adds log(beta / b + b / beta), where b is 10
        divided by the median margin. A margin is the absolute difference between the scores of the true class and of
        the best other one; zeros are omitted. So scores that are multiplied by c > 0 get the inverse temperature
        beta / c and the same probabilities. With weights (n,), a sample of weight 2 counts as two samples. Without
        samples, nothing changes. Raises ValueError if the shapes or values of scores or labels do not fit.
        """
        scores, labels = _checked(scores, labels)
        if len(labels) == 0:
            return self
        weights = np.ones(len(labels)) if sample_weight is None else np.asarray(sample_weight, np.float64)
        temperature, share = _fitted(scores, labels, weights)
        self.inverse_temperature.fill_(temperature)
        self.uniform_share.fill_(share)
        self.samples.fill_(len(labels))
        return self


def _checked(scores: object, labels: object) -> tuple[Floats, Integers]:
    """Return scores (n, C) and labels (n,) as arrays. Raises ValueError unless they can be used."""
    found, places = np.asarray(scores), np.asarray(labels)
    if found.ndim != 2 or found.dtype.kind not in "biuf" or not np.isfinite(found).all():
        what = f"scores has shape {found.shape} and dtype {found.dtype}"
        raise ValueError(f"{what}, need finite numbers (n, C): pass one row per sample and one column per class")
    if places.shape != found.shape[:1] or (len(places) and places.dtype.kind not in "iu"):
        what = f"labels has shape {places.shape} and dtype {places.dtype}"
        raise ValueError(f"{what}, need {len(found)} integers: pass the position of each sample's class")
    if len(places) and not 0 <= places.min() <= places.max() < found.shape[1]:
        what = f"labels has values of {places.min()} to {places.max()}"
        raise ValueError(f"{what}, need positions among the {found.shape[1]} columns of scores")
    return found.astype(np.float64), places


def _fitted(scores: Floats, labels: Integers, weights: Floats) -> tuple[float, float]:
    """Return the inverse temperature and the uniform share for scores (n, C), labels (n,) and weights (n,)."""
    # Importing it takes a while, and predicting does not need it.
    from scipy.optimize import minimize_scalar

    (samples, classes), n = scores.shape, weights.sum()
    rows = np.arange(samples)
    # Relative to the best score, nothing overflows, and an offset that all scores share costs no digits.
    scores = scores - scores.max(1, keepdims=True)
    others = scores.copy()
    others[rows, labels] = -np.inf
    own, rival = scores[rows, labels], others.max(1)
    unit = _unit(np.abs(own - rival), weights)
    scores, own, rival = scores / unit, own / unit, rival / unit
    weights = np.concatenate([weights * ((n + 1) / (n + 2)), weights * (1 / (n + 2))])

    def loss_and_share(logarithm: float) -> tuple[float, float]:
        beta = np.exp(logarithm)
        total = np.exp(beta * scores).sum(1)
        sharpened = np.exp(beta * np.concatenate([own, rival])) / np.concatenate([total, total])
        sharpened = np.maximum(sharpened, _LEAST)
        share = _best_share(sharpened, weights, classes)
        losses = -np.log((1 - share) * sharpened + share / classes)
        return float(weights @ losses + np.logaddexp(logarithm, -logarithm)), share

    def loss(logarithm: float) -> float:
        return loss_and_share(logarithm)[0]

    first = _TRIED[np.argmin([loss(value) for value in _TRIED])]
    step = float(_TRIED[1] - _TRIED[0])
    found = minimize_scalar(loss, bounds=(first - step, first + step), method="bounded", options={"xatol": 1e-8})
    best = min(float(found.x), float(first), key=loss)
    return float(np.exp(best)) / unit, loss_and_share(best)[1]


def _unit(margins: Floats, weights: Floats) -> float:
    """Return the unit of scores in which the prior's inverse temperature is 1, for margins (n,) and weights (n,)."""
    # Samples with equal scores, such as those of dead features, say nothing about the unit.
    apart = np.flatnonzero((margins > _LEAST) & np.isfinite(margins) & (weights > 0))
    if not len(apart):
        return 1.0
    ordered = apart[np.argsort(margins[apart], kind="stable")]
    counted = np.cumsum(weights[ordered])
    # The median of repeated samples is the mean of the two in the middle.
    middle = [np.searchsorted(counted, counted[-1] / 2, side=side) for side in ("left", "right")]
    return float(margins[ordered[np.minimum(middle, len(ordered) - 1)]].mean()) / _PRIOR_LOG_ODDS


def _best_share(sharpened: Floats, weights: Floats, classes: int) -> float:
    """Return the u that maximises sum(w log((1 - u) p + u / C)), which is concave in u: the root of its derivative."""
    from scipy.optimize import brentq

    uniform = 1 / classes

    def slope(share: float) -> float:
        return float(weights @ ((uniform - sharpened) / ((1 - share) * sharpened + share * uniform)))

    if slope(0.0) <= 0:
        return 0.0
    if slope(_LARGEST_SHARE) >= 0:
        return _LARGEST_SHARE
    return float(brentq(slope, 0.0, _LARGEST_SHARE, xtol=_SHARE_DIGITS))


def share_quantiles(scores: Floats, labels: Integers, levels: Sequence[float]) -> Floats:
    """Return quantiles of the share u of a `Calibration`, given scores (n, C) and labels (n,) outside the training set.

    They are those of its posterior, with a uniform prior of u from 0 to 0.99, the prior of beta that `fit` has, and no
    assumed mistake.
    """
    scores, labels = _checked(scores, labels)
    if len(labels) == 0:
        return np.quantile(_SHARES, levels)
    (samples, classes), rows = scores.shape, np.arange(len(labels))
    scores = scores - scores.max(1, keepdims=True)
    others = scores.copy()
    others[rows, labels] = -np.inf
    unit = _unit(np.abs(scores[rows, labels] - others.max(1)), np.ones(samples))
    best = np.log(_fitted(scores, labels, np.ones(samples))[0] * unit)
    # The values of u are the closer to each other, the smaller its root is.
    posterior = np.zeros((len(_AROUND), len(_SHARES))) + 0.5 * np.log(_SHARES)
    for row, logarithm in zip(posterior, best + _AROUND, strict=True):
        logits = np.exp(logarithm) * (scores / unit)
        own = np.exp(logits[rows, labels]) / np.exp(logits).sum(1)
        # The same probabilities for all values of u at once would take much memory.
        row += [np.log((1 - u) * own + u / classes).sum() for u in _SHARES]
        row -= np.logaddexp(logarithm, -logarithm)
    weights = np.exp(posterior - posterior.max()).sum(0)
    return np.interp(levels, (np.cumsum(weights) - weights / 2) / weights.sum(), _SHARES)


def log_loss(log_probabilities: Floats, labels: Integers) -> float:
    """Return the mean of -log p_y, where p_y is the probability of the true class."""
    return float(-log_probabilities[np.arange(len(labels)), labels].mean())


def brier_score(probabilities: Floats, labels: Integers) -> float:
    """Return the mean over the samples of sum_c (p_c - [c = y])^2, from 0 (perfect) to 2."""
    of_truth = probabilities[np.arange(len(labels)), labels]
    return float((np.square(probabilities).sum(1) - 2 * of_truth + 1).mean())


@dataclass(frozen=True)
class ReliabilityBin:
    """The predictions whose confidence, the probability of the predicted class, lies in one bin.

    Attributes:
        count: the number of predictions.
        confidence: their mean confidence.
        accuracy: the fraction of them that is right.
    """

    count: int
    confidence: float
    accuracy: float


def reliability_bins(confidence: Floats, right: NDArray[np.bool_]) -> list[ReliabilityBin]:
    """Return the bins that are not empty, out of 15 of equal width from 0 to 1, for predictions (n,)."""
    places = np.minimum((confidence * _BINS).astype(np.int64), _BINS - 1)
    return [
        ReliabilityBin(int(here.sum()), float(confidence[here].mean()), float(right[here].mean()))
        for here in (places == place for place in np.unique(places))
    ]


def calibration_error(confidence: Floats, right: NDArray[np.bool_]) -> float:
    """Return the expected calibration error (ECE): the mean over all predictions of |accuracy - confidence| per bin.

    The bins are those of `reliability_bins`; only the probability of the predicted class counts.
    """
    bins = reliability_bins(confidence, right)
    return sum(found.count * abs(found.accuracy - found.confidence) for found in bins) / len(confidence)
