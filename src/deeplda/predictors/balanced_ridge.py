"""The nearest class mean under a ridge: a rule for classes with few samples, such as those added to a trained model."""

from __future__ import annotations

import torch
from torch import Tensor

from deeplda.predictors.feature_statistics import FeatureStatistics
from deeplda.predictors.linear import LinearPredictor

# The ridges that are tried, in units of the mean variance of a feature, the largest first: 10 to 0.0001.
_RIDGES = tuple(10 ** (1 - step / 4) for step in range(21))
# The share of the optimism of a class's score that is given back to it, chosen on pairs of digits that
# benchmarks/new_classes.py does not leave out: more finds more samples of new classes, and loses old ones.
_GIVEN_BACK = 0.15
_LEAST = 1e-300


class BalancedRidge(LinearPredictor):
    """The nearest class mean in the metric of the total covariance plus a ridge; all classes have the same weight.

    With the class means mu_c, their mean m and the pooled covariance S = W / n, the features have the covariance
    G = S + 1/C sum_c (mu_c - m)(mu_c - m)'. With a_c = (G + lam I)^-1 (mu_c - m), the score of class c is
    a_c' (h - m) - a_c' (mu_c - m) / 2. Its first term is ridge regression of the class indicators on the features. The
    second term is the same for all classes if they are far apart compared with S. If they are not, regression hardly
    ever predicts the classes near m, and the second term makes up for that.

    Generalised cross-validation of the regression chooses lam from 21 values between 0.0001 and 10 times tr(G) / d. It
    needs only these moments and the effective number of samples, C^2 / sum_c 1 / n_c.

    On the n_c samples that its mean is computed from, the score of a class is too high by tr((G + lam I)^-1 S) / n_c,
    so a class with few samples would hardly ever be predicted. Its score gets 15 % of this number.
    """

    def _solve(self, statistics: FeatureStatistics) -> tuple[Tensor, Tensor]:
        middle = statistics.means.mean(0)
        means, within = statistics.means - middle, statistics.pooled()
        variances, axes = torch.linalg.eigh(within + means.T @ means / len(means))
        variances = variances.clamp(min=0)
        rotated = means @ axes
        factors = 1 / (variances + _best_ridge(variances, rotated, statistics.counts))
        weight = (rotated * factors) @ axes.T
        optimism = (((within @ axes) * axes).sum(0) * factors).sum() / statistics.counts
        halves = (weight * means).sum(1) / 2
        return weight, _GIVEN_BACK * optimism - weight @ middle - halves


def _best_ridge(variances: Tensor, means: Tensor, counts: Tensor) -> Tensor:
    """Return the ridge with the least generalised cross-validation error.

    Arguments are the eigenvalues of G, (d,), the centred class means (C, d) along its eigenvectors, and the number of
    samples of each class, (C,). The error is RSS / (1 - f / n)^2, where f is the number of degrees of freedom.
    """
    classes = len(means)
    samples = classes**2 / (1 / counts).sum()
    ridges = torch.tensor(_RIDGES, dtype=torch.float64) * variances.mean().clamp(min=_LEAST)
    errors = []
    for ridge in ridges:
        fitted = means / classes / (variances + ridge)
        residual = 1 - 1 / classes - 2 * (fitted * means / classes).sum() + (fitted.square() * variances).sum()
        left = 1 - (variances / (variances + ridge)).sum() / samples
        errors.append(residual / left.square() if left > 0 else torch.tensor(torch.inf))
    # The first of equal errors, so the largest ridge if there are fewer samples than degrees of freedom throughout.
    return ridges[torch.stack(errors).argmin()]
