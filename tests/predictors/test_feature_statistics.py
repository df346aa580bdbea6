"""Statistics that are gathered in batches, compared with the scatters of the complete set."""

import numpy as np
import pytest
import torch
from batches import gaussian_batch
from oracle import scatters
from sklearn.covariance import shrunk_covariance

from deeplda.core import class_moments
from deeplda.predictors import FeatureStatistics, Hyperplanes, NearestMean


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
    if scatter != "pooled":
        # The means of the weighted features decide what a merge adds to the scatter.
        torch.testing.assert_close(restored._weighted.means, statistics._weighted.means)


def test_a_state_without_class_sizes_is_restored_without_them():
    """It once came back with them, and further samples were an error."""
    h, y = gaussian_batch(60, 4, 3)
    statistics = FeatureStatistics()
    statistics.update(h[:40], y[:40] % 2)
    restored = FeatureStatistics.from_state(statistics.state())
    for one in (statistics, restored):
        one.update(h[40:], y[40:])
    assert torch.equal(restored.classes, statistics.classes)
    for name in ("within", "between", "pooled", "whitening"):
        assert torch.equal(getattr(restored, name)(), getattr(statistics, name)())


def test_a_state_with_class_sizes_is_restored_with_them():
    h, y = gaussian_batch(60, 4, 3)
    statistics = FeatureStatistics.for_labels(y)
    statistics.update(h, y)
    state = statistics.state()
    for found in (state, {name: value for name, value in state.items() if name != "announced"}):
        with pytest.raises(ValueError, match="labels contains 3"):
            FeatureStatistics.from_state(found).update(h, y + 1)


@pytest.mark.parametrize(
    ("classes", "counts", "error", "message"),
    [
        ([0, 1], [3, 4], TypeError, "classes is of type list, need a tensor or an array of numbers"),
        (np.arange(2), "34", TypeError, "counts is of type str"),
        (np.arange(2), np.array(3), ValueError, r"classes has shape \(2,\) and counts has shape \(\)"),
        (np.arange(2), np.ones(3), ValueError, r"classes has shape \(2,\) and counts has shape \(3,\)"),
        (np.array([0.5, 1]), np.ones(2), ValueError, r"classes is \[0.5, 1.0\], need ascending class ids"),
        (np.array([1, 0]), np.ones(2), ValueError, r"classes is \[1, 0\], need ascending class ids"),
        (np.arange(2), np.array([3, 0]), ValueError, r"counts is \[3, 0\], need positive finite numbers"),
    ],
)
def test_class_sizes_that_cannot_be_used(classes, counts, error, message):
    with pytest.raises(error, match=message):
        FeatureStatistics(classes, counts)


