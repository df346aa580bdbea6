"""`deeplda evaluate`: the scores of training again."""

import json

import numpy as np
import pytest
from command import deeplda
from scipy.stats import binomtest


def test_evaluate_agrees_with_training(home):
    found = json.loads(deeplda("evaluate", "runs/digits", "--json", cwd=home, check=0).stdout)
    summary = json.loads((home / "train.json").read_text())
    keys = {"split", "n", "accuracy", "predictors", "confusion", "class_names", "accuracy_intervals", "calibrated_on"}
    assert set(found) == keys
    assert found["calibrated_on"] == 270
    for name, (low, high) in found["accuracy_intervals"].items():
        right = round(found["predictors"][name]["accuracy"] * 270)
        interval = binomtest(right, 270).proportion_ci(method="wilson")
        assert (low, high) == pytest.approx((interval.low, interval.high))
        assert 0 <= found["predictors"][name]["ece"] <= 1
    assert found["split"] == "test"
    assert found["n"] == 270
    assert found["predictors"] == summary["test"]["predictors"]
    assert found["accuracy"] == np.trace(found["confusion"]) / 270
    validation = json.loads(deeplda("evaluate", "runs/digits", "--split", "val", "--json", cwd=home, check=0).stdout)
    assert validation["predictors"] == summary["validation"]["predictors"]


def test_evaluate_shows_a_table(home):
    text = deeplda("evaluate", "runs/digits", "--tta", "mirror", cwd=home, check=0).stdout
    assert "mirrored" in text
    assert "balanced" in text
    assert all(column in text for column in ("AUC", "log loss", "Brier", "ECE", "95 % CI"))
    assert "confusion matrix of hyperplanes" in text


def test_evaluate_with_six_views(home):
    found = json.loads(deeplda("evaluate", "runs/digits", "--tta", "views", "--json", cwd=home, check=0).stdout)
    assert found["views"]["n"] == 270
    assert "mirrored" not in found
    text = deeplda("evaluate", "runs/digits", "--tta", "views", cwd=home, check=0).stdout
    assert "views" in text
    assert "without augmentation" in text


def test_evaluate_has_the_label_noise_of_the_training(tmp_path):
    options = ("--label-noise", "0.4", "--noise-kind", "pairs", "--json", "--run", "noisy")
    trained = deeplda(
        "train", "--epochs", "5", "--width", "0.25", "--learning-rate", "0.1", *options, cwd=tmp_path, check=0
    )
    said = "labels were made wrong on purpose (label_noise 0.4, noise_kind pairs)"
    assert said in trained.stderr
    summary = json.loads(trained.stdout)
    for split, part in (("val", "validation"), ("test", "test")):
        done = deeplda("evaluate", "noisy", "--split", split, "--json", cwd=tmp_path, check=0)
        assert json.loads(done.stdout)["predictors"] == summary[part]["predictors"]
        assert said in done.stderr
    # A model that has learnt more than the noise finds more right labels than it is shown.
    assert summary["test"]["accuracy"] > summary["validation"]["accuracy"] + 0.1
