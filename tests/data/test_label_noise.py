"""Label noise: as many wrong labels as asked for, of the kind asked for, always the same, and none in the test set."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeplda.data.dataset import Data, Part
from deeplda.data.known_sets import KNOWN_SETS
from deeplda.data.label_noise import with_label_noise

CIFAR10 = KNOWN_SETS["cifar10"].class_names


def data_of(train, val=(0, 1, 2), names=("a", "b", "c")):
    def part(labels):
        return Part(np.zeros((len(labels), 2), np.float32), np.asarray(labels, dtype=np.int64))

    return Data("rows", part(train), part(val), part(train), tuple(names))


def wrong_by_class(before, after):
    """Count the wrong labels of each class by what they became."""
    pairs = zip(before.labels.tolist(), after.labels.tolist(), strict=True)
    return Counter((old, new) for old, new in pairs if old != new)


@pytest.mark.parametrize("rate", [0.1, 0.4, 0.75])
def test_symmetric_noise_is_exact_in_every_class_and_uniform_over_the_others(rate):
    data = data_of(np.repeat([0, 1, 2], [3000, 1200, 600]), np.repeat([0, 1, 2], [40, 40, 80]))
    noisy = with_label_noise(data, rate, "symmetric", seed=3)
    for before, after in ((data.train, noisy.train), (data.val, noisy.val)):
        counts = np.bincount(before.labels)
        found = wrong_by_class(before, after)
        for c in range(3):
            assert sum(n for (old, _), n in found.items() if old == c) == pytest.approx(rate * counts[c])
    found = wrong_by_class(data.train, noisy.train)
    for c, n in enumerate([3000, 1200, 600]):
        halves = [found[c, other] for other in range(3) if other != c]
        # Within four standard deviations of a fair coin.
        assert abs(halves[0] - halves[1]) < 4 * np.sqrt(rate * n)


def test_pairs_make_each_class_the_next_one():
    data = data_of(np.repeat([0, 1, 2], [50, 20, 30]))
    found = wrong_by_class(data.train, with_label_noise(data, 0.4, "pairs", seed=0).train)
    assert found == {(0, 1): 20, (1, 2): 8, (2, 0): 12}


def test_pairs_on_cifar10_are_the_usual_ones():
    data = data_of(np.repeat(np.arange(10), 50), np.arange(10), CIFAR10)
    found = wrong_by_class(data.train, with_label_noise(data, 0.4, "pairs", seed=0).train)
    assert {(CIFAR10[old], CIFAR10[new]): n for (old, new), n in found.items()} == {
        ("truck", "automobile"): 20, ("bird", "airplane"): 20, ("deer", "horse"): 20, ("cat", "dog"): 20,
        ("dog", "cat"): 20,
    }  # fmt: skip


def test_the_test_set_the_samples_and_the_original_are_left_alone():
    data = data_of([0, 1, 2] * 20)
    before = data.train.labels.copy()
    noisy = with_label_noise(data, 0.5, "symmetric", seed=0)
    assert noisy.test is data.test
    assert noisy.train.inputs is data.train.inputs
    assert (data.train.labels == before).all()
    assert noisy.fingerprint != data.fingerprint
    assert with_label_noise(data, 0.0, "pairs", seed=0) is data


def test_the_seed_and_the_labels_decide_and_each_set_has_its_own_noise():
    data = data_of([0, 1, 2] * 20, [0, 1, 2] * 20)

    def noisy(seed, source=data):
        return with_label_noise(source, 0.4, "symmetric", seed)

    assert noisy(1).fingerprint == noisy(1).fingerprint != noisy(2).fingerprint
    assert (noisy(1).train.labels != noisy(1).val.labels).any()
    other = data_of([0, 1, 2] * 20, [0, 1, 2])
    assert (noisy(1, other).train.labels == noisy(1).train.labels).all()


@given(
    st.lists(st.integers(1, 12), min_size=2, max_size=5), st.floats(0.01, 0.99), st.sampled_from(["symmetric", "pairs"])
)
def test_the_fraction_is_right_up_to_rounding_and_no_class_loses_its_last_right_label(counts, rate, kind):
    labels = np.repeat(np.arange(len(counts)), counts)
    data = data_of(labels, labels, [str(c) for c in range(len(counts))])
    after = with_label_noise(data, rate, kind, seed=0).train.labels
    wrong = after != labels
    assert wrong.sum() == min(round(rate * len(labels)), len(labels) - len(counts))
    kept = np.bincount(labels[~wrong], minlength=len(counts))
    assert kept.min() >= 1
    if min(counts) > 1 / (1 - rate) + 1:
        assert (np.abs((counts - kept) - rate * np.array(counts)) < 1).all()


def test_an_empty_set_stays_empty():
    noisy = with_label_noise(data_of([0, 1, 2] * 4, []), 0.5, "symmetric", seed=0)
    assert len(noisy.val) == 0
    assert (noisy.train.labels != noisy.test.labels).sum() == 6
