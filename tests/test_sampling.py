"""Batches of an epoch, subsamples and held-out parts: exact, stratified, and the same for the same seed."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Sampler, TensorDataset

import deeplda
from deeplda.sampling import (
    ShuffledBatchSampler,
    StratifiedBatchSampler,
    allocate,
    build_sampler,
    stratified_sample,
    stratified_split,
)

cases = st.tuples(st.integers(2, 300), st.integers(4, 64), st.integers(2, 8), st.integers(0, 100), st.integers(0, 5))
KINDS = {
    "shuffle": ShuffledBatchSampler,
    "stratified": StratifiedBatchSampler,
    "subset": partial(StratifiedBatchSampler, samples_per_class=2),
}
every_sampler = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())


def labels_of(n, classes, seed):
    return np.random.default_rng(seed).integers(0, classes, n)


def batches_of(make, labels, batch_size, *, seed=0, epoch=0, **ranks):
    sampler = make(labels, batch_size, seed=seed, **ranks)
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert len(sampler) == len(batches)
    return batches


@every_sampler
@settings(max_examples=100, deadline=None)
@given(case=cases)
def test_every_sample_is_in_a_batch_and_batches_are_full(make, case):
    n, batch_size, classes, seed, epoch = case
    batches = batches_of(make, labels_of(n, classes, seed), batch_size, seed=seed, epoch=epoch)
    places = np.concatenate(batches).tolist()
    assert set(places) == set(range(n))
    assert len(batches) == -(-n // batch_size)
    if make is ShuffledBatchSampler:
        assert {len(batch) for batch in batches} == {min(n, batch_size)}
        assert places[n:] == places[: len(places) - n]
    else:
        assert len(places) == n
        if make is StratifiedBatchSampler:
            assert max(map(len, batches)) - min(map(len, batches)) <= 1


@every_sampler
def test_batches_are_also_available_as_arrays(make):
    sampler = make(labels_of(100, 4, seed=0), 16, num_replicas=2, rank=1)
    sampler.set_epoch(3)
    arrays = sampler.batches()
    assert [batch.tolist() for batch in arrays] == list(sampler)
    assert all(batch.flags.c_contiguous for batch in arrays)


@settings(max_examples=100, deadline=None)
@given(cases)
def test_stratified_batches_hold_every_class_that_can_be_in_each(case):
    n, batch_size, classes, seed, epoch = case
    labels = labels_of(n, classes, seed)
    batches = batches_of(StratifiedBatchSampler, labels, batch_size, seed=seed, epoch=epoch)
    for c, count in zip(*np.unique(labels, return_counts=True), strict=True):
        shares = [int((labels[batch] == c).sum()) for batch in batches]
        assert max(shares) - min(shares) <= 1
        assert count < len(batches) or min(shares) > 0


@settings(max_examples=100, deadline=None)
@given(case=cases, samples_per_class=st.integers(2, 12))
def test_the_classes_of_a_batch_have_the_given_number_of_samples(case, samples_per_class):
    n, batch_size, classes, seed, epoch = case
    batch_size = max(batch_size, 2 * samples_per_class)
    labels = labels_of(n, classes, seed)
    make = partial(StratifiedBatchSampler, samples_per_class=samples_per_class)
    batches = batches_of(make, labels, batch_size, seed=seed, epoch=epoch)
    totals = dict(zip(*np.unique(labels, return_counts=True), strict=True))
    for batch in batches:
        for c, count in zip(*np.unique(labels[batch], return_counts=True), strict=True):
            assert count >= min(totals[c], np.floor(2 * samples_per_class / 3))
    # Each batch has the same number of groups, which have at most 3/2 of the given size.
    groups = sum(max(1, round(total / samples_per_class)) for total in totals.values())
    assert max(map(len, batches)) <= -(-groups // len(batches)) * np.ceil(1.5 * samples_per_class)
    assert min(map(len, batches)) >= groups // len(batches)


def test_many_classes_take_turns():
    """Batches of 64 with 8 samples of each class have 8 of the 100 classes, different ones in each epoch."""
    labels = np.repeat(np.arange(100), 40)
    make = partial(StratifiedBatchSampler, samples_per_class=8)
    epochs = [batches_of(make, labels, 64, epoch=epoch) for epoch in range(3)]
    for batch in epochs[0]:
        counts = np.bincount(labels[batch])
        assert counts.sum() in (56, 64)
        # Two groups of a class may meet in a batch.
        assert set(counts) <= {0, 8, 16}
        assert (counts == 8).sum() >= 5
    together = [{tuple(np.unique(labels[batch])[:2]) for batch in batches} for batches in epochs]
    assert len(together[0] & together[1]) < len(together[0]) / 4


@settings(max_examples=200, deadline=None)
@given(
    counts=st.lists(st.integers(1, 200), min_size=2, max_size=12),
    samples_per_class=st.integers(1, 8),
    batch_size=st.integers(16, 80),
    seed=st.integers(0, 100),
)
def test_two_classes_in_every_batch_if_that_is_certain(counts, samples_per_class, batch_size, seed):
    labels = np.repeat(np.arange(len(counts)), counts)
    sampler = StratifiedBatchSampler(labels, batch_size, seed=seed, samples_per_class=samples_per_class)
    if sampler.always_two_classes:
        assert min(len(np.unique(labels[batch])) for batch in sampler) >= 2


@pytest.mark.parametrize("samples_per_class", [1, 8])
def test_two_classes_are_certain_for_common_data_and_not_for_a_single_class(samples_per_class):
    make = partial(StratifiedBatchSampler, batch_size=64, samples_per_class=samples_per_class)
    assert make(np.repeat(np.arange(20), 300)).always_two_classes
    assert not make(np.zeros(300, dtype=int)).always_two_classes


@every_sampler
def test_batches_are_a_function_of_seed_and_epoch(make):
    labels = labels_of(100, 4, 0)

    def order(seed, epoch):
        return tuple(np.concatenate(batches_of(make, labels, 30, seed=seed, epoch=epoch)).tolist())

    assert order(1, 2) == order(1, 2)
    assert len({order(seed, epoch) for seed in range(3) for epoch in range(3)}) == 9
    sampler = make(labels, 30, seed=1)
    assert list(sampler) == list(sampler)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (StratifiedBatchSampler, [[0, 6, 5, 4], [3, 8, 1], [9, 2, 7]]),
        (ShuffledBatchSampler, [[0, 5, 8, 4], [7, 2, 6, 3], [1, 9, 0, 5]]),
        (partial(StratifiedBatchSampler, samples_per_class=2), [[2, 5], [0, 3, 9, 1, 7], [6, 8, 4]]),
    ],
)
def test_batches_are_those_of_earlier_versions(make, expected):
    """A run that is resumed with another version continues with the same batches."""
    assert batches_of(make, [0, 1, 2, 0, 1, 2, 0, 1, 0, 0], 4, seed=3, epoch=5) == expected


@every_sampler
@settings(max_examples=50, deadline=None)
@given(case=cases, num_replicas=st.integers(1, 5))
def test_the_ranks_share_each_batch(make, case, num_replicas):
    n, batch_size, classes, seed, epoch = case
    labels = labels_of(n, classes, seed)
    whole = batches_of(make, labels, batch_size, seed=seed, epoch=epoch)
    ranks = [{"num_replicas": num_replicas, "rank": rank} for rank in range(num_replicas)]
    least = make(labels, batch_size, seed=seed)._smallest_batch()
    assert least <= min(map(len, whole))
    if least < num_replicas:
        with pytest.raises(ValueError, match="at least one sample per rank"):
            make(labels, batch_size, seed=seed, **ranks[0])
        return
    parts = [batches_of(make, labels, batch_size, seed=seed, epoch=epoch, **rank) for rank in ranks]
    for step, batch in enumerate(whole):
        for rank in range(num_replicas):
            assert parts[rank][step] == batch[rank::num_replicas]


def test_rank_and_size_come_from_torch_distributed(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 2)
    labels = labels_of(60, 3, 0)
    found = batches_of(StratifiedBatchSampler, labels, 30)
    assert found == batches_of(StratifiedBatchSampler, labels, 30, num_replicas=3, rank=2)
    assert [len(batch) for batch in found] == [10, 10]


@pytest.mark.parametrize("convert", [list, np.array, torch.tensor, lambda y: np.array(["a", "b", "c"])[y]])
def test_labels_of_any_kind(convert):
    labels = labels_of(50, 3, 0).tolist()
    assert batches_of(StratifiedBatchSampler, convert(labels), 10) == batches_of(StratifiedBatchSampler, labels, 10)


@pytest.mark.parametrize("workers", [0, 2])
def test_in_a_data_loader(workers):
    labels = torch.tensor(labels_of(60, 3, 0))
    sampler = deeplda.StratifiedBatchSampler(labels, 20, seed=1)
    assert isinstance(sampler, Sampler)
    loader = DataLoader(TensorDataset(torch.arange(60), labels), batch_sampler=sampler, num_workers=workers)
    assert len(loader) == 3
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        epochs.append([indices.tolist() for indices, _ in loader])
        assert epochs[-1] == list(sampler)
    assert epochs[0] != epochs[1]


MISTAKES = {
    "no labels": (([], 10), ValueError, r"labels has shape \(0,\)"),
    "2-d labels": (([[0], [1]], 10), ValueError, r"labels has shape \(2, 1\)"),
    "float labels": (([0.5, 1.0], 10), TypeError, "labels has dtype float64"),
    "batch size 0": (([0, 1], 0), ValueError, "batch_size must be an integer of at least 1, got 0"),
    "batch size 2.5": (([0, 1], 2.5), ValueError, "batch_size must be an integer of at least 1, got 2.5"),
    "batch size '2'": (([0, 1], "2"), ValueError, "batch_size must be an integer of at least 1, got '2'"),
}


@pytest.mark.parametrize(("samples_per_class", "message"), [(0, "samples_per_class"), (6, "half of batch_size 10")])
def test_wrong_samples_per_class(samples_per_class, message):
    with pytest.raises(ValueError, match=message):
        StratifiedBatchSampler([0, 1] * 10, 10, samples_per_class=samples_per_class)


@pytest.mark.parametrize(("arguments", "error", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes(arguments, error, message):
    with pytest.raises(error, match=message):
        StratifiedBatchSampler(*arguments)


NOT_A_RANK = {
    "negative": ({"rank": -1}, "rank must be an integer of at least 0, got -1"),
    "too high": ({"rank": 2}, "got rank 2 of 2"),
    "text": ({"rank": "0"}, "rank must be an integer of at least 0, got '0'"),
    "number of ranks": ({"num_replicas": 0.5}, "num_replicas must be an integer of at least 1, got 0.5"),
    "seed": ({"seed": None}, "seed must be an integer of at least 0, got None"),
}


@pytest.mark.parametrize(("options", "message"), NOT_A_RANK.values(), ids=NOT_A_RANK.keys())
def test_mistaken_ranks_and_seeds(options, message):
    with pytest.raises(ValueError, match=message):
        StratifiedBatchSampler([0, 1] * 10, 10, **({"num_replicas": 2, "rank": 0} | options))


def test_stratified_sample_keeps_proportions_and_every_class():
    labels = np.repeat([0, 1, 2], [9000, 990, 10])
    sample = stratified_sample(labels, 1000, seed=0)
    assert np.bincount(labels[sample]).tolist() == [900, 99, 1]
    assert stratified_sample(labels, 20_000, seed=0).tolist() == list(range(10_000))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 200))
def test_allocation_is_exact_and_by_largest_remainder(counts, size):
    n, taken = sum(counts), allocate(np.array(counts), size)
    size = min(size, n - len(counts))
    assert taken.sum() == size
    assert all(0 <= t <= c - 1 for t, c in zip(taken, counts, strict=True))
    quotas = [c * size / n for c in counts]
    if all(np.ceil(q) <= c - 1 for q, c in zip(quotas, counts, strict=True)):
        assert all(np.floor(q) <= t <= np.ceil(q) for q, t in zip(quotas, taken, strict=True))


def test_remaining_and_held_out_indices_are_ascending():
    labels = np.random.default_rng(0).integers(0, 4, 101)
    rest, taken = stratified_split(labels, 33, np.random.default_rng(1))
    assert sorted([*rest, *taken]) == list(range(101))
    assert (np.diff(rest) > 0).all()
    assert (np.diff(taken) > 0).all()


@pytest.mark.parametrize(
    ("name", "classes", "lda_width", "samples_per_class"),
    [
        ("auto", 100, 32, 8),
        ("auto", 100, 8, 16),
        ("auto", 100, None, 1),
        ("auto", 10, 10, 1),
        ("stratified", 100, 32, 1),
    ],
)
def test_classes_take_turns_only_if_an_lda_loss_needs_it(name, classes, lda_width, samples_per_class):
    labels = np.repeat(np.arange(classes), 40)
    sampler = build_sampler(name, labels, 64, seed=0, lda_width=lda_width)
    assert sampler.samples_per_class == samples_per_class


def test_a_dominant_class_is_in_batches_of_all_classes():
    """Batches of a subset could have this class alone."""
    labels = np.repeat(np.arange(30), [3000, *[10] * 29])
    sampler = build_sampler("auto", labels, 64, seed=0, lda_width=30)
    assert sampler.samples_per_class == 1
