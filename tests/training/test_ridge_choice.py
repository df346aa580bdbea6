"""The ridge of features that are not trained, compared with a literal search by scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.covariance import oas
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from deeplda.data.dataset import Part
from deeplda.predictors import Calibration, FeatureStatistics
from deeplda.training.ridge_choice import best_ridge, estimated_ridge


class RidgeCovariance:
    """A covariance estimator for scikit-learn: the covariance of a class plus a ridge."""

    def __init__(self, lam):
        self.lam = lam

    def fit(self, X):
        self.covariance_ = np.cov(X.T, bias=True) + self.lam * np.eye(X.shape[1])
        return self


def samples(n, seed):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(3).repeat(4), rng.choice(3, n - 12, p=(0.6, 0.3, 0.1))])
    means = np.random.default_rng(0).normal(size=(3, 30))
    noise = rng.normal(size=(n, 30)) @ np.diag(np.linspace(0.1, 3, 30))
    return means[labels] + noise + 100, labels


@pytest.mark.parametrize("n", [60, 400])
def test_the_best_ridge_is_that_of_a_search_with_scikit_learn(n):
    x, y = samples(n, 1)
    x_val, y_val = samples(80, 2)
    statistics = FeatureStatistics.for_labels(torch.as_tensor(y))
    statistics.update(torch.as_tensor(x), torch.as_tensor(y))
    found = best_ridge(statistics, torch.as_tensor(x_val), Part(x_val, y_val), "empirical")
    within = x - np.stack([x[y == label].mean(0) for label in range(3)])[y]
    losses = {}
    for exponent in np.arange(-6, 1.5, 0.5):
        lam = np.square(within).mean() * 10**exponent
        lda = LinearDiscriminantAnalysis(solver="lsqr", covariance_estimator=RidgeCovariance(lam)).fit(x, y)
        scores = lda.decision_function(x_val)
        calibration = Calibration().fit(scores, y_val)
        losses[lam] = -calibration.log_probabilities(scores)[np.arange(80), y_val].mean()
    assert found.lam == pytest.approx(min(losses, key=losses.get), rel=1e-5)


def test_without_a_validation_set_the_shrinkage_is_that_of_scikit_learn():
    x, y = samples(60, 1)
    statistics = FeatureStatistics.for_labels(torch.as_tensor(y))
    statistics.update(torch.as_tensor(x), torch.as_tensor(y))
    within = x - np.stack([x[y == label].mean(0) for label in range(3)])[y]
    _, shrinkage = oas(within, assume_centered=True)
    expected = shrinkage / (1 - shrinkage) * np.square(within).mean()
    assert estimated_ridge(statistics).lam == pytest.approx(expected, rel=1e-5)


def test_features_that_do_not_vary_within_the_classes():
    y = np.arange(3).repeat(5)
    statistics = FeatureStatistics.for_labels(torch.as_tensor(y))
    statistics.update(torch.eye(3)[y], torch.as_tensor(y))
    assert best_ridge(statistics, torch.eye(3), Part(np.eye(3), np.arange(3)), None).lam == 1e-3
