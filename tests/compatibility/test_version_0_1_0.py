"""Run folders, models and classifiers written by version 0.1.0 are read by this one, and predict the same.

The fixtures were made by version 0.1.0: two runs on digits at width 1/8, one of 3 epochs and one stopped in the fourth
of 6; and two classifiers on iris. `expected.json` has what version 0.1.0 predicted for every 100th digit and every
15th iris, for the stopped run after version 0.1.0 had resumed it.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.special
from PIL import Image
from sklearn.datasets import load_digits, load_iris

from deeplda import DeepLDAClassifier, load
from deeplda.cli import main
from deeplda.training.metrics import EpochRow, SummaryRow
from deeplda.training.run_folder import read_metrics

OLD = Path(__file__).with_name("version_0_1_0")
EXPECTED = json.loads((OLD / "expected.json").read_text())


def digits():
    return np.round(load_digits().images * (255 / 16)).astype(np.uint8)[:: EXPECTED["digits_every"], None]


def irises():
    return load_iris().data[:: EXPECTED["iris_every"]]


def test_a_model_predicts_the_same():
    probabilities = load(OLD / "finished").predict_proba(digits())
    np.testing.assert_allclose(probabilities, EXPECTED["finished"], atol=1e-6)
    assert load(OLD / "finished").calibrated_on == 0


def test_predictions_of_an_old_model_carry_a_note(tmp_path, capsys):
    Image.fromarray(digits()[0, 0]).save(tmp_path / "digit.png")
    main(["predict", str(OLD / "finished"), str(tmp_path / "digit.png"), "--json"])
    shown = capsys.readouterr()
    assert "probabilities are far too confident" in shown.err
    found = json.loads(shown.out)
    assert found["calibrated_on"] == 0
    assert found["predictions"][0]["probability"] == pytest.approx(max(EXPECTED["finished"][0]), abs=1e-5)


def test_a_finished_run_is_read():
    rows = read_metrics(OLD / "finished")
    assert [type(row) for row in rows] == [EpochRow] * 3 + [SummaryRow]
    assert all(row.eigenvalues and row.validation.n == 270 for row in rows[:3])


def test_a_finished_run_is_evaluated_as_it_was(capsys):
    main(["evaluate", str(OLD / "finished"), "--json"])
    scores, summary = json.loads(capsys.readouterr().out), read_metrics(OLD / "finished")[-1]
    assert scores["accuracy"] == pytest.approx(summary.test.accuracy, abs=0.005)


def test_a_stopped_run_is_resumed_to_the_same_model(tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(OLD / "interrupted", run)
    settings = (run / "run.toml").read_text()
    main(["train", "--resume", "--run", str(run), "--quiet", "--json"])
    assert json.loads(capsys.readouterr().out)["epochs"] == 6
    assert (run / "run.toml").read_text() == settings
    # A run that started over would end in the same model, but its first epochs would have taken other seconds.
    before = read_metrics(OLD / "interrupted")
    assert len(before) == 3
    assert read_metrics(run)[:3] == before
    # This version calibrates the probabilities; version 0.1.0 did not. Six epochs amplify the last digits in which
    # processors differ.
    model = load(run)
    assert model.calibrated_on == 270
    probabilities = scipy.special.softmax(model.decision_function(digits()), axis=1)
    np.testing.assert_allclose(probabilities, EXPECTED["continued"], atol=0.02)


@pytest.mark.parametrize("name", ["classifier", "subclass_classifier"])
def test_a_classifier_predicts_the_same(name):
    loaded = DeepLDAClassifier.load(OLD / name)
    np.testing.assert_allclose(loaded.predict_proba(irises()), EXPECTED[name], atol=1e-9)
    if name == "classifier":
        np.testing.assert_allclose(loaded.transform(irises()), EXPECTED["classifier_transform"], atol=1e-9)
        assert loaded.get_params()["statistic"] == "wilks"
        assert loaded.get_params()["class_weight"] == {"virginica": 2.0}
