"""`deeplda evaluate`: the scores of training again."""

import json

import numpy as np
from command import deeplda


def test_evaluate_agrees_with_training(home):
    found = json.loads(deeplda("evaluate", "runs/digits", "--json", cwd=home, check=0).stdout)
    summary = json.loads((home / "train.json").read_text())
    assert set(found) == {"split", "n", "accuracy", "predictors", "confusion", "class_names"}
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
    assert "AUC" in text
    assert "confusion matrix of hyperplanes" in text
