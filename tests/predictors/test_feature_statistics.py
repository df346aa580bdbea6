"""Statistics that are gathered in batches, compared with the scatters of the complete set."""

import numpy as np
import pytest
import torch
from batches import gaussian_batch
from oracle import scatters

from deeplda.predictors import FeatureStatistics, NearestMean


@pytest.mark.parametrize(("scatter", "class_weight"), [("pooled", None), ("sum", "balanced"), ("dorfer", None)])
def test_statistics_are_the_scatters_of_the_reading(scatter, class_weight):
    h, y = gaussian_batch(60, 4, 3)
    statistics = FeatureStatistics.for_labels(torch.tensor(y), scatter=scatter, class_weight=class_weight)
    for part in np.array_split(np.arange(60), 9):
        statistics.update(torch.tensor(h[part]), torch.tensor(y[part]))
    s_w, s_b = scatters(h, y, scatter, class_weight)
    np.testing.assert_allclose(statistics.within(), s_w, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(statistics.between(), s_b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("seen", [[0, 0], [0, 1]])
def test_statistics_need_every_sample(seen):
    statistics = FeatureStatistics.for_labels(torch.tensor([0, 0, 1]))
    statistics.update(torch.randn(2, 3), torch.tensor(seen))
    with pytest.raises(RuntimeError, match="2 of 3 samples have been seen"):
        NearestMean().fit_statistics(statistics)
    statistics.update(torch.randn(2, 3), torch.tensor([0, 1]))
    with pytest.raises(RuntimeError, match="not the expected 3"):
        NearestMean().fit_statistics(statistics)


def test_statistics_reject_an_unknown_class():
    statistics = FeatureStatistics.for_labels(torch.tensor([0, 0, 1]))
    with pytest.raises(ValueError, match="labels contains 2, need one of the 2 classes"):
        statistics.update(torch.randn(2, 3), torch.tensor([0, 2]))


@pytest.mark.parametrize(("scatter", "class_weight"), [("pooled", None), ("sum", "balanced"), ("dorfer", None)])
def test_a_saved_state_restores_the_statistics(scatter, class_weight):
    h, y = gaussian_batch(60, 4, 3)
    options = {"scatter": scatter, "class_weight": class_weight}
    statistics = FeatureStatistics.for_labels(y, **options)
    statistics.update(h, y)
    restored = FeatureStatistics.from_state(statistics.state(), **options)
    for name in ("within", "between", "pooled", "whitening"):
        assert torch.equal(getattr(restored, name)(), getattr(statistics, name)())


def test_parts_merge_into_the_statistics_of_all():
    h, y = gaussian_batch(60, 4, 3)
    first, second = (FeatureStatistics.for_labels(y, class_weight="balanced") for _ in range(2))
    first.update(h[:20], y[:20])
    second.update(h[20:], y[20:])
    first.merge(second)
    s_w, s_b = scatters(h, y, "pooled", "balanced")
    np.testing.assert_allclose(first.within(), s_w, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(first.between(), s_b, rtol=1e-10, atol=1e-12)
