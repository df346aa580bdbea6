"""Moments: compared with literal sums, with extreme magnitudes, and merged."""

import numpy as np
import pytest
import torch
from batches import gaussian_batch, relative_error, tensors
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import scatters

from deeplda.core.moments import ClassMoments, class_moments, gram


def literal_sums(h, y):
    """Compute the paper's S_W and S_B one sample and one element at a time."""
    n, d = h.shape
    classes = sorted(set(y.tolist()))
    members = {c: [i for i in range(n) if y[i] == c] for c in classes}
    mean = {c: [sum(h[i, a] for i in members[c]) / len(members[c]) for a in range(d)] for c in classes}
    total = [sum(h[i, a] for i in range(n)) / n for a in range(d)]
    s_w, s_b = np.zeros((d, d)), np.zeros((d, d))
    for a in range(d):
        for b in range(d):
            for c in classes:
                s_b[a, b] += len(members[c]) * (mean[c][a] - total[a]) * (mean[c][b] - total[b])
                for i in members[c]:
                    s_w[a, b] += (h[i, a] - mean[c][a]) * (h[i, b] - mean[c][b])
    return s_w, s_b


def between_of(moments):
    """Compute the paper's S_B from moments."""
    mu = (moments.counts[:, None] * moments.means).sum(0) / moments.counts.sum()
    centred = moments.means - mu
    return (moments.counts[:, None] * centred).T @ centred


def test_scatters_are_the_papers_sums():
    h, y = gaussian_batch(30, 4, 3)
    s_w, s_b = literal_sums(h, y)
    moments = class_moments(*tensors(h, y))
    assert relative_error(moments.within, s_w) < 1e-13
    assert relative_error(between_of(moments), s_b) < 1e-13
    for found, true in zip(scatters(h, y, "sum", None), (s_w, s_b), strict=True):
        assert relative_error(found, true) < 1e-13


def test_classes_counts_and_means():
    features = torch.tensor([[1.0, 2.0], [3.0, 6.0], [10.0, 0.0]])
    moments = class_moments(features, torch.tensor([7, 7, 2]))
    assert moments.classes.tolist() == [2, 7]
    assert moments.counts.tolist() == [1, 2]
    assert moments.means.tolist() == [[10, 0], [2, 4]]
    assert moments.within.tolist() == [[2, 4], [4, 8]]


@pytest.mark.parametrize("offset", [0.0, 100.0, 1e4])
def test_float32_scatter_does_not_feel_an_offset(offset):
    h, y = gaussian_batch(500, 5, 3, offset=offset)
    h = h.astype(np.float32).astype(np.float64)
    s_w, s_b = scatters(h, y, "sum", None)
    moments = class_moments(*tensors(h, y, torch.float32))
    assert relative_error(moments.within, s_w) < 1e-6
    assert relative_error(between_of(moments), s_b) < 1e-12


@pytest.mark.parametrize("scale", [1e-30, 1e-15, 1e15, 1e30])
def test_float32_of_any_size(scale):
    h, y = gaussian_batch(100, 5, 3)
    h = (h * scale).astype(np.float32).astype(np.float64)
    s_w, _ = scatters(h, y, "sum", None)
    moments = class_moments(*tensors(h, y, torch.float32))
    assert relative_error(moments.within, s_w) < 1e-6


def test_wide_gram_equals_the_plain_product():
    rows = torch.randn(40, 1300, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(gram(rows), rows.T @ rows, rtol=0, atol=1e-12)


def test_nothing_is_allocated_by_the_largest_label():
    moments = class_moments(torch.randn(4, 2), torch.tensor([0, 2**62, 0, 2**62]))
    assert moments.classes.tolist() == [0, 2**62]


@pytest.mark.parametrize("ids", [[0, 1, 2], [2, 0, 1], [0, 2, 5], [1, 2, 3], [7, 10**12, 3]])
def test_class_ids_may_have_gaps_and_any_order(ids):
    h, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) * 7 % 3
    moments = class_moments(torch.tensor(h), torch.tensor(ids)[y])
    order = np.argsort(ids)
    assert moments.classes.tolist() == sorted(ids)
    assert moments.counts.tolist() == np.bincount(y)[order].tolist()
    np.testing.assert_allclose(moments.means, [h[y == k].mean(0) for k in order], rtol=1e-12)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 60), st.integers(1, 6), st.integers(1, 6), st.data())
