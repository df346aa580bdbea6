"""The paper's third predictor: a classic LDA classifier on the embedding."""

from torch import Tensor

from deeplda.predictors.linear import LinearPredictor
from deeplda.predictors.statistics import FeatureStatistics


class ClassicLDA(LinearPredictor):
    """Gaussian classes with a shared covariance S = W / n, and empirical priors unless others are given.

    Scores h S^-1 mu_c - 1/2 mu_c' S^-1 mu_c + log prior_c; S^-1 is a pseudo-inverse, so that dead dimensions do no
    harm. Decides as `LinearDiscriminantAnalysis(solver="svd")` of scikit-learn 1.9; older ones divide by n - C.
    """

    default_priors = "empirical"

    def solve(self, statistics: FeatureStatistics) -> tuple[Tensor, Tensor]:
        means, whitening = statistics.means, statistics.whitening()
        normals = means @ whitening @ whitening.T
        return normals, -(means * normals).sum(1) / 2