def test_parts_merge_into_the_statistics_of_all():
    h, y = gaussian_batch(60, 4, 3)
    first, second = (FeatureStatistics.for_labels(y, class_weight="balanced") for _ in range(2))
    first.update(h[:20], y[:20])
    second.update(h[20:], y[20:])
    first.merge(second)
    s_w, s_b = scatters(h, y, "pooled", "balanced")
    np.testing.assert_allclose(first.within(), s_w, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(first.between(), s_b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("ours", "theirs", "message"),
    [
        ({"class_weight": "balanced"}, {}, "class_weight None, need 'pooled' and 'balanced'"),
        ({}, {"class_weight": "balanced"}, "class_weight 'balanced', need 'pooled' and None"),
        ({"scatter": "sum"}, {"scatter": "dorfer"}, "scatter 'dorfer' and class_weight None, need 'sum'"),
        ({"labels": [0, 1, 1]}, {"labels": [0, 0, 1]}, "different classes or class sizes"),
        ({"labels": [0, 1, 1]}, {"labels": [0, 2, 2]}, "different classes or class sizes"),
        ({"labels": [0, 1, 1]}, {"labels": None}, "different classes or class sizes"),
        ({"labels": None}, {"labels": [0, 1, 1]}, "different classes or class sizes"),
    ],
)
def test_statistics_of_another_set_are_not_merged(ours, theirs, message):
    """Unweighted statistics, merged into balanced ones, once left half of the trace without an error."""
    first, second = (make_statistics(**options) for options in (ours, theirs))
    first.update(np.eye(3)[:1], np.array([0]))
    second.update(np.eye(3)[1:2], np.array([0]))
    with pytest.raises(ValueError, match=message):
        first.merge(second)
    assert first._plain.counts.tolist() == [1]


def make_statistics(labels=(0, 1, 1), **options):
    if labels is None:
        return FeatureStatistics(**options)
    return FeatureStatistics.for_labels(np.array(labels), **options)


@pytest.mark.parametrize("scatter", ["pooled", "sum"])
def test_without_class_sizes_results_describe_the_samples_seen_so_far(scatter):
    h, y = gaussian_batch(60, 4, 3)
    # The last class appears only in the last batches.
    order = np.argsort(y == 2, kind="stable")
    h, y = h[order], y[order]
    statistics = FeatureStatistics(scatter=scatter)
    for part in np.array_split(np.arange(60), 9):
        statistics.update(h[part], y[part])
        seen = slice(0, part[-1] + 1)
        s_w, s_b = scatters(h[seen], y[seen], scatter, None)
        np.testing.assert_array_equal(statistics.classes, np.unique(y[seen]))
        np.testing.assert_array_equal(statistics.counts, np.bincount(y[seen]))
        np.testing.assert_allclose(statistics.within(), s_w, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(statistics.between(), s_b, rtol=1e-10, atol=1e-12)
    whole = Hyperplanes(scatter=scatter).fit(h, y)
    torch.testing.assert_close(Hyperplanes(scatter=scatter).fit_statistics(statistics).weight, whole.weight)


def test_without_class_sizes_different_sets_are_merged_into_their_union():
    h, y = gaussian_batch(60, 4, 3)
    first, second = FeatureStatistics(), FeatureStatistics()
    first.merge(second)
    first.update(h[:10], y[:10] % 2)
    second.update(h[10:], y[10:] + 1)
    first.merge(second)
    labels = np.concatenate([y[:10] % 2, y[10:] + 1])
    s_w, s_b = scatters(h, labels, "pooled", None)
    np.testing.assert_allclose(first.within(), s_w, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(first.between(), s_b, rtol=1e-10, atol=1e-12)
    larger = first.with_class(h[:7] + 3, 9)
    larger.update(h[7:9], np.array([0, 9]))
    assert larger.classes.tolist() == [0, 1, 2, 3, 9]
    assert larger.counts.sum() == 69


def test_statistics_without_class_sizes_need_samples():
    assert len(FeatureStatistics().classes) == 0
    with pytest.raises(RuntimeError, match="no samples have been seen"):
        NearestMean().fit_statistics(FeatureStatistics())


@pytest.mark.parametrize("options", [{"scatter": "dorfer"}, {"class_weight": "balanced"}])
def test_some_scatters_need_class_sizes(options):
    with pytest.raises(ValueError, match="the class sizes are not given"):
        FeatureStatistics(**options)
    with pytest.raises(ValueError, match="only one of classes and counts is given"):
        FeatureStatistics(torch.arange(3))


@pytest.mark.parametrize("options", [{"labels": None}, {"class_weight": "balanced"}])
def test_a_batch_that_is_rejected_changes_nothing(options):
    statistics = make_statistics(**options)
    statistics.update(np.eye(3)[:1], np.array([0]))
    for features, labels in ((np.ones((2, 4)), [1, 1]), (np.full((2, 3), np.nan), [1, 1]), (np.ones((2, 3)), [1.0, 1])):
        with pytest.raises((ValueError, TypeError)):
            statistics.update(features, np.array(labels))
    statistics.update(np.eye(3)[1:], np.array([1, 1]))
    assert statistics.counts.tolist() == [1, 2]


@pytest.mark.parametrize(("shrinkage", "lam"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.5), (1.0, 0.0), (0.2, 2.0)])
def test_whitening_inverts_the_regularised_covariance(shrinkage, lam):
    h, y = gaussian_batch(60, 4, 3)
    whitening = FeatureStatistics.of(class_moments(torch.tensor(h), torch.tensor(y))).whitening(
        shrinkage=shrinkage, lam=lam
    )
    covariance = shrunk_covariance(scatters(h, y, "pooled", None)[0], shrinkage) + lam * np.eye(4)
    np.testing.assert_allclose(whitening @ whitening.T, np.linalg.inv(covariance), rtol=1e-10, atol=1e-12)


def test_small_weights_do_not_revive_constant_dimensions():
    h, y = gaussian_batch(60, 4, 3)
    h[:, 2] = 0.1
    weights = torch.full((60,), 1e-6, dtype=torch.float64)
    parts = [class_moments(torch.tensor(h[i::7]), torch.tensor(y[i::7]), weights[i::7]) for i in range(7)]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged.merge(part)
    assert FeatureStatistics.of(merged).whitening().shape == (4, 3)


def test_statistics_of_weighted_moments_have_the_scatters_of_repeated_samples():
    h, y = gaussian_batch(30, 4, 3)
    weights = np.random.default_rng(0).uniform(0.1, 0.4, 30)
    whole = np.round(weights * 1000).astype(int)
    moments = class_moments(torch.tensor(h), torch.tensor(y), torch.tensor(whole / 1000))
    s_w, s_b = scatters(h.repeat(whole, axis=0), y.repeat(whole), "pooled", None)
    np.testing.assert_allclose(FeatureStatistics.of(moments).within(), s_w, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(FeatureStatistics.of(moments).between(), s_b, rtol=1e-10, atol=1e-12)


def test_a_state_without_weighted_scatter_is_not_restored_as_weighted() -> None:
    features, labels = torch.randn(30, 3, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3
    statistics = FeatureStatistics.for_labels(labels)
    statistics.update(features, labels)
    with pytest.raises(ValueError, match="no weighted scatter"):
        FeatureStatistics.from_state(statistics.state(), class_weight="balanced")


@pytest.mark.parametrize("options", [{}, {"scatter": "sum"}, {"class_weight": "balanced"}])
def test_weighted_samples_are_repeated_samples(options):
    h, y = gaussian_batch(60, 4, 3)
    weights = np.random.default_rng(0).integers(0, 4, 60)
    weights[:3] = 1
    copies = np.repeat(np.arange(60), weights)
    weighted = FeatureStatistics.for_labels(y, weights, **options)
    for part in np.array_split(np.arange(60), 4):
        weighted.update(h[part], y[part], weights[part])
    repeated = FeatureStatistics.for_labels(y[copies], **options)
    repeated.update(h[copies], y[copies])
    for name in ("within", "between", "pooled", "whitening"):
        np.testing.assert_allclose(getattr(weighted, name)(), getattr(repeated, name)(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(weighted.counts, repeated.counts)
    predictor = Hyperplanes(**options).fit(h, y, weights)
    again = Hyperplanes(**options).fit(h[copies], y[copies])
    np.testing.assert_allclose(predictor.weight, again.weight, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(predictor.bias, again.bias, rtol=1e-7, atol=1e-9)


def test_real_weights_in_any_order_are_complete():
    """Sums of weights round differently in another order."""
    h, y = gaussian_batch(500, 3, 2)
    weights = np.random.default_rng(0).uniform(0.01, 3, 500)
    statistics = FeatureStatistics.for_labels(y, weights)
    for part in np.array_split(np.random.default_rng(1).permutation(500), 90):
        statistics.update(h[part], y[part], weights[part])
    assert statistics.within().shape == (3, 3)
    statistics.update(h[:1], y[:1], np.array([0.01]))
    with pytest.raises(RuntimeError, match="the samples seen are not the expected"):
        statistics.within()


def test_unbiased_covariances_have_no_weights():
    h, y = gaussian_batch(20, 2, 2)
    with pytest.raises(ValueError, match="scatter is 'dorfer' but samples have weights"):
        FeatureStatistics.for_labels(y, np.ones(20), scatter="dorfer")
    with pytest.raises(ValueError, match="scatter is 'dorfer' but samples have weights"):
        FeatureStatistics.for_labels(y, scatter="dorfer").update(h, y, np.ones(20))
