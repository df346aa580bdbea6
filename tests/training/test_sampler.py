"""Batches of an epoch: everybody once, classes spread, the same again for the same seed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeplda.sampling import epoch_batches, stratified_sample

cases = st.tuples(st.integers(2, 300), st.integers(2, 64), st.integers(2, 8), st.integers(0, 100), st.integers(0, 5))


def labels_of(n, classes, seed):
    return np.random.default_rng(seed).integers(0, classes, n)


@pytest.mark.parametrize("kind", ["shuffle", "stratified"])
@settings(max_examples=100, deadline=None)
@given(case=cases)
def test_every_sample_is_in_a_batch_and_batches_are_full(kind, case):
    n, batch_size, classes, seed, epoch = case
    batches = epoch_batches(labels_of(n, classes, seed), batch_size, kind=kind, seed=seed, epoch=epoch)
    places = np.concatenate(batches)
    assert set(places) == set(range(n))
    assert len(batches) == -(-n // batch_size)
    if kind == "shuffle":
        assert {len(batch) for batch in batches} == {min(n, batch_size)}
        extra = len(places) - n
        assert places[n:].tolist() == places[:extra].tolist()
    else:
        assert len(places) == n
        assert max(map(len, batches)) - min(map(len, batches)) <= 1


@settings(max_examples=100, deadline=None)
@given(cases)
def test_stratified_batches_hold_every_class_that_can_be_in_each(case):
    n, batch_size, classes, seed, epoch = case
    labels = labels_of(n, classes, seed)
    batches = epoch_batches(labels, batch_size, kind="stratified", seed=seed, epoch=epoch)
    for c, count in zip(*np.unique(labels, return_counts=True), strict=True):
        if count >= len(batches):
            assert all((labels[batch] == c).any() for batch in batches)


@pytest.mark.parametrize("kind", ["shuffle", "stratified"])
def test_an_epoch_is_a_function_of_seed_and_number(kind):
    labels = labels_of(100, 4, 0)

    def order(seed, epoch):
        return np.concatenate(epoch_batches(labels, 30, kind=kind, seed=seed, epoch=epoch)).tolist()

    assert order(1, 2) == order(1, 2)
    assert len({tuple(order(seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9


def test_stratified_sample_keeps_proportions_and_every_class():
    labels = np.repeat([0, 1, 2], [9000, 990, 10])
    sample = stratified_sample(labels, 1000, seed=0)
    assert np.bincount(labels[sample]).tolist() == [900, 99, 1]
    assert stratified_sample(labels, 20_000, seed=0).tolist() == list(range(10_000))