def test_merged_moments_are_those_of_the_whole(seed, n, d, classes, data):
    rng = np.random.default_rng(seed)
    h, y = rng.normal(size=(n, d)) + 50, rng.integers(0, classes, n)
    cut = data.draw(st.integers(1, n - 1))
    features, labels = torch.tensor(h), torch.tensor(y)
    whole = class_moments(features, labels)
    merged = class_moments(features[:cut], labels[:cut]).merge(class_moments(features[cut:], labels[cut:]))
    assert merged.classes.tolist() == whole.classes.tolist()
    assert merged.counts.tolist() == whole.counts.tolist()
    torch.testing.assert_close(merged.means, whole.means, rtol=1e-13, atol=0)
    torch.testing.assert_close(merged.within, whole.within, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("scale", [1e-144, 1e-100, 1e100, 1e143])
def test_features_whose_squares_can_be_stored(scale):
    h, y = gaussian_batch(30, 4, 3)
    before, after = (class_moments(*tensors(x, y)) for x in (h, h * scale))
    torch.testing.assert_close(after.means / scale, before.means, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(after.within / scale / scale, before.within, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
def test_features_whose_squares_cannot_be_stored(scale):
    """They once had a scatter of zero or infinity, and predictors failed or decided at random."""
    h, y = gaussian_batch(30, 4, 3)
    message = r"features has a largest magnitude of .*, need 1e-145 to 1e\+145, .*: scale the features"
    with pytest.raises(ValueError, match=message):
        class_moments(*tensors(h * scale, y))
    assert (class_moments(*tensors(h * 0, y)).within == 0).all()


def test_merging_different_widths_is_refused():
    narrow = class_moments(torch.randn(4, 2), torch.tensor([0, 0, 1, 1]))
    wide = class_moments(torch.randn(4, 3), torch.tensor([0, 0, 1, 1]))
    with pytest.raises(ValueError, match="3 dimensions, need 2"):
        narrow.merge(wide)


def test_moments_carry_no_graph():
    features, labels = tensors(*gaussian_batch())
    moments = class_moments(features, labels)
    assert isinstance(moments, ClassMoments)
    assert not moments.within.requires_grad
    assert not moments.means.requires_grad


def test_a_weight_of_two_is_the_sample_twice():
    h, y = gaussian_batch(40, 4, 3)
    weights = np.random.default_rng(0).integers(1, 4, 40)
    weighted = class_moments(*tensors(h, y), torch.tensor(weights, dtype=torch.float64))
    repeated = class_moments(*tensors(h.repeat(weights, axis=0), y.repeat(weights)))
    for name in ("classes", "counts", "means", "within"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(repeated, name), rtol=1e-13, atol=1e-13)


def test_weights_do_not_feel_an_offset():
    h, y = gaussian_batch(200, 4, 3)
    weights = torch.tensor(np.random.default_rng(0).uniform(0.1, 9, 200))
    plain = class_moments(*tensors(h, y), weights)
    moved = class_moments(*tensors(h + 2.0**20, y), weights)
    np.testing.assert_allclose(moved.within, plain.within, rtol=1e-8, atol=1e-8)


def test_other_class_ids_permute_the_classes():
    h, y = gaussian_batch(30, 2, 3)
    renamed = class_moments(*tensors(h, y)).relabelled(torch.tensor([7, 2, 5]))
    other = class_moments(torch.tensor(h), torch.tensor([7, 2, 5])[torch.tensor(y)])
    for name in ("classes", "counts", "means", "within"):
        np.testing.assert_allclose(getattr(renamed, name), getattr(other, name), rtol=1e-13, atol=1e-13)
