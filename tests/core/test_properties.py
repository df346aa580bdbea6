"""Properties of every batch: invariances, and finite results without unexplained exceptions.

In total 2,600 batches are generated, ordinary ones for the invariances and hostile ones for the rest.
"""

import numpy as np
import pytest
import torch
from batches import COMBINATIONS
from hypothesis import given, settings
from hypothesis import strategies as st

from deeplda import DeepLDALoss
from deeplda.core import moments

pytestmark = pytest.mark.filterwarnings("ignore::deeplda.batch_rule.SmallBatchWarning")
combinations = st.sampled_from(COMBINATIONS)
alphas = st.sampled_from([0.0, 0.1, 0.6, 0.9, 1.0])


@st.composite
def sound_batches(draw):
    """Draw batches on which the loss is well-conditioned: enough samples, overlapping classes."""
    d, classes = draw(st.integers(1, 6)), draw(st.integers(2, 6))
    n = draw(st.integers(4 * (d + classes), 80))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    y = np.concatenate([np.arange(classes), np.arange(classes), rng.integers(0, classes, n - 2 * classes)])
    h = rng.normal(size=(n, d)) + rng.normal(size=(classes, d))[y]
    return torch.tensor(h), torch.tensor(y), rng


def value_of(features, labels, alpha, combination, lam=1e-3):
    statistic, scatter, class_weight = combination
    # Include all eigenvalues: otherwise rounding could move one across the threshold.
    criterion = DeepLDALoss(
        alpha=alpha, lam=lam, epsilon=1e9, statistic=statistic, scatter=scatter, class_weight=class_weight
    )
    return criterion(features, labels).item()


@settings(max_examples=200, deadline=None)
@given(sound_batches(), alphas, combinations)
def test_renaming_the_labels_changes_nothing(batch, alpha, combination):
    features, labels, rng = batch
    names = torch.tensor(rng.choice(1000, size=int(labels.max()) + 1, replace=False))
    renamed = value_of(features, names[labels], alpha, combination)
    assert renamed == pytest.approx(value_of(features, labels, alpha, combination), rel=1e-9)


@settings(max_examples=200, deadline=None)
@given(sound_batches(), alphas, combinations)
def test_the_order_of_samples_changes_nothing(batch, alpha, combination):
    features, labels, rng = batch
    order = torch.tensor(rng.permutation(len(labels)))
    permuted = value_of(features[order], labels[order], alpha, combination)
    assert permuted == pytest.approx(value_of(features, labels, alpha, combination), rel=1e-9)


@settings(max_examples=200, deadline=None)
@given(sound_batches(), alphas, combinations)
def test_shifting_the_features_changes_nothing(batch, alpha, combination):
    features, labels, rng = batch
    shift = torch.tensor(rng.normal(size=features.shape[1]) * 100)
    shifted = value_of(features + shift, labels, alpha, combination)
    assert shifted == pytest.approx(value_of(features, labels, alpha, combination), rel=1e-8)


@settings(max_examples=200, deadline=None)
@given(sound_batches(), combinations)
def test_an_invertible_map_changes_nothing_at_alpha_one_without_ridge(batch, combination):
    features, labels, rng = batch
    d = features.shape[1]
    map_ = torch.tensor(rng.normal(size=(d, d)) + 3 * np.eye(d))
    mapped = value_of(features @ map_, labels, 1.0, combination, lam=0.0)
    assert mapped == pytest.approx(value_of(features, labels, 1.0, combination, lam=0.0), rel=1e-6)


@settings(max_examples=200, deadline=None)
@given(sound_batches(), alphas, combinations)
def test_scaling_each_dimension_changes_nothing_without_ridge(batch, alpha, combination):
    features, labels, rng = batch
    factors = torch.tensor(np.exp(rng.normal(size=features.shape[1])))
    scaled = value_of(features * factors, labels, alpha, combination, lam=0.0)
    assert scaled == pytest.approx(value_of(features, labels, alpha, combination, lam=0.0), rel=1e-7)


@settings(max_examples=100, deadline=None)
@given(sound_batches(), alphas, st.sampled_from([c for c in COMBINATIONS if c[1] == "sum"]))
def test_sum_with_n_lam_is_pooled_with_lam(batch, alpha, combination):
    features, labels, _ = batch
    statistic, _, class_weight = combination
    pooled = value_of(features, labels, alpha, (statistic, "pooled", class_weight), lam=1e-2)
    summed = value_of(features, labels, alpha, combination, lam=1e-2 * len(labels))
    assert summed == pytest.approx(pooled, rel=1e-9)


@st.composite
def hostile_batches(draw):
    """Draw any shape and magnitude, repeated rows and columns, constant columns, tiny classes."""
    n, d = draw(st.integers(2, 40)), draw(st.integers(1, 40))
    classes = draw(st.integers(2, n))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    y = np.concatenate([[0, 1], rng.integers(0, classes, n - 2)])
    kind = draw(st.sampled_from(["normal", "integers", "relu", "points", "low rank", "mixed sizes"]))
    h = rng.normal(size=(n, d))
    if kind == "integers":
        h = rng.integers(-1, 2, size=(n, d)).astype(float)
    elif kind == "relu":
        h = np.maximum(h - 1.5, 0)
    elif kind == "points":
        h = rng.normal(size=(classes, d))[y]
    elif kind == "low rank":
        h = rng.normal(size=(n, 1)) @ rng.normal(size=(1, d))
    elif kind == "mixed sizes":
        h = h * 10.0 ** rng.integers(-8, 8, size=d)
    size = 10.0 ** draw(st.integers(-15, 15))
    offset = draw(st.sampled_from([0.0, 1.0, 1e4]))
    return (h + offset) * size, y


@settings(max_examples=1500, deadline=None)
@given(
    hostile_batches(),
    alphas,
    combinations,
    st.sampled_from([0.0, 1e-6, 1e-3, 10.0]),
    st.sampled_from([torch.float32, torch.float64]),
    st.sampled_from([0, moments._SMALL_PRODUCT]),
)
def test_every_batch_has_a_finite_loss_and_gradient(batch, alpha, combination, lam, dtype, small_product):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moments, "_SMALL_PRODUCT", small_product)
        assert_finite(batch, alpha, combination, lam, dtype)


def assert_finite(batch, alpha, combination, lam, dtype):
    h, y = batch
    statistic, scatter, class_weight = combination
    features = torch.tensor(h, dtype=dtype, requires_grad=True)
    criterion = DeepLDALoss(alpha=alpha, lam=lam, statistic=statistic, scatter=scatter, class_weight=class_weight)
    loss = criterion(features, torch.tensor(y))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(features.grad).all()
    assert torch.isfinite(criterion.diagnostics.eigenvalues).all()
