"""Scores against scikit-learn's."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score, confusion_matrix, log_loss, roc_auc_score

from deeplda.data.dataset import Part
from deeplda.predictors.calibration import brier_score
from deeplda.training.evaluation import _accuracy, _balanced_accuracy, area_under_roc, confusion, evaluate
from small_model import digits, small_model


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_scikit_learns(seed):
    rng = np.random.default_rng(seed)
    labels, predicted = rng.integers(0, 4, 50), rng.integers(0, 4, 50)
    table = confusion(labels, predicted, 4)
    assert np.array_equal(table, confusion_matrix(labels, predicted, labels=range(4)))
    assert _accuracy(table) == pytest.approx(accuracy_score(labels, predicted))
    assert _balanced_accuracy(table) == pytest.approx(balanced_accuracy_score(labels, predicted))


def test_a_class_without_samples_does_not_count():
    table = confusion(np.array([0, 0, 1]), np.array([0, 2, 1]), 3)
    assert _balanced_accuracy(table) == pytest.approx(0.75)


def test_area_under_roc_of_two_classes_orders_their_difference():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 60)
    scores = rng.standard_normal((60, 2))
    scores[10:30] = scores[30:50]  # ties
    assert area_under_roc(labels, scores) == pytest.approx(roc_auc_score(labels, scores[:, 1] - scores[:, 0]))


def test_area_under_roc_of_many_classes_is_the_mean_of_one_against_the_rest():
    rng = np.random.default_rng(1)
    labels, scores = rng.integers(0, 4, 80), 3 * rng.standard_normal((80, 4))
    probabilities = np.exp(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))
    assert area_under_roc(labels, scores) == pytest.approx(roc_auc_score(labels, probabilities, multi_class="ovr"))


def test_area_under_roc_tells_certain_samples_apart():
    """Their probabilities are all 0 or 1 in float64."""
    labels, scores = np.array([0, 0, 1, 1, 1]), np.array([[900.0, 0], [800, 0], [700, 0], [600, 0], [850, 0]])
    assert area_under_roc(labels, scores) == pytest.approx(5 / 6)


def test_area_under_roc_is_of_the_classes_present():
    scores = np.array([[3.0, 0, 0], [2, 1, 0], [0, 2, 1]])
    assert area_under_roc(np.array([0, 0, 1]), scores) == 1
    assert area_under_roc(np.array([0, 0, 0]), scores) is None


def test_the_scores_of_the_probabilities_are_those_of_predict_proba():
    model, part = small_model(), Part(*digits())
    raw = evaluate(model, part)
    scores = evaluate(model, part, calibrate=True)
    probabilities = model.predict_proba(part.inputs)
    found = scores.predictors["hyperplanes"]
    assert found.log_loss == pytest.approx(log_loss(part.labels, probabilities))
    assert found.brier == pytest.approx(brier_score(probabilities, part.labels))
    assert model.calibrated_on == len(part)
    for name, before in raw.predictors.items():
        after = scores.predictors[name]
        assert after.log_loss < before.log_loss
        assert (after.accuracy, after.balanced_accuracy) == (before.accuracy, before.balanced_accuracy)
        assert int(model._named_predictor(name).calibration.samples) == len(part)


def test_weighted_samples_have_a_weighted_accuracy_that_selects_the_epoch():
    model, part = small_model(), Part(*digits())
    weights = np.random.default_rng(0).uniform(0.1, 3, len(part))
    plain, weighted = evaluate(model, part), evaluate(model, replace(part, weights=weights))
    right = model.predict(part.inputs) == np.asarray(model.class_names)[part.labels]
    assert weighted.weighted_accuracy == weighted.score == pytest.approx(np.average(right, weights=weights))
    assert weighted.score != plain.score
    assert weighted.model_copy(update={"weighted_accuracy": None}) == plain
    assert "weighted_accuracy" not in plain.model_dump(exclude_unset=True)
