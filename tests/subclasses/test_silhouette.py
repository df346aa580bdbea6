"""The number of groups of a class: one for one Gaussian, as many as there are for clear groups."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from deeplda.subclasses import choose_k, split_classes


def groups(count: int, d: int, n: int, *, apart: float, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """n points in d dimensions with unit spread, around `count` centres that are `apart` from each other."""
    rng = np.random.default_rng(seed)
    corners = np.zeros((count, max(d, count)))
    corners[np.arange(count), np.arange(count)] = apart / np.sqrt(2)
    if d < count:  # the corners of a regular polygon
        angle = 2 * np.pi * np.arange(count) / count
        corners = np.stack([np.cos(angle), np.sin(angle)], axis=1) * apart / (2 * np.sin(np.pi / count))
    group = np.arange(n) % count
    return (corners[group] + rng.standard_normal((n, d))).astype(np.float32), group


def choose(points: NDArray[np.float32], *, seed: int = 0, smallest: int = 10, sample: int = 2000) -> int:
    return choose_k(points, seed=seed, smallest=smallest, sample=sample)[0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("d", [1, 2, 10, 256])
def test_one_gaussian_is_one_group(d: int, seed: int) -> None:
    points = np.random.default_rng(seed).standard_normal((200, d)).astype(np.float32)
    assert choose(points, seed=seed) == 1


@pytest.mark.parametrize("d", [2, 10])
def test_a_long_gaussian_is_one_group(d: int) -> None:
    """Its silhouette at k=2 is above 0.3 in either dimension: a fixed threshold would split it."""
    points = np.random.default_rng(0).standard_normal((200, d)).astype(np.float32)
    points[:, 0] *= 6
    assert choose(points) == 1


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize(("d", "apart"), [(2, 6), (10, 6), (256, 10)])
def test_clear_groups_are_counted(count: int, d: int, apart: float) -> None:
    points, _ = groups(count, d, 240, apart=apart, seed=count)
    assert choose(points) == count


def test_a_shift_and_a_scale_change_nothing() -> None:
    points, _ = groups(3, 4, 150, apart=7, seed=0)
    assert choose(100 + 50 * points) == choose(points) == 3


def test_a_few_outliers_are_no_group() -> None:
    points = np.random.default_rng(0).standard_normal((200, 3)).astype(np.float32)
    points[:5] += 30
    assert choose(points) == 1
    assert choose(points, smallest=5) == 2


def test_a_sample_is_enough() -> None:
    points, _ = groups(3, 5, 3000, apart=8, seed=0)
    assert choose(points, sample=150) == 3


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_hardly_any_samples(n: int) -> None:
    points = np.random.default_rng(0).standard_normal((n, 2)).astype(np.float32)
    assert choose(points, smallest=1) in (1, 2, 3)
    assert choose(np.zeros((n, 2), np.float32), smallest=1) == 1


def test_each_class_of_a_split_has_its_own_number() -> None:
    three, group = groups(3, 2, 150, apart=9, seed=1)
    one = np.random.default_rng(2).standard_normal((100, 2)).astype(np.float32)
    labels = np.repeat([0, 1], [100, 150])
    clusters = split_classes(np.concatenate([one, three]), labels, "auto", seed=0, class_names=["cat", "dog"])
    assert clusters.map.parents == (0, 1, 1, 1)
    assert adjusted_rand_score(clusters.labels[100:], group) > 0.95
    assert [note.split(",")[0] for note in clusters.notes] == ["cat: one group", "dog: 3 groups"]


def test_the_number_chosen_splits_as_if_it_had_been_given() -> None:
    points, _ = groups(2, 3, 100, apart=7, seed=0)
    labels = np.zeros(100, dtype=np.int64)
    chosen, given = (split_classes(points, labels, k, seed=4) for k in ("auto", 2))
    np.testing.assert_array_equal(chosen.labels, given.labels)
