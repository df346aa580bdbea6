"""Decisions, probabilities and feature names that the estimators have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin

Floats = NDArray[np.float64]


class DiscriminantClassifier(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is not typed
    """A classifier that predicts the class with the highest score; subclasses compute the scores."""

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return the score of each class, (n, n_classes); for two classes, the second minus the first, (n,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the label of each sample, (n,)."""
        # The scores come first, because they raise an error if the classifier is not fitted.
        best = self._scores(X).argmax(1)
        labels: NDArray[Any] = self.classes_[best]
        return labels

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the probability of each class, (n, n_classes), in the order of `classes_`."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: ArrayLike) -> Floats:
        """Return the logarithm of the probability of each class, (n, n_classes)."""
        logarithms: Floats = log_softmax(self._scores(X), axis=1)
        return logarithms

    def _scores(self, X: ArrayLike) -> Floats:
        """Compute the scores, (n, n_classes); without calibration, their softmax is the probability of each class."""
        raise NotImplementedError
