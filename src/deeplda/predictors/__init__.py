"""From an embedding to decisions: the paper's three predictors, and softmax for cross-entropy networks."""

from deeplda.predictors.classifiers import ClassicLDA, Hyperplanes, NearestMean, Softmax, discriminant_directions
from deeplda.predictors.feature_statistics import FeatureStatistics
from deeplda.predictors.linear import LinearPredictor

__all__ = [
    "ClassicLDA",
    "FeatureStatistics",
    "Hyperplanes",
    "LinearPredictor",
    "NearestMean",
    "Softmax",
    "discriminant_directions",
]
