"""Splits by content: quotas, order, duplicates, groups, and samples that are added later."""

from collections import Counter

import numpy as np
import pytest

from deeplda.data.splitting import (
    TEST,
    TRAIN,
    VAL,
    Assignment,
    assign_added,
    conflicting_duplicates,
    content_digest,
    group_digests,
    split_by_content,
    without_groups,
)
from deeplda.errors import InputError
from deeplda.sampling import allocate

RNG = np.random.default_rng(0)


def digests(count, start=0):
    return np.array([content_digest(str(start + i).encode()) for i in range(count)], dtype="S32")


def split(contents, labels, groups=None, seed=0, test_size=None, val_size=None):
    size = round(0.15 * len(labels))
    return split_by_content(
        contents,
        labels,
        without_groups(len(labels)) if groups is None else groups,
        seed=seed,
        test_size=size if test_size is None else test_size,
        val_size=size if val_size is None else val_size,
    )


def known(contents, parts, groups=None):
    return Assignment(contents, without_groups(len(parts)) if groups is None else groups, parts)


def added(before, contents, groups=None, seed=0):
    groups = without_groups(len(contents)) if groups is None else groups
    return assign_added(before, contents, groups, seed=seed, test_share=0.15, val_share=0.15)


def test_quotas_are_those_of_the_stratified_split():
    labels = np.repeat([0, 1, 2], [500, 90, 11])
    parts = split(digests(601), labels)
    counts = np.bincount(labels)
    held_out = allocate(counts, 90)
    np.testing.assert_array_equal(np.bincount(labels[parts == TEST]), held_out)
    np.testing.assert_array_equal(np.bincount(labels[parts == VAL]), allocate(counts - held_out, 90))


def test_the_split_depends_on_contents_and_seed_but_not_on_the_order():
    labels, contents = RNG.integers(0, 3, 300), digests(300)
    order = RNG.permutation(300)
    parts = split(contents, labels)
    np.testing.assert_array_equal(split(contents[order], labels[order]), parts[order])
    other = split(contents, labels, seed=1)
    # Two independent splits agree on 0.15² + 0.15² + 0.7² = 53.5 % of the samples.
    assert 0.4 < np.mean(other == parts) < 0.67


def test_a_class_keeps_a_training_sample():
    labels = np.array([0] * 20 + [1])
    parts = split(digests(21), labels, test_size=18, val_size=5)
    assert parts[20] == TRAIN
    assert set(labels[parts == TRAIN]) == {0, 1}


def test_duplicates_stay_together():
    labels = np.zeros(300, dtype=np.int64)
    contents = np.repeat(digests(100), 3)
    parts = split(contents, labels).reshape(100, 3)
    assert (parts == parts[:, :1]).all()
    assert Counter(parts[:, 0].tolist()) == {TRAIN: 70, TEST: 15, VAL: 15}


def test_groups_stay_together_and_sizes_are_kept():
    patient = RNG.integers(0, 400, 2000)
    labels = (patient % 4 == 0).astype(np.int64)
    groups = group_digests([f"person{p}_{i}.png" for i, p in enumerate(patient)], r"person\d+")
    parts = split(digests(2000), labels, groups)
    assert all(len(set(parts[patient == p].tolist())) == 1 for p in np.unique(patient))
    for code in (TEST, VAL):
        assert np.sum(parts == code) == pytest.approx(300, abs=6)
        assert np.mean(labels[parts == code]) == pytest.approx(np.mean(labels), abs=0.02)


def test_a_duplicate_links_two_groups():
    contents = digests(60)
    contents[1] = contents[0]
    groups = group_digests([f"p{i // 3 if i != 1 else 10}" for i in range(60)], r"p\d+")
    for seed in range(20):
        parts = split(contents, np.zeros(60, dtype=np.int64), groups, seed=seed)
        assert len(set(parts[[0, 1, 2, 30, 31, 32]].tolist())) == 1


def test_groups_larger_than_the_quota():
    labels = np.repeat([0, 1], 50)
    groups = group_digests([f"{i // 10}" for i in range(100)], r"\d+")
    parts = split(digests(100), labels, groups, test_size=10, val_size=10)
    assert [Counter(labels[parts == code].tolist()) for code in (TEST, VAL)] == [{0: 10, 1: 10}] * 2
    one = group_digests(["a"] * 100, "a")
    assert (split(digests(100), labels, one) == TRAIN).all()


def test_known_samples_never_move_and_added_ones_get_their_shares():
    contents, labels = digests(1000), np.zeros(1000, dtype=np.int64)
    before = known(contents, split(contents, labels))
    np.testing.assert_array_equal(added(before, contents), before.parts)
    more = added(before, digests(4000, start=1000))
    share = np.bincount(more) / 4000
    np.testing.assert_allclose(share, [0.7, 0.15, 0.15], atol=0.025)
    # Each depends on its own content alone.
    np.testing.assert_array_equal(added(before, digests(10, start=1000)), more[:10])


def test_added_samples_follow_their_group_and_their_duplicates():
    names = [f"p{i}" for i in range(200)]
    groups, contents = group_digests(names, r"p\d+"), digests(200)
    before = known(contents, split(contents, np.zeros(200, dtype=np.int64), groups), groups)
    np.testing.assert_array_equal(added(before, digests(200, start=500), groups), before.parts)
    new = group_digests([f"q{i // 10}" for i in range(300)], r"q\d+")
    parts = added(before, digests(300, start=500), new).reshape(30, 10)
    assert (parts == parts[:, :1]).all()
    assert len(set(parts[:, 0].tolist())) == 3
    # A new image of a test patient that equals a training image is not a test image.
    trained, tested = (np.flatnonzero(before.parts == code)[:1] for code in (TRAIN, TEST))
    assert added(before, contents[trained], groups[tested]).tolist() == [TRAIN]


def test_group_digests():
    found = group_digests(["person12_virus_1.png", "person12_bacteria_9.png", "other.png"], r"person(\d+)_")
    assert found[0] == found[1] == content_digest(b"12")
    assert found[2] == b""
    assert group_digests(["ab"], "a.")[0] == content_digest(b"ab")
    assert group_digests(["\udcff1"], ".+")[0] != b""
    with pytest.raises(InputError, match=r"need a regular expression \("):
        group_digests(["a"], "(")
    with pytest.raises(InputError, match=r"found in none of 2 file names, such as 'a'"):
        group_digests(["a", "b"], "x")


def test_conflicting_duplicates():
    contents = digests(5)[[0, 1, 0, 2, 1, 0]]
    found = conflicting_duplicates(contents, np.array([0, 1, 0, 1, 1, 2]))
    assert [indices.tolist() for indices in found] == [[0, 2, 5]]
    assert conflicting_duplicates(digests(0), np.zeros(0, dtype=np.int64)) == []
