"""Classes split by k-means, the choice of k, and the exact way back from subclasses to classes."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_info, threadpool_limits

from deeplda.subclasses import Clusters, SubclassMap, choose_k, split_classes

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=6)
MAPS = SIZES.map(SubclassMap.of_sizes)


@st.composite
def maps_with_values(draw: st.DrawFn, elements: st.SearchStrategy[float]) -> tuple[SubclassMap, torch.Tensor]:
    """A map and a tensor (n, S)."""
    subclasses = draw(MAPS)
    row = st.lists(elements, min_size=len(subclasses), max_size=len(subclasses))
    rows = draw(st.lists(row, min_size=1, max_size=5))
    return subclasses, torch.tensor(rows, dtype=torch.float64)


@settings(deadline=None)
@given(SIZES)
def test_sizes_and_parents_say_the_same(sizes: list[int]) -> None:
    subclasses = SubclassMap.of_sizes(sizes)
    assert subclasses.sizes == sizes
    assert subclasses.classes == len(sizes)
    assert len(subclasses) == sum(sizes)
    assert SubclassMap(subclasses.parents) == subclasses


@settings(deadline=None)
@given(MAPS)
def test_to_classes_is_the_parent_of_each(subclasses: SubclassMap) -> None:
    labels = np.arange(len(subclasses))[::-1]
    expected = list(subclasses.parents[::-1])
    assert subclasses.to_classes(labels).tolist() == expected
    assert subclasses.to_classes(torch.tensor(labels.copy())).tolist() == expected
    assert subclasses.to_classes(labels).dtype == np.int64
    assert subclasses.to_classes(labels.astype(np.int32).reshape(1, -1)).tolist() == [expected]


# Few distinct scores, so that most rows have ties; the odd ones too.
@settings(deadline=None)
@given(maps_with_values(st.sampled_from([-1.0, 0.0, 1.0, float("inf"), float("-inf"), float("nan")])))
def test_the_best_class_is_the_class_of_the_best_subclass(given: tuple[SubclassMap, torch.Tensor]) -> None:
    subclasses, scores = given
    by_paper = subclasses.to_classes(scores.argmax(1))
    assert torch.equal(subclasses.class_scores(scores).argmax(1), by_paper)


@settings(deadline=None)
@given(maps_with_values(st.floats(-10, 10)))
def test_probabilities_of_siblings_add_up(given: tuple[SubclassMap, torch.Tensor]) -> None:
    subclasses, scores = given
    probabilities = scores.softmax(1)
    classes = subclasses.class_log_sums(scores).softmax(1)
    assert classes.shape == (len(scores), subclasses.classes)
    parents = torch.tensor(subclasses.parents)
    for c in range(subclasses.classes):
        torch.testing.assert_close(classes[:, c], probabilities[:, parents == c].sum(1))


@settings(deadline=None)
@given(maps_with_values(st.floats(-50, 50)))
def test_the_best_subclass_is_at_most_the_logarithm_of_their_number_below_the_sum(
    given: tuple[SubclassMap, torch.Tensor],
) -> None:
    subclasses, scores = given
    gap = subclasses.class_log_sums(scores) - subclasses.class_scores(scores)
    assert (gap >= -1e-12).all()
    assert (gap <= torch.tensor(subclasses.sizes).log() + 1e-12).all()


def test_the_two_ways_back_can_differ() -> None:
    """One strong subclass against two siblings that are stronger together."""
    subclasses = SubclassMap((0, 1, 1))
    scores = torch.tensor([[0.4, 0.3, 0.3]]).log()
    assert subclasses.class_scores(scores).argmax(1).tolist() == [0]
    assert subclasses.class_log_sums(scores).argmax(1).tolist() == [1]


def test_one_subclass_each_changes_nothing() -> None:
    torch.manual_seed(0)
    subclasses, values = SubclassMap((0, 1, 2)), torch.rand(10, 3)
    assert torch.equal(subclasses.class_scores(values), values)
    torch.testing.assert_close(subclasses.class_log_sums(values), values)
    assert subclasses.names(("a", "b", "c")) == ("a", "b", "c")


def test_names() -> None:
    assert SubclassMap((0, 0, 1, 2, 2)).names(["cat", "dog", "ox"]) == ("cat/0", "cat/1", "dog", "ox/0", "ox/1")


def test_scores_keep_dtype_and_gradient() -> None:
    scores = torch.tensor([[1.0, 3.0, 2.0]], requires_grad=True)
    best = SubclassMap((0, 0, 1)).class_scores(scores)
    assert best.dtype == torch.float32
    best[:, 0].sum().backward()
    assert scores.grad.tolist() == [[0.0, 1.0, 0.0]]


def test_no_samples_give_no_classes() -> None:
    subclasses = SubclassMap((0, 0, 1))
    assert subclasses.to_classes(np.empty(0, dtype=np.int64)).shape == (0,)
    assert subclasses.class_scores(torch.empty(0, 3)).shape == (0, 2)
    assert subclasses.class_log_sums(torch.empty(0, 3)).shape == (0, 2)


@pytest.mark.parametrize("parents", [(), (1,), (0, 2), (0, 1, 0), (0, 0, -1), (1, 0)], ids=str)
def test_bad_parents_are_rejected(parents: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="ascending from 0"):
        SubclassMap(parents)


def test_bad_arguments_are_rejected() -> None:
    subclasses = SubclassMap((0, 0, 1))
    with pytest.raises(ValueError, match="label is 3, need 0 to 2"):
        subclasses.to_classes(np.array([0, 3]))
    with pytest.raises(ValueError, match="label is -1, need 0 to 2"):
        subclasses.to_classes(torch.tensor([-1]))
    with pytest.raises(ValueError, match="1 class names, need 2"):
        subclasses.names(["cat"])
    with pytest.raises(ValueError, match=r"shape \(4, 2\), need \(n, 3\)"):
        subclasses.class_scores(torch.rand(4, 2))
    with pytest.raises(ValueError, match=r"shape \(3,\), need \(n, 3\)"):
        subclasses.class_log_sums(torch.rand(3))


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
def test_the_split_of_a_class_does_not_depend_on_other_classes(k: Any) -> None:
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


def test_merging_continues_until_no_cluster_is_small() -> None:
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


def test_classes_too_small_to_split_are_not_split() -> None:
    points, labels = blobs([[0, 0], [9, 9], [0, 9]], [19, 40, 1])
    clusters = split_classes(points, labels, 2, seed=0, class_names=["cat", "dog", "ox"])
    assert clusters.map.sizes == [1, 2, 1]
    cat, ox = clusters.notes
    assert cat.startswith("cat: not split")
    assert "19 samples" in cat
    assert ox.startswith("ox: not split")
    assert "1 sample " in ox


def test_copies_of_few_samples_are_not_split() -> None:
    """k-means warns of fewer clusters than asked for; pytest makes that an error here."""
    points = np.repeat([[0.0, 1.0], [5.0, 5.0]], 30, axis=0)
    labels = np.zeros(60, dtype=np.int64)
    clusters = split_classes(points, labels, 3, seed=0)
    assert clusters.map.sizes == [1]
    (note,) = clusters.notes
    assert note.startswith("class 0: not split into 3")
    assert "2 distinct samples" in note
    assert split_classes(points, labels, 2, seed=0).map.sizes == [2]
    assert split_classes(points[:30], labels[:30], "auto", seed=0).map.sizes == [1]


def test_samples_too_similar_for_k_means_are_not_an_error() -> None:
    points = np.zeros((40, 2)) + np.arange(40)[:, None] * 1e-200
    clusters = split_classes(points, np.zeros(40, dtype=np.int64), 2, seed=0)
    assert clusters.map.sizes == [1]
    (note,) = clusters.notes
    assert note.startswith("class 0: 1 cluster instead of 2")


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
        (np.zeros(5), np.zeros(5, int), r"embeddings has shape \(5,\)"),
        (np.zeros((5, 2)), np.zeros(4, int), r"and labels \(4,\)"),
        (np.zeros((0, 2)), np.zeros(0, int), "n and d at least 1"),
        (np.zeros((5, 2)), np.array([0, 1, 1, 3, 3]), r"labels are \[0 1 3\], need all of the integers 0..C-1"),
        (np.zeros((2, 2)), np.array([-1, 0]), "need all of the integers 0..C-1"),
        (np.zeros((2, 2)), np.array([0, 2**62]), "need all of the integers 0..C-1"),
        (np.zeros((2, 2)), np.array([0.0, 1.0]), "need all of the integers 0..C-1"),
        (np.array([[0.0], [np.nan]]), np.array([0, 0]), "NaN or infinity"),
    ],
)
def test_bad_samples_are_rejected(points: NDArray[Any], labels: NDArray[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_classes(points, labels, 2, seed=0)


@pytest.mark.parametrize(
    ("k", "options", "message"),
    [
        (0, {}, "k is 0, need an integer >= 1"),
        ("many", {}, "k is 'many', need"),
        (2, {"n_init": 0}, "n_init is 0, need at least 1"),
        (2, {"smallest": 0}, "smallest is 0"),
        (2, {"class_names": ["a", "b"]}, "2 class names, but the labels have 1 classes"),
    ],
)
def test_bad_settings_are_rejected(k: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_classes(np.zeros((5, 2)), np.zeros(5, int), k, seed=0, **options)


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


def choose(points: NDArray[np.float32], *, seed: int = 0, smallest: int = 10) -> int:
    return choose_k(points, seed=seed, smallest=smallest)[0]


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


def test_a_few_outliers_are_not_a_group() -> None:
    points = np.random.default_rng(0).standard_normal((200, 3)).astype(np.float32)
    points[:5] += 30
    assert choose(points) == 1
    assert choose(points, smallest=5) == 2


def test_a_sample_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    points, _ = groups(3, 5, 3000, apart=8, seed=0)
    monkeypatch.setattr("deeplda.subclasses._MOST_EXAMINED", 150)
    assert choose(points) == 3


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
