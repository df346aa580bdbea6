"""From an embedding to decisions: the paper's three predictors, and softmax for cross-entropy networks."""

from deeplda.predictors.classic_lda import ClassicLDA
from deeplda.predictors.hyperplanes import Hyperplanes, discriminant_directions
from deeplda.predictors.linear import LinearPredictor
from deeplda.predictors.nearest_mean import NearestMean
from deeplda.predictors.softmax import Softmax
from deeplda.predictors.statistics import FeatureStatistics

__all__ = [
    "ClassicLDA",
    "FeatureStatistics",
    "Hyperplanes",
    "LinearPredictor",
    "NearestMean",
    "Softmax",
    "discriminant_directions",
]
