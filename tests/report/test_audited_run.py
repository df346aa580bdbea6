"""Audits of runs: which samples have margins of the training, and what the rows say."""

import pytest
from trained_runs import image_set, row_set, train_run

from deeplda.report.audited_run import audit_run
from deeplda.training.preparation import read_data


def test_all_parts_are_audited_and_training_samples_have_margins(tmp_path):
    run = audit_run(train_run(tmp_path / "run", image_set(tmp_path / "images.npz", ("a", "b"))))
    data = read_data(run.record.config)
    assert run.parts == ("train",) * len(data.train) + ("val",) * len(data.val) + ("test",) * len(data.test)
    assert run.names[len(data.train) - 1 : len(data.train) + 1] == (f"train {len(data.train) - 1}", "val 0")
    assert run.audit.from_training.tolist() == [part == "train" for part in run.parts]
    for trained in (True, False):
        margins = [row["margin"] for row in run.rows() if (row["part"] == "train") == trained]
        assert margins == sorted(margins)
    assert "means over the epochs" in run.rule


def test_a_run_on_all_samples_names_them_by_their_parts(tmp_path):
    run = audit_run(train_run(tmp_path / "run", row_set(tmp_path / "rows.npz", ("a", "b")), train_on_all=True))
    assert {part for part, known in zip(run.parts, run.audit.from_training, strict=True) if known} == {"train", "val"}
    assert "val 0" in run.names
    [note] = run.notes
    assert "agrees with only 67.5 % of the labels that it was not trained on" in note


@pytest.mark.parametrize("settings", [{"subclasses": 2, "cluster_on": "inputs"}, {"objective": "cce"}])
def test_margins_are_those_of_classes_whatever_the_objective(tmp_path, settings):
    run = audit_run(train_run(tmp_path / "run", row_set(tmp_path / "rows.npz", ("a", "b")), epochs=40, **settings))
    assert run.audit.from_training.sum() == run.parts.count("train")
    assert (run.audit.margins > 0).mean() > 0.8
    assert (run.audit.distances is None) == ("objective" in settings)


def test_a_test_set_with_better_labels_is_judged_on_its_own(tmp_path):
    """The noise is in the training and validation sets only."""
    data = row_set(tmp_path / "rows.npz", ("a", "b"), train=600, test=200, features=60)
    clean, noisy = (
        audit_run(train_run(tmp_path / f"run-{noise}", data, epochs=5, label_noise=noise)) for noise in (0.0, 0.3)
    )
    low, high = clean.audit.mistakes_range
    assert low <= clean.audit.mistakes <= high < 60
    low, high = noisy.audit.mistakes_range
    # Of 1,200 labels.
    assert low <= 360 <= high
    assert f"about {noisy.audit.mistakes} of 1,600 labels" in noisy.estimate
    assert f"(95 % interval: {low} to {high})" in noisy.estimate
