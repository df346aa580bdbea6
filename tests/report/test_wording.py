"""Settings, effort and environment in words."""

import shlex
from pathlib import Path

import pytest

from deeplda.cli import app
from deeplda.report import wording
from deeplda.report.record import Environment, RunRecord
from deeplda.training.config import RunConfig
from deeplda.training.metrics import PredictorScores, Scores, SummaryRow

TEST = Scores(
    n=2,
    accuracy=0.5,
    predictors={"softmax": PredictorScores(accuracy=0.5, balanced_accuracy=0.5)},
    confusion=[[1, 0], [1, 0]],
)
SUMMARY = SummaryRow(validation=None, test=TEST, class_names=["a", "b"], epochs=5, best_epoch=5, seconds=1.0)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"data": "/photos of mine/it's", "objective": "dlda", "flip": True, "translate": 4},
        {"objective": "rdlda", "alpha": 0.5},
        {"objective": "rdlda", "statistic": "wilks"},
        {"objective": "cce", "embedding_dim": 5, "learning_rate": 1e-5, "patience": 3},
        {"objective": "joint", "lda_weight": 0.5, "statistic": "pillai", "label_smoothing": 0.2},
        {"objective": "gce", "gce_q": 0.5},
        {"relabel": ("/a b/1.csv", "/2.csv"), "drop": ("/3.csv",)},
        {"alpha": 0.25, "statistic": "pillai", "class_weight": "balanced", "data_dir": "/some where", "seed": 7},
    ],
)
def test_the_command_means_the_same_settings(settings):
    config = RunConfig(**settings)
    _, bound, _ = app.parse_args(shlex.split(wording.command(config, Path("run")))[1:], exit_on_error=False)
    given = bound.arguments.get("config")
    chosen = {name: getattr(given, name) for name in given.model_fields_set} if given else {}
    assert RunConfig(data=bound.arguments["data"], **chosen) == config


@pytest.mark.parametrize("settings", [{"start_from": "runs/a"}, {"extended_to": (40,)}])
def test_what_no_options_can_express_is_repeated_from_its_file(settings):
    assert wording.command(RunConfig(**settings), Path("my runs/b")) == "deeplda train --recipe 'my runs/b/run.toml'"


def test_headings():
    assert wording.objective_name(RunConfig()) == "deep LDA, wilks statistic"
    assert wording.objective_name(RunConfig(objective="dlda")) == "deep LDA, smallest statistic"
    paper = RunConfig(objective="rdlda")
    assert wording.objective_name(paper) == "regularised deep LDA, alpha 0.6, smallest statistic"
    assert wording.objective_name(RunConfig(objective="cce", subclasses=2)) == "cross-entropy, 2 subclasses per class"
    gce = RunConfig(objective="gce", gce_q=0.5, subclasses=2)
    assert wording.objective_name(gce) == "generalised cross-entropy, q 0.5, 2 subclasses per class"
    joint = RunConfig(objective="joint", lda_weight=0.25, alpha=0.5)
    assert wording.objective_name(joint) == "cross-entropy + 0.25 x regularised deep LDA, alpha 0.5, wilks statistic"
    assert wording.data_name(RunConfig(data="/home/photos")) == "photos"
    assert wording.data_name(RunConfig(data="cifar10")) == "cifar10"


def test_the_defaults_of_an_objective_are_not_repeated():
    assert wording.command(RunConfig(objective="rdlda"), Path("run")) == "deeplda train digits --objective rdlda"
    assert wording.chosen_settings(RunConfig(objective="rdlda", alpha=0.5)) == {"objective": "rdlda", "alpha": 0.5}


def test_where_runs_were_computed_is_not_a_difference_between_them():
    configs = (RunConfig(seed=1, device="cpu"), RunConfig(seed=2, alpha=0.3, checkpoint_seconds=5))
    records = [RunRecord(Path("x"), config, Environment(), [], SUMMARY) for config in configs]
    assert wording.differing_settings(records) == ["alpha", "seed"]


def test_the_machine_as_far_as_it_is_known():
    assert wording.machine(Environment()) == ""
    assert wording.machine(Environment(threads=1)) == "on 1 CPU thread"
    assert wording.machine(Environment(threads=2, cuda="A100")) == "on A100"
    found = {"started": "2026-01-02T03:04:05+00:00", "cores": 2, "versions": {"torch": "2.6"}, "cuda": None}
    assert wording.environment_table(Environment.parse(found)) == {
        "started": "2026-01-02 03:04:05 UTC",
        "cores": "2",
        "torch": "2.6",
    }


def test_effort_as_far_as_it_is_known():
    counted = SUMMARY.model_copy(update={"flops": 3 * 10**15})
    assert wording.effort(counted, Environment(threads=2)) == "3 PFLOP on 2 CPU threads"
    assert wording.effort(SUMMARY, Environment(threads=1)) == "on 1 CPU thread"


def test_why_an_epoch_was_kept():
    assert wording.kept_epoch(SUMMARY) == "of 5, the last one"
    validated = SUMMARY.model_copy(update={"validation": SUMMARY.test})
    assert wording.kept_epoch(validated) == "of 5, best validation score"
