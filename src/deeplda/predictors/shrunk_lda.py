"""LDA for many dimensions and for classes with few samples, such as those added to a trained model."""

from __future__ import annotations

from torch import Tensor

from deeplda.core.oas import oas_shrinkage
from deeplda.predictors.feature_statistics import FeatureStatistics
from deeplda.predictors.linear import LinearPredictor, linear_rule


class ShrunkLDA(LinearPredictor):
    """LDA with a shrunk covariance, which corrects the distance to a class mean for the size of the class.

    The covariance is S' = (1 - s) S + s tr(S) / d I, where S = W / n is the pooled one and OAS gives the shrinkage s,
    from S and n. The mean of n_c samples has the covariance S / n_c itself, which makes every sample seem further away
    from it, on average by tr(S'^-1 S) / n_c; this number is subtracted from the squared distance, because a class with
    few samples would otherwise hardly ever be predicted. The priors are equal by default.
    """

    def _solve(self, statistics: FeatureStatistics) -> tuple[Tensor, Tensor]:
        covariance = statistics.pooled()
        factor = shrunk_whitening(statistics)
        weight, bias = linear_rule(statistics.means, statistics.means.mean(0), factor)
        excess = ((covariance @ factor) * factor).sum() / statistics.counts
        return weight, bias + excess / 2


def shrunk_whitening(statistics: FeatureStatistics) -> Tensor:
    """Return A, (d, r), where A A' is the inverse of the pooled covariance, shrunk towards a sphere by OAS."""
    shrinkage = oas_shrinkage(statistics.pooled(), float(statistics.counts.sum()))
    return statistics.whitening(shrinkage=shrinkage)
