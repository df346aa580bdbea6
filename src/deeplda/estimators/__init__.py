"""The scikit-learn face: estimators on arrays and tables, trained by the same loop as the command line."""

from deeplda.estimators.classifier import DeepLDAClassifier
from deeplda.estimators.subclass_classifier import SubclassDeepLDAClassifier

__all__ = ["DeepLDAClassifier", "SubclassDeepLDAClassifier"]
