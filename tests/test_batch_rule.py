"""The rule for batches that are too small, at its boundaries, and what it advises."""

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from deeplda.batch_rule import (
    default_width,
    effective_samples,
    enough_samples,
    is_too_small,
    needed_samples,
    remedies,
    samples_in_subset,
    why_too_small,
)


def subset(batch_size, samples):
    """Return the counts in a batch of a subset of the classes with `samples` samples each, or slightly more."""
    classes = batch_size // samples
    return [batch_size / classes] * classes


widths = st.integers(1, 300)
batches = st.lists(st.integers(1, 60), min_size=2, max_size=60)


@given(batches)
def test_effective_samples_are_those_of_the_harmonic_mean(counts):
    harmonic = len(counts) / np.sum(1 / np.array(counts))
    assert effective_samples(counts) == pytest.approx(len(counts) * harmonic)
    assert effective_samples(counts) <= sum(counts) * (1 + 1e-12)


@given(st.integers(1, 60), st.integers(2, 60))
def test_equal_classes_count_in_full(each, classes):
    assert effective_samples([each] * classes) == pytest.approx(each * classes)


@given(batches, widths)
def test_more_of_everything_is_never_too_small_if_less_was_enough(counts, dims):
    if not is_too_small(counts, dims):
        assert not is_too_small([2 * count for count in counts], dims)
        assert not is_too_small(counts, max(len(counts) - 1, dims - 1))
    if enough_samples(counts, dims):
        assert enough_samples([count + 1 for count in counts], dims)


@given(st.integers(2, 200), st.integers(1, 400))
def test_the_boundary_is_the_number_of_needed_samples(classes, dims):
    """A batch of equal classes suits the width from the needed number of samples on, if the width is not too small."""
    needed = needed_samples(classes, dims)
    assert is_too_small([(needed - 1) / classes] * classes, dims)
    assert is_too_small([(needed + 1) / classes] * classes, dims) == (dims < classes - 1)


@pytest.mark.parametrize(("dims", "too_small"), [(8, True), (9, False), (40, False), (200, True)])
def test_both_sides_of_the_width(dims, too_small):
    assert is_too_small([10] * 10, dims) == too_small


@given(batches, widths)
@example([33, 33, 44], 1)  # worth 108 samples, up to rounding, which suffice for 69 dimensions
def test_each_remedy_suffices(counts, dims):
    assume(is_too_small(counts, dims))
    found, size, classes = remedies(counts, dims), sum(counts), len(counts)
    assert any(remedy is not None for remedy in found)
    if found.batch_size is not None:
        larger, width = found.batch_size
        assert not is_too_small([count * larger / size for count in counts], width)
        assert larger > size or width != dims
    if found.dims is not None:
        assert not any(is_too_small(counts, width) for width in found.dims)
        assert is_too_small(counts, found.dims[1] + 1)
    if found.subset is not None:
        assert not is_too_small(subset(size, found.subset), dims)
    if found.narrow_subset is not None:
        samples, width = found.narrow_subset
        assert width < dims
        assert not is_too_small(subset(size, samples), width)
    for samples in filter(None, (found.subset, found.narrow_subset and found.narrow_subset[0])):
        assert 4 <= size // samples < classes


@given(st.integers(2, 2000), st.integers(32, 4096))
def test_the_default_width_suits_the_batches_that_are_drawn_for_it(classes, batch_size):
    """Either all classes fit, or a subset does, or the batch needs only a few more samples for all of them."""
    dims = default_width(classes, batch_size)
    assert dims <= classes
    if enough_samples([batch_size / classes] * classes, dims):
        assert dims == classes
        return
    samples = samples_in_subset(classes, batch_size, dims)
    assert samples is None or not is_too_small(subset(batch_size, samples), dims)
    assert samples is not None or classes <= 16


def test_the_reason_has_the_numbers():
    assert "10 classes differ in up to 9 directions, and 5 dimensions" in why_too_small([20] * 10, 5)
    assert f"need {needed_samples(10, 64)} samples" in why_too_small([3] * 10, 64)
    assert "unbalanced" not in why_too_small([3] * 10, 64)
    assert "a batch of 44 with classes this unbalanced is worth 9" in why_too_small([20, 20, 1, 1, 1, 1], 64)
