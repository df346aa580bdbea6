"""The way back from subclasses to classes is exact."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deeplda.subclasses import SubclassMap

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
def test_bad_parents_are_refused(parents: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="ascending from 0, with no class left out"):
        SubclassMap(parents)


def test_bad_arguments_are_refused() -> None:
    subclasses = SubclassMap((0, 0, 1))
    with pytest.raises(ValueError, match="subclass 3, need 0 to 2"):
        subclasses.to_classes(np.array([0, 3]))
    with pytest.raises(ValueError, match="subclass -1, need 0 to 2"):
        subclasses.to_classes(torch.tensor([-1]))
    with pytest.raises(ValueError, match="1 class names, need 2"):
        subclasses.names(["cat"])
    with pytest.raises(ValueError, match=r"shape \(4, 2\), need \(n, 3\)"):
        subclasses.class_scores(torch.rand(4, 2))
    with pytest.raises(ValueError, match=r"shape \(3,\), need \(n, 3\)"):
        subclasses.class_log_sums(torch.rand(3))
