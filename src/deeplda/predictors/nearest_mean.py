"""The paper's second predictor: the class whose mean is nearest."""

from torch import Tensor

from deeplda.predictors.linear import LinearPredictor
from deeplda.predictors.statistics import FeatureStatistics


class NearestMean(LinearPredictor):
    """Scores -|h - mu_c|^2 / 2, up to what is the same for all classes.

    They are (h - (mu_c + m) / 2) . (mu_c - m), with m the mean of the means, so that an offset of the features costs
    few digits.
    """

    def solve(self, statistics: FeatureStatistics) -> tuple[Tensor, Tensor]:
        means, middle = statistics.means, statistics.means.mean(0)
        normals = means - middle
        return normals, -((means + middle) * normals).sum(1) / 2
