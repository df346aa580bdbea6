"""Scores against scikit-learn's."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score, confusion_matrix

from deeplda.training.evaluation import _accuracy, _balanced_accuracy, confusion


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_scikit_learns(seed):
    rng = np.random.default_rng(seed)
    labels, predicted = rng.integers(0, 4, 50), rng.integers(0, 4, 50)
    table = confusion(labels, predicted, 4)
    assert np.array_equal(table, confusion_matrix(labels, predicted, labels=range(4)))
    assert _accuracy(table) == pytest.approx(accuracy_score(labels, predicted))
    assert _balanced_accuracy(table) == pytest.approx(balanced_accuracy_score(labels, predicted))


def test_a_class_without_samples_does_not_count():
    table = confusion(np.array([0, 0, 1]), np.array([0, 2, 1]), 3)
    assert _balanced_accuracy(table) == pytest.approx(0.75)
