"""The scikit-learn face: estimators on arrays and tables, trained by the same loop as the command line."""

from deeplda.estimators.classifier import DeepLDAClassifier

__all__ = ["DeepLDAClassifier"]
