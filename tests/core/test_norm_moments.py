"""Sums of fourth powers in batches, compared with literal sums over the centred set."""

import numpy as np
import pytest
import torch
from batches import gaussian_batch, relative_error
from hypothesis import given, settings
from hypothesis import strategies as st

from deeplda.core.norm_moments import NormMoments


def literal_sums(h, y, w):
    """Compute sum z z', sum |z|^2 z and sum |z|^4 of each class, one sample at a time."""
    found = []
    for label in np.unique(y):
        rows, weights = h[y == label], w[y == label]
        mean = sum(weight * row for weight, row in zip(weights, rows, strict=True)) / weights.sum()
        second, third, fourth = np.zeros((h.shape[1],) * 2), np.zeros(h.shape[1]), 0.0
        for weight, z in zip(weights, rows - mean, strict=True):
            second += weight * np.outer(z, z)
            third += weight * (z @ z) * z
            fourth += weight * (z @ z) ** 2
        found.append((second, third, fourth))
    return [np.array(sums) for sums in zip(*found, strict=True)]


def assert_equal_sums(moments, h, y, w, tolerance=1e-12):
    names = ("scatters", "thirds", "fourths")
    for name, true in zip(names, literal_sums(h, y, w), strict=True):
        assert relative_error(getattr(moments, name), true) < tolerance, name


@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_sums_are_the_literal_ones(offset):
    h, y = gaussian_batch(40, 3, 4, offset=offset)
    w = np.random.default_rng(0).uniform(0.5, 3, 40)
    tolerance = 1e-12 if offset == 0 else 1e-8
    assert_equal_sums(NormMoments.of(torch.tensor(h), torch.tensor(y)), h, y, np.ones(40), tolerance)
    assert_equal_sums(NormMoments.of(torch.tensor(h), torch.tensor(y), torch.tensor(w)), h, y, w, tolerance)


@given(seed=st.integers(0, 10_000), parts=st.integers(2, 8))
@settings(max_examples=30, deadline=None)
def test_batches_in_any_order_have_the_sums_of_all(seed, parts):
    h, y = gaussian_batch(40, 3, 4, seed=seed)
    rng = np.random.default_rng(seed)
    w, merged = rng.uniform(0.1, 5, 40), None
    for part in np.array_split(rng.permutation(40), parts):
        found = NormMoments.of(torch.tensor(h[part]), torch.tensor(y[part]), torch.tensor(w[part]))
        merged = found if merged is None else merged.merge(found)
    assert_equal_sums(merged, h, y, w)


def test_extreme_magnitudes_keep_their_digits():
    h, y = gaussian_batch(40, 3, 4)
    moments = NormMoments.of(torch.tensor(h * 1e-30), torch.tensor(y))
    assert_equal_sums(moments, h * 1e-30, y, np.ones(40))
    merged = moments.merge(moments)
    np.testing.assert_allclose(merged.fourths, 2 * moments.fourths, rtol=1e-12)


def test_other_class_ids_permute_the_classes():
    h, y = gaussian_batch(40, 3, 3)
    moments = NormMoments.of(torch.tensor(h), torch.tensor(y))
    renamed = moments.relabelled(torch.tensor([7, 2, 5]))
    other = NormMoments.of(torch.tensor(h), torch.tensor([7, 2, 5])[torch.tensor(y)])
    for name in NormMoments.__slots__:
        np.testing.assert_allclose(getattr(renamed, name), getattr(other, name), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-71, 1e71])
def test_fourth_powers_at_the_limits(scale):
    h, y = gaussian_batch(30, 4, 3)
    before, after = (NormMoments.of(torch.tensor(x), torch.tensor(y)) for x in (h, h * scale))
    torch.testing.assert_close(after.fourths / scale**4, before.fourths, rtol=1e-12, atol=0)
    torch.testing.assert_close(after.thirds / scale**3, before.thirds, rtol=1e-9, atol=1e-9)
    for beyond in (1e-80 / scale, 1e80 / scale):
        with pytest.raises(ValueError, match=r"features has a largest magnitude of .*, need 3e-73 to 3e\+72"):
            NormMoments.of(torch.tensor(h * scale * beyond), torch.tensor(y))
