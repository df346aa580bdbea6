"""Results of finished runs, and paired comparisons checked against scipy."""

import csv
import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from deeplda.experiments.results import compare

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
    assert (found.verdict != "no significant difference") == significant
    if significant:
        assert found.verdict == ("better" if expected.statistic > 0 else "worse")


@given(accuracies)
def test_swapping_the_groups_negates_the_difference(pairs):
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
        ({0: 0.9, 1: 0.91, 2: 0.92}, {0: 0.8, 1: 0.81, 2: 0.821}, "A is better than B over 3 seeds (+9.97 points"),
        ({0: 0.8, 1: 0.81, 2: 0.821}, {0: 0.9, 1: 0.91, 2: 0.92}, "A is worse than B over 3 seeds (-9.97 points"),
        ({0: 0.9, 1: 0.72}, {0: 0.8, 1: 0.8}, "A and B do not differ significantly over 2 seeds (+1.00 points"),
        ({0: 0.9, 1: 0.9}, {0: 0.9, 1: 0.9}, "A and B do not differ significantly over 2 seeds"),
        ({0: 0.9}, {0: 0.8}, "A differs from B by +10.00 points on the only common seed"),
        (
            {0: 260 / 270, 1: 262 / 270},
            {0: 259 / 270, 1: 261 / 270},
            "A differs from B by +0.37 points on each of 2 seeds",
        ),
        ({0: 0.9}, {1: 0.8}, "A and B have no seed in common"),
    ],
)
def test_sentences(ours, theirs, sentence):
    assert compare(ours, theirs).sentence("A", "B").startswith(sentence)


def test_trials_csv_has_one_row_per_finished_trial(finished):
    with (finished.folder / "trials.csv").open(newline="") as file:
        rows = {row["trial"]: row for row in csv.DictReader(file)}
    assert list(rows) == list(finished.trials)
    for name, row in rows.items():
        summary = json.loads((finished.run_folder(name) / "metrics.jsonl").read_text().splitlines()[-1])
        assert float(row["validation"]) == pytest.approx(100 * summary["validation"]["accuracy"], abs=0.0051)
        for predictor, scores in summary["test"]["predictors"].items():
            assert float(row[f"test {predictor}"]) == pytest.approx(100 * scores["accuracy"], abs=0.0051)
        deciding = next(iter(summary["test"]["predictors"].values()))
        assert float(row["test balanced"]) == pytest.approx(100 * deciding["balanced_accuracy"], abs=0.0051)
        assert float(row["test auc"]) == pytest.approx(deciding["auc"], abs=0.000051)
        for column, key in (("log loss", "log_loss"), ("brier", "brier"), ("ece", "ece")):
            assert float(row[f"test {column}"]) == pytest.approx(deciding[key], abs=0.000051)
        assert row["seed"] == name[-1]
    assert rows["rdlda-alpha0-seed1"]["alpha"] == "0.0"
    assert len(rows["rdlda-alpha0-seed1"]["eigenvalues"].split()) == 9
    assert (rows["cce-seed0"]["alpha"], rows["cce-seed0"]["eigenvalues"]) == ("", "")
