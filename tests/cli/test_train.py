"""`deeplda train`: run folders, resuming, objectives and networks."""

import json
import shlex

import numpy as np
import pytest
from command import QUICK, deeplda, in_a_process, only_sentence
from PIL import Image

from deeplda import DeepLDAClassifier, load


def test_train_prints_one_json_object(home):
    summary = json.loads((home / "train.json").read_text())
    assert summary["run"] == "runs/digits"
    assert summary["epochs"] == 2
    assert set(summary["test"]["predictors"]) == {"hyperplanes", "nearest_mean", "classic_lda"}
    assert summary["test"]["accuracy"] > 0.8


def test_the_run_folder_has_its_documented_files(home):
    run = home / "runs" / "digits"
    for name in ("run.toml", "environment.json", "metrics.jsonl", "model/weights.safetensors", "model/model.json"):
        assert (run / name).is_file(), name
    for name in ("last", "previous", "best"):
        assert (run / "checkpoints" / name / "state.safetensors").is_file(), name
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["kind"] for row in rows] == ["epoch", "epoch", "summary"]
    assert len(rows[0]["eigenvalues"]) == 9


def test_a_known_name_wins_over_a_folder(tmp_path):
    (tmp_path / "digits").mkdir()
    deeplda("train", "digits", *QUICK, "--run", "run", cwd=tmp_path, check=0)
    assert 'data = "digits"' in (tmp_path / "run" / "run.toml").read_text()


def test_resuming_a_finished_run_prints_a_note(home):
    done = deeplda("train", "--resume", "--run", "runs/digits", cwd=home, check=0)
    assert "is already finished" in done.stderr


def test_resuming_without_a_run_starts_one_only_if_the_data_is_named(tmp_path):
    done = deeplda("train", "--resume", "--run", "runs/typo", cwd=tmp_path, check=2)
    assert "there is no run in runs/typo to resume" in done.stderr
    assert list(tmp_path.iterdir()) == []
    done = deeplda("train", "digits", "--resume", "--run", "runs/new", *QUICK, cwd=tmp_path, check=0)
    assert "there is no run in runs/new to resume" in done.stderr


def test_a_second_run_gets_a_folder_of_its_own(tmp_path):
    for expected in ("runs/digits-lda", "runs/digits-lda-2"):
        done = deeplda("train", "--epochs", "1", "--width", "0.1", "--json", "--quiet", cwd=tmp_path, check=0)
        assert json.loads(done.stdout)["run"] == expected


def test_the_run_is_named_before_the_training_and_the_next_commands_after_it(tmp_path):
    done = deeplda("train", "digits", *QUICK, "--run", "my run", cwd=tmp_path, check=0)
    before, _, _ = done.stderr.partition("epoch   1/2")
    assert "the run is in my run; Ctrl-C stops it" in before
    lines = done.stdout.splitlines()
    hints = lines[lines.index("the run is in my run, and its report is my run/report.html; next:") + 1 :]
    commands = [shlex.split(hint.partition("    ")[0]) for hint in (line.strip() for line in hints)]
    assert all(command[0] == "deeplda" and command[2] == "my run" for command in commands)
    found = json.loads(deeplda("doctor", "my run", "--json", cwd=tmp_path, check=0).stdout)["findings"]
    warnings = [f"{finding['severity']}: {finding['what']}" for finding in found if finding["severity"] != "good"]
    assert [line for line in lines if line.startswith(("warning: ", "problem: "))] == warnings
    assert [command[1] for command in commands] == ["doctor"] * bool(warnings) + ["report", "predict", "audit"]


def test_cross_entropy_reports_softmax(tmp_path):
    given = ("--objective", "cce", *QUICK, "--embedding-dim", "5", "--alpha", "0.5")
    done = deeplda("train", *given, "--json", cwd=tmp_path, check=0)
    assert "note: --alpha has no effect on training with objective cce" in done.stderr.splitlines()
    summary = json.loads(done.stdout)
    assert set(summary["test"]["predictors"]) == {"softmax"}
    assert summary["run"] == "runs/digits-cce"
    again = json.loads(deeplda("evaluate", "runs/digits-cce", "--json", cwd=tmp_path, check=0).stdout)
    assert again["accuracy"] == summary["test"]["accuracy"]
    Image.new("L", (8, 8)).save(tmp_path / "one.png")
    refused = deeplda("predict", "runs/digits-cce", "one.png", "--distance", cwd=tmp_path)
    assert "train with objective lda" in only_sentence(refused)


def test_rows_of_numbers_and_balanced_weights(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.choice(["yes", "no"], 300, p=[0.8, 0.2])
    x = rng.normal(size=(300, 5)) + 2 * (y == "yes")[:, None]
    np.savez(tmp_path / "rows.npz", x_train=x, y_train=y)
    arguments = ("train", "rows.npz", "--class-weight", "balanced", "--epochs", "3", "--quiet", "--json")
    done = deeplda(*arguments, cwd=tmp_path, check=0)
    assert done.stderr == ""
    assert json.loads(done.stdout)["class_names"] == ["no", "yes"]
    again = deeplda("train", "--resume", "--run", "runs/rows-lda", cwd=tmp_path, check=0)
    assert "  deeplda predict runs/rows-lda NEW-SAMPLES.npz    " in again.stdout
    model = load(tmp_path / "runs" / "rows-lda")
    # As in the estimator, all classes have the same weight, and no odds are changed.
    classifier = DeepLDAClassifier(class_weight="balanced", max_epochs=1, calibrate=False).fit(x, y)
    for statistics in (model.statistics, classifier.model_.statistics):
        assert float(statistics.counts[0]) == pytest.approx(float(statistics.counts[1]))
    for name in model.card.predictors:
        assert not model.predictors[name].prior_shift.any()
        assert not classifier.model_.predictors[name].prior_shift.any()
    (tmp_path / "one.png").touch()
    assert "takes feature vectors" in only_sentence(deeplda("predict", "runs/rows-lda", "one.png", cwd=tmp_path))
    found = json.loads(deeplda("predict", "runs/rows-lda", "rows.npz", "--json", cwd=tmp_path, check=0).stdout)
    assert [row["file"] for row in found["predictions"][:2]] == ["rows.npz:x_train[0]", "rows.npz:x_train[1]"]
    np.savez(tmp_path / "rows.npz", x_train=np.vstack([x, x[:1]]), y_train=[*y, y[0]])
    done = deeplda("evaluate", "runs/rows-lda", cwd=tmp_path, check=0)
    assert "has changed since runs/rows-lda was trained" in done.stderr


def test_a_network_of_your_own(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def make(shape, embedding_dim):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, embedding_dim))\n"
    )
    done = in_a_process("train", "--network", "mine:make", "--epochs", "1", "--run", "r", cwd=tmp_path, check=0)
    for command in ("report r --open", "predict r FILES-OR-FOLDERS...", "audit r --open"):
        assert f"  deeplda {command} --network mine:make    " in done.stdout
    assert "without your permission" in only_sentence(deeplda("evaluate", "r", cwd=tmp_path))
    in_a_process("evaluate", "r", "--network", "mine:make", cwd=tmp_path, check=0)
