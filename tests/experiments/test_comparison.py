"""Paired comparisons, against scipy."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from deeplda.experiments.comparison import compare

accuracies = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)).map(lambda pair: (pair[0] / 1e4, pair[1] / 1e4)),
    min_size=2,
    max_size=12,
)


@given(accuracies)
def test_the_interval_is_that_of_the_paired_t_test(pairs):
    ours, theirs = (dict(enumerate(side)) for side in zip(*pairs, strict=True))
    differences = [one - other for one, other in pairs]
    assume(max(differences) - min(differences) > 1e-3)
    found = compare(ours, theirs)
    expected = stats.ttest_rel(list(ours.values()), list(theirs.values()))
    interval = expected.confidence_interval(0.95)
    assert found.n == len(pairs)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-12)
    significant = expected.pvalue < 0.05
    assume(abs(expected.pvalue - 0.05) > 1e-6)
    assert (found.verdict != "not to be told apart") == significant
    if significant:
        assert found.verdict == ("better" if expected.statistic > 0 else "worse")


@given(accuracies)
def test_turned_round_it_says_the_opposite(pairs):
    ours, theirs = (dict(enumerate(side)) for side in zip(*pairs, strict=True))
    there, back = compare(ours, theirs), compare(theirs, ours)
    assert there.mean == pytest.approx(-back.mean)
    if there.low is None:
        assert (there.high, back.low, back.high) == (None, None, None)
    else:
        assert (there.low, there.high) == pytest.approx((-back.high, -back.low))


def test_seeds_are_paired_by_number_and_only_common_ones_count():
    found = compare({0: 0.5, 1: 0.7, 7: 0.1}, {1: 0.6, 0: 0.3, 9: 1.0})
    assert found.n == 2
    assert found.mean == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("ours", "theirs", "sentence"),
    [
        ({0: 0.9, 1: 0.91, 2: 0.92}, {0: 0.8, 1: 0.81, 2: 0.821}, "A is better than B with 3 seeds (+9.97 points"),
        ({0: 0.8, 1: 0.81, 2: 0.821}, {0: 0.9, 1: 0.91, 2: 0.92}, "A is worse than B with 3 seeds (-9.97 points"),
        ({0: 0.9, 1: 0.72}, {0: 0.8, 1: 0.8}, "A and B are not to be told apart with 2 seeds (+1.00 points"),
        ({0: 0.9, 1: 0.9}, {0: 0.9, 1: 0.9}, "A and B are not to be told apart with 2 seeds"),
        ({0: 0.9}, {0: 0.8}, "A is +10.00 points from B with one common seed: one seed tells nothing."),
        (
            {0: 260 / 270, 1: 262 / 270},
            {0: 259 / 270, 1: 261 / 270},
            "A is +0.37 points from B with each of 2 seeds: with",
        ),
        ({0: 0.9}, {1: 0.8}, "A and B have no seed in common: nothing to compare."),
    ],
)
def test_sentences(ours, theirs, sentence):
    assert compare(ours, theirs).sentence("A", "B").startswith(sentence)
