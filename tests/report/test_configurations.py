"""Configurations: which runs belong together, and their scores over the seeds."""

from pathlib import Path

import numpy as np
import pytest

from deeplda.report.configurations import configurations
from deeplda.report.record import Environment, RunRecord
from deeplda.training.config import RunConfig
from deeplda.training.metrics import Scores, SummaryRow
from metric_scores import scores_with


def record(name, validation, test=0.5, **settings):
    """Return the record of a run with these accuracies, without a model."""
    found = [None if share is None else Scores.model_validate(scores_with(share)) for share in (validation, test)]
    summary = SummaryRow(
        validation=found[0], test=found[1], class_names=["a", "b"], epochs=1, best_epoch=1, seconds=2.0
    )
    return RunRecord(Path("trials") / name, RunConfig(**settings), Environment(), [], summary)


def test_mean_and_standard_deviation_over_the_seeds():
    runs = [record(f"seed{seed}", 0.7 + 0.1 * seed, 0.6 + 0.1 * seed, seed=seed) for seed in range(3)]
    other = record("other", 0.75, 0.5, objective="cce")
    groups = configurations([*runs, other])
    assert [group.name for group in groups] == ["objective lda", "objective cce"]
    assert [run.config.seed for run in groups[0].runs] == [2, 1, 0]
    for spread, values in ((groups[0].validation, [0.7, 0.8, 0.9]), (groups[0].test, [0.6, 0.7, 0.8])):
        assert (spread.mean, spread.std) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    assert str(groups[0].validation) == "80.00 ± 10.00"
    assert (groups[1].test.n, groups[1].test.std, str(groups[1].test)) == (1, None, "50.00")


def test_the_best_mean_comes_first_even_if_another_seed_is_best():
    groups = configurations(
        [
            record("lucky", 0.95, alpha=0.5, seed=0),
            record("unlucky", 0.55, alpha=0.5, seed=1),
            record("steady", 0.8, alpha=0.9, seed=0),
        ]
    )
    assert [group.name for group in groups] == ["alpha 0.9", "alpha 0.5"]


def test_a_setting_without_effect_does_not_separate_runs():
    """Cross-entropy has no alpha."""
    runs = [record(f"{seed}", 0.5, objective="cce", alpha=0.1 * seed, seed=seed) for seed in range(2)]
    groups = configurations([*runs, record("lda", 0.6)])
    assert [(group.name, group.values, len(group.runs)) for group in groups] == [
        ("objective lda, alpha 1", "lda, 1", 1),
        ("objective cce", "cce", 2),
    ]


def test_runs_that_differ_only_in_their_seed_are_compared_with_each_other():
    groups = configurations([record("one", 0.5, seed=1), record("two", 0.6, seed=2)])
    assert [group.name for group in groups] == ["seed 2", "seed 1"]


def test_runs_that_differ_in_nothing_are_called_by_their_folder():
    groups = configurations([record("one", 0.5), record("two", 0.5)])
    assert [(group.name, group.values) for group in groups] == [("trials/one", "one"), ("trials/two", "two")]


def test_without_a_validation_set_the_order_stays():
    groups = configurations([record("one", None, 0.5, alpha=0.5), record("two", None, 0.9, alpha=0.6)])
    assert [group.runs[0].path.name for group in groups] == ["one", "two"]
    assert groups[0].validation is None
