"""The paper's third predictor: a classic LDA classifier on the embedding."""

from torch import Tensor

from deeplda.predictors.linear import LinearPredictor
from deeplda.predictors.statistics import FeatureStatistics


class ClassicLDA(LinearPredictor):
    """Gaussian classes with a shared covariance S = W / n, and empirical priors unless others are given.

    Scores -1/2 (h - mu_c)' S^-1 (h - mu_c) + log prior_c, up to what is the same for all classes, worked out as those
    of `NearestMean`; S^-1 is a pseudo-inverse, so that dead dimensions do no harm. Decides as
    `LinearDiscriminantAnalysis(solver="svd")` of scikit-learn 1.9; older ones divide by n - C.
    """

    default_priors = "empirical"

    def solve(self, statistics: FeatureStatistics) -> tuple[Tensor, Tensor]:
        means, middle, whitening = statistics.means, statistics.means.mean(0), statistics.whitening()
        normals = (means - middle) @ whitening @ whitening.T
        return normals, -((means + middle) * normals).sum(1) / 2
