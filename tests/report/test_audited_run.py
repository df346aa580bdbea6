"""Audits of runs: which samples have margins of the training, and what the rows say."""

import shlex
from dataclasses import replace

import numpy as np
import pytest
from trained_runs import image_set, row_set, train_run

from deeplda.printing import as_csv
from deeplda.report.audited_run import COLUMNS, audit_run
from deeplda.training.config import RunConfig
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
    assert noisy.estimate.startswith(f"{low} to {high} of 1,600 labels are estimated to be wrong")
    assert f"the best estimate is {noisy.audit.mistakes}" in noisy.estimate


@pytest.fixture(scope="module")
def rows_run(tmp_path_factory):
    home = tmp_path_factory.mktemp("rounds")
    return home, audit_run(train_run(home / "run", row_set(home / "rows.npz", ("a", "b")), label_noise=0.2))


def decided(run, file, *decisions):
    """Write the first rows of an audit with these decisions to a file."""
    rows = [row | {"decision": decision} for row, decision in zip(run.rows(), decisions, strict=False)]
    file.write_text(as_csv(COLUMNS, rows))
    return file


def test_labels_that_earlier_rounds_have_confirmed_come_last(rows_run, tmp_path):
    home, before = rows_run
    first = [before.names[place] for place in before.order[:4]]
    file = decided(before, tmp_path / "1.csv", "rejected", "accepted", "dropped", "")
    after = audit_run(train_run(tmp_path / "run", home / "rows.npz", label_noise=0.2, relabel=(file,)))
    confirmed = {name for name, known in zip(after.names, after.confirmed, strict=True) if known}
    tested = before.parts[before.order[1]] == "test"
    assert confirmed == ({first[0]} if tested else set(first[:2]))
    assert [after.names[place] for place in after.order[-len(confirmed) :]] == [
        after.names[place] for place in after.audit.order if after.confirmed[place]
    ]
    assert after.ranks[after.order[0]] == 1
    assert any("decisions have confirmed the label: " in note for note in after.notes)
    assert not before.confirmed.any()
    assert not any(after.confirmed[place] for place in (*after.outliers, *after.duplicates))


def test_of_near_duplicates_the_one_with_a_confirmed_label_is_left_out(rows_run):
    _, run = rows_run
    margins = run.audit.margins
    low, high = sorted((0, 1), key=lambda place: margins[place])
    pair = replace(run, audit=replace(run.audit, duplicates=((0, 1),)))
    assert pair.duplicates == [low]
    confirmed = run.confirmed.copy()
    confirmed[low] = True
    assert replace(pair, confirmed=confirmed).duplicates == [high]
    confirmed[high] = True
    assert replace(pair, confirmed=confirmed).duplicates == []


def test_outliers_are_compared_within_their_sets_even_without_margins(rows_run):
    _, run = rows_run
    trained = np.array(run.parts) == "train"
    distances = np.where(trained, 1.0, 9.0) + np.linspace(0, 0.5, len(trained))
    distances[np.flatnonzero(trained)[3]] = 5.0
    unknown = replace(run.audit, distances=distances, from_training=np.zeros_like(trained))
    assert replace(run, audit=unknown).outliers == [np.flatnonzero(trained)[3]]


def test_the_command_repeats_the_training_with_all_decisions(rows_run, tmp_path):
    home, before = rows_run
    file = decided(before, tmp_path / "my file.csv", *["accepted"] * 5)
    run = train_run(tmp_path / "run 2", home / "rows.npz", label_noise=0.2, relabel=(file,))
    config = RunConfig.of(run)
    assert config.relabel == (file,)
    file.unlink()
    words = shlex.split(audit_run(run).command)
    assert words[:3] == ["deeplda", "train", str(home / "rows.npz")]
    places = [place for place, word in enumerate(words) if word == "--relabel"]
    assert [words[place + 1] for place in places] == [str(run / "relabel-1.csv"), "decisions-run 2.csv"]
    assert words[words.index("--label-noise") + 1] == "0.2"
