"""The paper's second predictor: the class whose mean is nearest."""

from torch import Tensor

from deeplda.predictors.linear import LinearPredictor
from deeplda.predictors.statistics import FeatureStatistics


class NearestMean(LinearPredictor):
    """Scores h . mu_c - |mu_c|^2 / 2: up to |h|^2 / 2, minus half the squared Euclidean distance to each mean."""

    def solve(self, statistics: FeatureStatistics) -> tuple[Tensor, Tensor]:
        means = statistics.means
        return means, -means.square().sum(1) / 2
