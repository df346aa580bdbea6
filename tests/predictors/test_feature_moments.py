"""The moments of features, from which those of standardised features follow."""

import numpy as np
import pytest
import torch

from deeplda.predictors import FeatureStatistics
from deeplda.predictors.feature_moments import FeatureMoments

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 2_500)
# Far from zero, in very different units, and the last feature is constant.
FEATURES = (RNG.normal(size=(2_500, 4)) + LABELS[:, None]) * [1, 1e-3, 1e4, 0] + [0, 5, -1e5, 0.1]
ROWS = FEATURES.astype(np.float32)
KEPT = np.array([0, 7, 8, 500, 2_499])


def moments(weights=None, ends=(7, 8, 1_000, 2_500)):
    found, start = FeatureMoments(LABELS, weights, KEPT), 0
    for end in ends:
        found.update(ROWS[start:end])
        start = end
    return found


def test_mean_and_deviation_are_those_of_all_samples():
    found = moments()
    np.testing.assert_allclose(found.mean, ROWS.mean(0, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(found.deviation, ROWS.std(0, dtype=np.float64), rtol=1e-9, atol=0)
    assert found.deviation[3] == 0


@pytest.mark.parametrize("weights", [None, RNG.uniform(0.5, 2, 2_500)])
@pytest.mark.parametrize("scatter", ["pooled", "sum"])
def test_statistics_are_those_of_standardised_features(weights, scatter):
    found = moments(weights)
    mean = torch.tensor(found.mean)
    deviation = torch.tensor(np.where(found.deviation > 0, found.deviation, 1))
    outputs, features, some = found.standardised(mean, deviation, scatter)
    expected = FeatureStatistics.for_labels(LABELS, weights, scatter=scatter)
    expected.update((ROWS - mean.numpy()) / deviation.numpy(), LABELS, weights)
    for statistics in (outputs, features):
        torch.testing.assert_close(statistics.counts, expected.counts)
        torch.testing.assert_close(statistics.means, expected.means, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(statistics.pooled(), expected.pooled(), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(outputs.within(), expected.within(), rtol=1e-7, atol=1e-6)
    torch.testing.assert_close(outputs.between(), expected.between(), rtol=1e-7, atol=1e-6)
    torch.testing.assert_close(some, (torch.from_numpy(ROWS[KEPT]) - mean) / deviation)


def test_scatters_that_weight_classes_are_rejected():
    with pytest.raises(ValueError, match="need 'pooled' or 'sum'"):
        moments().standardised(torch.zeros(4), torch.ones(4), "dorfer")
