"""Predictors on an embedding: the paper's three, and softmax for networks trained with cross-entropy."""

from deeplda.predictors.calibration import Calibration
from deeplda.predictors.classifiers import ClassicLDA, Hyperplanes, NearestMean, Softmax, discriminant_directions
from deeplda.predictors.feature_statistics import FeatureStatistics
from deeplda.predictors.linear import LinearPredictor

__all__ = [
    "Calibration",
    "ClassicLDA",
    "FeatureStatistics",
    "Hyperplanes",
    "LinearPredictor",
    "NearestMean",
    "Softmax",
    "discriminant_directions",
]
