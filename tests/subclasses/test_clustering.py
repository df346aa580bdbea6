"""Classes split by k-means: groups found, small clusters merged, nothing left to chance."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_info, threadpool_limits

from deeplda.subclasses import Clusters, split_classes


def blobs(centres: list[list[float]], sizes: list[int], *, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Points with unit spread around each centre, shuffled, and the number of each point's centre."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    middle = np.array(centres)
    return middle[group] + rng.standard_normal((len(group), middle.shape[1])), group


def assert_same(one: Clusters, other: Clusters) -> None:
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_array_equal(one.centres, other.centres)
    assert (one.map, one.notes) == (other.map, other.notes)


def test_blobs_are_found_the_largest_first() -> None:
    # Groups 0 and 2 are class 0, groups 1 and 3 class 1: as in XOR.
    points, group = blobs([[0, 0], [0, 20], [20, 20], [20, 0]], [30, 40, 50, 60])
    clusters = split_classes(points, np.array([0, 1, 0, 1])[group], 2, seed=0)
    assert clusters.map.parents == (0, 0, 1, 1)
    # By size within each class: group 2, group 0; group 3, group 1.
    np.testing.assert_array_equal(clusters.labels, np.array([1, 3, 0, 2])[group])
    np.testing.assert_allclose(clusters.centres, [[20, 20], [0, 0], [20, 0], [0, 20]], atol=1)
    assert clusters.notes == []
    assert clusters.labels.dtype == np.int64


def test_centres_are_the_means_of_the_subclasses() -> None:
    points, group = blobs([[0, 0], [3, 3]], [60, 60])
    clusters = split_classes(points.astype(np.float32), group, 3, seed=0)
    for subclass, centre in enumerate(clusters.centres):
        mean = points.astype(np.float32)[clusters.labels == subclass].astype(np.float64).mean(0)
        np.testing.assert_allclose(centre, mean, rtol=1e-12)
    sizes = np.bincount(clusters.labels).reshape(2, 3)
    assert (np.diff(sizes, axis=1) <= 0).all()


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    k=st.sampled_from([1, 2, 3, np.int64(5)]),
    smallest=st.integers(1, 8),
    distinct=st.sampled_from([1, 2, 3, 1000]),
    seed=st.integers(0, 2**31),
)
def test_every_split_leads_back_to_the_classes(
    counts: list[int], k: int, smallest: int, distinct: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    points = rng.standard_normal((distinct, 3))[rng.integers(0, distinct, len(labels))]
    clusters = split_classes(points, labels, k, seed=seed, n_init=1, smallest=smallest)
    np.testing.assert_array_equal(clusters.map.to_classes(clusters.labels), labels)
    assert all(1 <= size <= k for size in clusters.map.sizes)
    # Every subclass of a split class is large enough, and none is empty.
    counted = np.bincount(clusters.labels, minlength=len(clusters.map))
    alone = np.array(clusters.map.sizes)[list(clusters.map.parents)] == 1
    assert (counted[~alone] >= smallest).all()
    assert (counted > 0).all()


def test_k_1_is_the_classes_themselves() -> None:
    points, labels = blobs([[0, 0], [9, 9], [0, 9]], [3, 40, 1])
    clusters = split_classes(points, labels.astype(np.int32), 1, seed=0)
    np.testing.assert_array_equal(clusters.labels, labels)
    assert clusters.map.parents == (0, 1, 2)
    assert clusters.notes == []


def test_the_seed_decides_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    points, labels = rng.standard_normal((300, 5)), np.repeat([0, 1], 150)
    one = split_classes(points, labels, 4, seed=1, n_init=1)
    np.random.seed(5)  # scikit-learn draws from here where it is given no seed
    assert_same(one, split_classes(points, labels, 4, seed=1, n_init=1))
    other = split_classes(points, labels, 4, seed=2, n_init=1)
    assert adjusted_rand_score(one.labels, other.labels) < 0.99  # no groups here, so starts matter


@pytest.mark.parametrize("k", [3, "auto"])
def test_a_class_is_split_whatever_the_other_classes_are(k: Any) -> None:
    rng = np.random.default_rng(0)
    points, labels = rng.standard_normal((120, 4)), np.repeat([0, 1], 60)
    points[30:60] += 8
    before = split_classes(points, labels, k, seed=3)
    points[60:] *= 5
    more, more_labels = np.concatenate([points, points + 1]), np.concatenate([labels, labels + 2])
    after = split_classes(more, more_labels, k, seed=3)
    np.testing.assert_array_equal(after.labels[:60], before.labels[:60])
    assert after.map.sizes[0] == before.map.sizes[0]


def test_small_clusters_join_the_nearest_sibling() -> None:
    points, group = blobs([[0, 0], [40, 0], [30, 0]], [50, 40, 3])
    clusters = split_classes(points, np.zeros_like(group), 3, seed=0, class_names=["cat"])
    np.testing.assert_array_equal(clusters.labels, np.array([0, 1, 1])[group])
    np.testing.assert_allclose(clusters.centres[1], points[group > 0].mean(0))
    assert clusters.notes == ["cat: cluster of 3 samples merged into its nearest sibling, 2 subclasses remain"]


def test_merging_goes_on_until_no_cluster_is_small() -> None:
    points, group = blobs([[0, 0], [100, 0], [103, 90], [0, 100]], [50, 6, 5, 1])
    clusters = split_classes(points, np.zeros_like(group), 4, seed=0, smallest=10)
    # The single point goes to its nearest centre, group 0; groups 1 and 2 are large enough together.
    np.testing.assert_array_equal(clusters.labels, np.array([0, 1, 1, 0])[group])
    assert clusters.notes == [
        "class 0: cluster of 1 sample merged into its nearest sibling, 3 subclasses remain",
        "class 0: cluster of 5 samples merged into its nearest sibling, 2 subclasses remain",
    ]


def test_merging_can_leave_one() -> None:
    points, group = blobs([[0, 0], [50, 0]], [40, 2])
    clusters = split_classes(points, np.zeros_like(group), 2, seed=0)
    assert clusters.map.parents == (0,)
    assert clusters.notes == [
        "class 0: cluster of 2 samples merged into its nearest sibling, 1 subclass remains",
    ]


def test_classes_too_small_to_split_stay_whole() -> None:
    points, labels = blobs([[0, 0], [9, 9], [0, 9]], [19, 40, 1])
    clusters = split_classes(points, labels, 2, seed=0, class_names=["cat", "dog", "ox"])
    assert clusters.map.sizes == [1, 2, 1]
    assert clusters.notes == [
        "cat: not split, as 19 samples cannot make two clusters of 10",
        "ox: not split, as 1 sample cannot make two clusters of 10",
    ]


def test_copies_of_few_samples_are_not_split() -> None:
    """k-means warns of fewer clusters than asked for; pytest makes that an error here."""
    points = np.repeat([[0.0, 1.0], [5.0, 5.0]], 30, axis=0)
    labels = np.zeros(60, dtype=np.int64)
    clusters = split_classes(points, labels, 3, seed=0)
    assert clusters.map.sizes == [1]
    assert clusters.notes == ["class 0: not split into 3, as it has 2 distinct samples"]
    assert split_classes(points, labels, 2, seed=0).map.sizes == [2]
    assert split_classes(points[:30], labels[:30], "auto", seed=0).map.sizes == [1]


def test_samples_too_alike_for_k_means_are_no_error() -> None:
    points = np.zeros((40, 2)) + np.arange(40)[:, None] * 1e-200
    clusters = split_classes(points, np.zeros(40, dtype=np.int64), 2, seed=0)
    assert clusters.map.sizes == [1]
    assert clusters.notes == ["class 0: 1 cluster instead of 2, as its samples are too alike"]


def test_one_thread_splits_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def watch(*_: Any, **__: Any) -> tuple[int, str]:
        seen.extend(pool["num_threads"] for pool in threadpool_info())
        return 1, "seen"

    monkeypatch.setattr("deeplda.subclasses.choose_k", watch)
    with threadpool_limits(2):
        watch()
        assert set(seen) == {2}
        seen.clear()
        split_classes(np.zeros((40, 2)), np.zeros(40, dtype=np.int64), "auto", seed=0)
        assert set(seen) == {1}


@pytest.mark.parametrize(
    ("points", "labels", "message"),
    [
        (np.zeros(5), np.zeros(5, int), r"embeddings of shape \(5,\)"),
        (np.zeros((5, 2)), np.zeros(4, int), r"labels of shape \(4,\)"),
        (np.zeros((0, 2)), np.zeros(0, int), "n and d at least 1"),
        (np.zeros((5, 2)), np.array([0, 1, 1, 3, 3]), r"labels \[0 1 3\], need integers 0..C-1"),
        (np.zeros((2, 2)), np.array([-1, 0]), "need integers 0..C-1"),
        (np.zeros((2, 2)), np.array([0, 2**62]), "need integers 0..C-1"),
        (np.zeros((2, 2)), np.array([0.0, 1.0]), "need integers 0..C-1"),
        (np.array([[0.0], [np.nan]]), np.array([0, 0]), "NaN or infinity"),
    ],
)
def test_bad_samples_are_refused(points: NDArray[Any], labels: NDArray[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_classes(points, labels, 2, seed=0)


@pytest.mark.parametrize(
    ("k", "options", "message"),
    [
        (0, {}, "k=0, need at least 1"),
        ("many", {}, "k='many', need"),
        (2, {"n_init": 0}, "n_init=0, need at least 1"),
        (2, {"smallest": 0}, "smallest=0"),
        (2, {"class_names": ["a", "b"]}, "2 class names and labels of 1 classes"),
    ],
)
def test_bad_settings_are_refused(k: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_classes(np.zeros((5, 2)), np.zeros(5, int), k, seed=0, **options)
