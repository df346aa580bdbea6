"""Settings and figures in words."""

import shlex
from pathlib import Path

import pytest
from scipy.stats import binomtest

from deeplda.cli import app
from deeplda.report import words
from deeplda.report.contents import RunRecord
from deeplda.training.config import RunConfig


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"data": "/photos of mine/it's", "objective": "dlda", "flip": True, "translate": 4},
        {"objective": "cce", "embedding_dim": 5, "learning_rate": 1e-5, "patience": 3},
        {"alpha": 0.25, "statistic": "wilks", "class_weight": "balanced", "data_dir": "/some where", "seed": 7},
    ],
)
def test_the_command_means_the_same_settings(settings):
    config = RunConfig(**settings)
    _, bound, _ = app.parse_args(shlex.split(words.command(config))[1:], exit_on_error=False)
    given = bound.arguments.get("config")
    chosen = {name: getattr(given, name) for name in given.model_fields_set} if given else {}
    assert RunConfig(data=bound.arguments["data"], **chosen) == config


def test_headings():
    assert words.objective(RunConfig()) == "deep LDA, wilks statistic"
    assert words.objective(RunConfig(objective="dlda")) == "deep LDA, wilks statistic"
    paper = RunConfig(alpha=0.6, statistic="smallest")
    assert words.objective(paper) == "regularised deep LDA, alpha 0.6, smallest statistic"
    assert words.objective(RunConfig(objective="cce")) == "cross-entropy"
    assert words.data_name(RunConfig(data="/home/photos")) == "photos"
    assert words.data_name(RunConfig(data="cifar10")) == "cifar10"


def test_what_runs_differ_in_is_not_where_they_ran():
    configs = (RunConfig(seed=1, device="cpu"), RunConfig(seed=2, alpha=0.3, checkpoint_seconds=5))
    records = [RunRecord(Path("x"), config, {}, [], {}) for config in configs]
    assert words.differing_settings(records) == ["alpha", "seed"]


@pytest.mark.parametrize(("right", "n"), [(0, 5), (5, 5), (267, 270), (3895, 10_000)])
def test_the_interval_is_wilsons(right, n):
    expected = binomtest(right, n).proportion_ci(method="wilson")
    assert words.wilson_interval(right, n) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (59.7, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_durations(seconds, text):
    assert words.duration(seconds) == text


def test_the_machine_as_far_as_it_is_known():
    assert words.machine({}) == ""
    assert words.machine({"threads": 1, "cuda": None}) == "on 1 CPU thread"
    assert words.machine({"threads": 2, "cuda": "A100"}) == "on A100"
    found = words.surroundings({"started": "2026-01-02T03:04:05+00:00", "cores": 2, "versions": {"torch": "2.6"}})
    assert found == {"started": "2026-01-02 03:04:05 UTC", "cores": "2", "torch": "2.6"}


@pytest.mark.parametrize(
    ("flops", "text"),
    [(283_110_835_200_000, "0.283 PFLOP"), (5e13, "50 TFLOP"), (2.345e9, "2.35 GFLOP"), (1e6, "0.001 GFLOP")],
)
def test_compute(flops, text):
    assert words.compute(flops) == text


def test_effort_of_a_run_that_did_not_count():
    assert words.effort({"flops": 3e15}, {"threads": 2}) == "3 PFLOP on 2 CPU threads"
    assert words.effort({}, {"threads": 1}) == "on 1 CPU thread"
