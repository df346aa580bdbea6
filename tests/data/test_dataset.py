"""Data, its parts and its fingerprint; splits are exact, stratified, complete and reproducible."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeplda.data.dataset import Data, Part, Source, complete
from deeplda.errors import InputError


def small() -> Data:
    def part(n: int) -> Part:
        return Part(np.arange(n * 4, dtype=np.uint8).reshape(n, 1, 2, 2), np.arange(n, dtype=np.int64) % 2)

    return Data("small", part(6), part(2), part(4), ("a", "b"))


def test_shapes_and_kind() -> None:
    data = small()
    rows = Part(np.zeros((3, 5), dtype=np.float32), np.zeros(3, dtype=np.int64))
    assert data.images
    assert data.sample_shape == (1, 2, 2)
    assert len(data.test) == 4
    assert not replace(data, train=rows).images
    assert replace(data, train=rows).sample_shape == (5,)


def test_validation_joins_the_training_part() -> None:
    data, joined = small(), small().without_validation()
    assert (len(joined.train), len(joined.val)) == (8, 0)
    assert np.array_equal(joined.train.inputs[6:], data.val.inputs)
    assert np.array_equal(joined.train.labels, np.concatenate([data.train.labels, data.val.labels]))
    assert np.array_equal(joined.test.inputs, data.test.inputs)
    assert joined.sample_shape == data.sample_shape


def test_fingerprint_sees_every_content_and_only_content() -> None:
    data = small()
    assert replace(data, name="other").fingerprint == data.fingerprint == small().fingerprint
    pixel = data.val.inputs.copy()
    pixel[1, 0, 1, 1] += 1
    changed = [
        replace(data, val=Part(pixel, data.val.labels)),
        replace(data, test=Part(data.test.inputs, 1 - data.test.labels)),
        replace(data, class_names=("a", "c")),
        replace(data, val=data.test, test=data.val),
        replace(data, train=Part(data.train.inputs.reshape(6, 2, 1, 2), data.train.labels)),
    ]
    assert len({data.fingerprint, *(other.fingerprint for other in changed)}) == 6


def test_fingerprint_does_not_depend_on_memory_layout() -> None:
    data = small()
    strided = data.train.inputs.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2)
    assert replace(data, train=Part(strided, data.train.labels)).fingerprint == data.fingerprint


def source(counts: list[int], **more: object) -> Source:
    """A source with one input value, the number of the sample, so that samples are distinguishable."""
    labels = np.repeat(np.arange(len(counts)), counts).astype(np.int64)
    rows = np.arange(len(labels), dtype=np.float32)[:, None]
    return Source("s", Part(rows, labels), tuple(map(str, range(len(counts)))), **more)  # type: ignore[arg-type]


def numbers(part: Part) -> list[int]:
    return [int(x) for x in part.inputs[:, 0]]


@given(st.lists(st.integers(1, 30), min_size=2, max_size=6).filter(lambda c: sum(c) >= len(c) + 2), st.integers(0, 99))
def test_three_parts_are_disjoint_cover_all_and_keep_every_class_in_train(counts: list[int], seed: int) -> None:
    data = complete(source(counts), seed)
    parts = (data.train, data.val, data.test)
    n = sum(counts)
    assert sorted(number for part in parts for number in numbers(part)) == list(range(n))
    assert set(data.train.labels) == set(range(len(counts)))
    wish = max(1, int(n * 0.15 + 0.5))
    spare = n - len(counts)
    assert len(data.test) == min(wish, spare) or len(data.test) == wish
    assert len(data.val) == min(wish, spare - len(data.test))


def test_the_papers_splits_are_exact() -> None:
    cifar = complete(source([5000] * 10, test=source([1] * 10).train, val_share=0.04), 0)
    assert Counter(cifar.val.labels.tolist()) == dict.fromkeys(range(10), 200)
    assert len(cifar.train) == 48_000
    stl = complete(source([500] * 10, test=source([1] * 10).train, val_share=0.2), 0)
    assert Counter(stl.val.labels.tolist()) == dict.fromkeys(range(10), 100)


def test_seventy_fifteen_fifteen() -> None:
    data = complete(source([100, 60, 40]), 0)
    assert [Counter(p.labels.tolist()) for p in (data.train, data.val, data.test)] == [
        {0: 70, 1: 42, 2: 28},
        {0: 15, 1: 9, 2: 6},
        {0: 15, 1: 9, 2: 6},
    ]


def test_seed_moves_the_split_and_nothing_else_does() -> None:
    a, same, b = (complete(source([50, 50]), seed) for seed in (0, 0, 1))
    assert numbers(a.val) == numbers(same.val)
    assert numbers(a.val) != numbers(b.val)
    assert numbers(a.val) == sorted(numbers(a.val))


@pytest.mark.parametrize("with_test", [True, False])
def test_a_split_by_other_labels_takes_the_same_samples(with_test: bool) -> None:
    clean = source([40, 60, 20], test=source([2, 2, 2]).train if with_test else None)
    noisy = replace(
        clean, train=replace(clean.train, labels=np.roll(clean.train.labels, 50)), strata=clean.train.labels
    )
    expected, found = complete(clean, 3), complete(noisy, 3)
    for part, same in ((found.train, expected.train), (found.val, expected.val), (found.test, expected.test)):
        assert numbers(part) == numbers(same)
    label_of = dict(zip(numbers(noisy.train), noisy.train.labels, strict=True))
    assert found.val.labels.tolist() == [label_of[number] for number in numbers(found.val)]


def test_given_parts_are_kept() -> None:
    other = source([3, 3]).train
    kept = complete(source([20, 20], val=other), 0)
    assert kept.val is other
    assert len(kept.test) == 6
    unsplit = complete(source([20, 20], val=other, test=other), 0)
    assert len(unsplit.train) == 40


def test_a_class_of_one_stays_in_train() -> None:
    data = complete(source([1, 30, 1]), 3)
    assert set(data.train.labels) == {0, 1, 2}
    assert set(data.val.labels) == set(data.test.labels) == {1}


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ([1, 1, 1], "too few to split off a test set"),
        ([9], "only one class"),
        ([2, 1], "too few to split off a validation set"),
    ],
)
def test_too_little_is_refused(counts: list[int], says: str) -> None:
    with pytest.raises(InputError, match=says):
        complete(source(counts), 0)


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.5, 3.0, 1.0, 1.0, 1.0]])
def test_balanced_samples_give_every_class_the_same_weight(weights: list[float] | None) -> None:
    labels = np.array([0, 0, 0, 0, 2, 2, 1])
    part = Part(np.zeros((7, 2), np.float32), labels, weights=None if weights is None else np.array(weights))
    before = np.ones(7) if weights is None else np.array(weights)
    balanced = part.balanced().weights
    assert balanced is not None
    np.testing.assert_allclose(np.bincount(labels, balanced), before.sum() / 3)
    ratio = balanced / before
    assert all(np.ptp(ratio[labels == c]) == 0 for c in range(3))
    assert part.balanced().take(np.array([6, 0])).weights.tolist() == balanced[[6, 0]].tolist()
