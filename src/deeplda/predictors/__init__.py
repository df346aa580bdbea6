"""Predictors on an embedding: the paper's three, softmax, and a rule for few samples; scores of unknown inputs."""

from deeplda.predictors.balanced_ridge import BalancedRidge
from deeplda.predictors.calibration import Calibration
from deeplda.predictors.classifiers import ClassicLDA, Hyperplanes, NearestMean, Softmax, discriminant_directions
from deeplda.predictors.feature_statistics import FeatureStatistics
from deeplda.predictors.linear import LinearPredictor
from deeplda.predictors.unknown_scores import NeighbourScore, UnknownScore

__all__ = [
    "BalancedRidge",
    "Calibration",
    "ClassicLDA",
    "FeatureStatistics",
    "Hyperplanes",
    "LinearPredictor",
    "NearestMean",
    "NeighbourScore",
    "Softmax",
    "UnknownScore",
    "discriminant_directions",
]
