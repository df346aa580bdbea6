"""The paper's third predictor: a classic LDA classifier on the embedding."""

import torch
from torch import Tensor

from deeplda.predictors.linear import LinearPredictor
from deeplda.predictors.statistics import FeatureStatistics

# Directions with less than this share of variance, after each dimension is brought to variance 1, are left out.
_LEAST_VARIANCE = 1e-8


class ClassicLDA(LinearPredictor):
    """Gaussian classes with a shared covariance S = W / n and empirical priors.

    Scores h S^-1 mu_c - 1/2 mu_c' S^-1 mu_c + log prior_c; S^-1 is a pseudo-inverse, so that dead dimensions do no
    harm. Decides as scikit-learn's `LinearDiscriminantAnalysis(solver="svd")`.
    """

    def solve(self, statistics: FeatureStatistics) -> tuple[Tensor, Tensor]:
        means, counts = statistics.means, statistics.counts
        normals = means @ _pseudo_inverse(statistics.pooled())
        return normals, (counts / counts.sum()).log() - (means * normals).sum(1) / 2


def _pseudo_inverse(covariance: Tensor) -> Tensor:
    deviations = covariance.diagonal().sqrt()
    deviations = torch.where(deviations > 0, deviations, torch.inf)
    values, vectors = torch.linalg.eigh(covariance / torch.outer(deviations, deviations))
    kept = values > _LEAST_VARIANCE
    directions: Tensor = vectors[:, kept] / values[kept].sqrt() / deviations[:, None]
    return directions @ directions.T
