"""Scores of unknown inputs: the larger a score, the less a sample resembles those of the known classes."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deeplda.core.moments import ClassMoments
from deeplda.core.oas import oas_shrinkage
from deeplda.predictors.feature_statistics import FeatureStatistics

UnknownRule = Literal["neighbours", "relative", "mahalanobis", "probability"]
DistanceRule = Literal["relative", "mahalanobis"]
# The answer for a sample that is rejected.
NONE_OF_THESE = "none of these"
# The number of quantiles of known scores that are stored with a model, which allow any level of rejection.
QUANTILES = 1001
# The number of training samples whose features are stored with a model, and of samples that are added later.
MOST_NEIGHBOURS = 2000
# The neighbour that counts: the third of 2,000 did best with held-out classes as unknowns.
_NEIGHBOUR = 3


class NeighbourScore(nn.Module):
    """1 - cos of the angle between the features of a sample and those of its third nearest stored sample.

    This is the rule of Sun et al. (2022), "Out-of-distribution detection with deep nearest neighbors", on few samples.
    The length of the features is ignored: it depends on the contrast of an image more than on its class.

    Args:
        stored: (m, d), features of length 1, as `unit_rows` returns them.
    """

    stored: Tensor

    def __init__(self, stored: Tensor) -> None:
        super().__init__()
        self.neighbour = min(_NEIGHBOUR, len(stored))
        self.register_buffer("stored", stored)

    def forward(self, features: Tensor) -> Tensor:
        """Return the score of each sample, (n,) float64, for features (n, d)."""
        cosines = unit_rows(features) @ self.stored.T
        return 1 - cosines.topk(self.neighbour, 1).values[:, -1].double()


def unit_rows(features: Tensor) -> Tensor:
    """Return features (n, d) scaled to length 1, as float32; a row of zeros stays as it is."""
    rows = features.double()
    return (rows / rows.square().sum(1, keepdim=True).sqrt().clamp(min=1e-300)).float()


class UnknownScore(nn.Module):
    """A score of features (n, d), from the statistics of the training set in the same layer.

    Features are centred at the mean of all samples and whitened by the pooled covariance, which is shrunk by OAS.

    - "mahalanobis": the distance to the nearest class mean.
    - "relative": the squared distance to the nearest class mean minus the squared Mahalanobis distance to the centre
      with the covariance of all samples (Ren et al. 2021, "A simple fix to Mahalanobis distance").
    """

    centre: Tensor
    whitening: Tensor
    means: Tensor
    total: Tensor

    def __init__(self, statistics: FeatureStatistics, rule: DistanceRule) -> None:
        super().__init__()
        self.rule = rule
        shares = statistics.counts / statistics.counts.sum()
        centre, whitening = shares @ statistics.means, _shrunk_whitening(statistics)
        total = _shrunk_whitening(_as_one_class(statistics, centre)) if rule == "relative" else torch.empty(0, 0)
        self.register_buffer("centre", centre)
        self.register_buffer("whitening", whitening)
        self.register_buffer("means", (statistics.means - centre) @ whitening)
        self.register_buffer("total", total.double())

    def forward(self, features: Tensor) -> Tensor:
        """Return the score of each sample, (n,) float64, for features (n, d)."""
        centred = features.double() - self.centre
        rows = centred @ self.whitening
        squares = (rows.square().sum(1, keepdim=True) + self.means.square().sum(1) - 2 * rows @ self.means.T).amin(1)
        if self.rule == "mahalanobis":
            return squares.clamp(min=0).sqrt()
        return squares - (centred @ self.total).square().sum(1)


def _shrunk_whitening(statistics: FeatureStatistics) -> Tensor:
    """Return A, (d, r), where A A' is the inverse of the pooled covariance, shrunk towards a sphere by OAS."""
    shrinkage = oas_shrinkage(statistics.pooled(), float(statistics.counts.sum()))
    return statistics.whitening(shrinkage=shrinkage)


def _as_one_class(statistics: FeatureStatistics, centre: Tensor) -> FeatureStatistics:
    """Return the statistics of the same samples without their classes."""
    counts = statistics.counts
    means = statistics.means - centre
    scatter = statistics.pooled() * counts.sum() + (counts[:, None] * means).T @ means
    return FeatureStatistics.of(ClassMoments(torch.tensor([0]), counts.sum()[None], centre[None], scatter))


def score_quantiles(scores: NDArray[np.float64]) -> Tensor:
    """Return the quantiles 0, 0.001, ..., 1 of known scores (n,), as (1001,) float64."""
    return torch.from_numpy(np.quantile(scores, np.linspace(0, 1, QUANTILES)))


def threshold(quantiles: Tensor, level: float) -> float:
    """Return the score that a share `level` of the known samples does not exceed, between two stored quantiles."""
    return float(np.interp(level, np.linspace(0, 1, QUANTILES), quantiles.numpy()))
