"""Audits of labels: the order, suggestions, near-duplicates and outliers."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_iris

from deeplda import DeepLDAClassifier
from deeplda.audit import WrongShare, audit_samples, far_samples, wrong_counts, wrong_share
from deeplda.errors import InputError
from small_model import digits, small_model


def test_the_order_is_that_of_the_margins_of_the_scores():
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(0, 30, (50, 4)), rng.integers(0, 4, 50)
    samples = rng.normal(size=(50, 3))
    found = audit_samples(samples, samples, scores, labels, None)
    margins = []
    for row, label in zip(scores, labels, strict=True):
        others = {place: score for place, score in enumerate(row) if place != label}
        margins.append(row[label] - max(others.values()))
    assert found.order.tolist() == np.argsort(margins).tolist()
    assert (np.sign(found.margins) == np.sign(margins)).all()
    assert np.abs(found.margins).max() <= 1
    assert (found.suggested != labels).all()
    wrong = np.flatnonzero(found.margins < 0)
    assert found.suggested[wrong].tolist() == scores[wrong].argmax(1).tolist()
    assert not found.from_training.any()
    assert len(found.outliers) == 0


def test_margins_of_the_training_take_the_place_of_scores():
    scores = np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    margins = np.array([-0.75, np.nan, 0.5])
    found = audit_samples(np.zeros((3, 2)), np.eye(3), scores, np.zeros(3, dtype=np.int64), None, margins)
    assert found.from_training.tolist() == [True, False, True]
    assert found.margins[[0, 2]].tolist() == [-0.75, 0.5]
    assert -1 < found.margins[1] < 0


def test_margins_of_both_kinds_are_ranked_among_themselves():
    """Low scores of two samples must not come before all margins of the training, which are higher throughout."""
    scores = np.column_stack([np.linspace(-3, -2, 5), np.zeros(5)]).repeat(2, axis=0)
    margins = np.full(10, np.nan)
    margins[[9, 7, 5, 3, 1]] = [0.1, 0.2, 0.3, 0.4, 0.5]
    found = audit_samples(np.zeros((10, 2)), scores, scores, np.zeros(10, dtype=np.int64), None, margins)
    assert found.order.tolist() == [0, 9, 2, 7, 4, 5, 6, 3, 8, 1]
    assert replace(found, mistakes=3).suspects.tolist() == [0, 9, 2]


def test_outliers_are_far_from_every_class():
    distances = np.concatenate([np.linspace(1, 2, 40), [9.0, 30.0]])
    n = len(distances)
    zeros = np.zeros((n, 2))
    found = audit_samples(zeros, zeros, zeros, np.zeros(n, dtype=int), distances)
    assert found.outliers.tolist() == [41, 40]


def test_outliers_are_unusual_among_samples_of_the_same_kind():
    """Held-out samples are farther from their classes than samples that the network was trained on."""
    trained = np.arange(80) < 60
    distances = np.concatenate([np.linspace(1, 2, 59), [6.0], np.linspace(8, 12, 19), [40.0]])
    assert far_samples(distances, trained).tolist() == [79, 59]
    zeros, margins = np.zeros((80, 2)), np.where(trained, 0.5, np.nan)
    found = audit_samples(zeros, zeros, zeros, np.zeros(80, dtype=int), distances, margins)
    assert found.outliers.tolist() == [79, 59]
    # Together, they would have one limit, of 30.
    assert far_samples(distances, np.ones(80, dtype=bool)).tolist() == [79]


def labelled(sharpness, rate, rng, samples=400, classes=3):
    """Return scores whose softmax is right, labels of which a share `rate` is wrong, and the right labels."""
    scores = sharpness * rng.normal(size=(samples, classes))
    probabilities = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    right = np.array([rng.choice(classes, p=row) for row in probabilities])
    wrong = rng.random(samples) < rate
    return scores, np.where(wrong, (right + rng.integers(1, classes, samples)) % classes, right), right


@pytest.mark.parametrize("sharpness", [2.0, 40.0])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
def test_the_share_of_wrong_labels_does_not_depend_on_how_good_the_model_is(sharpness, rate):
    rng = np.random.default_rng(1)
    scores, labels, right = labelled(sharpness, rate, rng)
    agreement = (scores.argmax(1) == right).mean()
    assert (agreement < 0.75) == (sharpness == 2)
    found = wrong_share(scores, labels)
    assert found.low - 0.01 <= (labels != right).mean() <= found.high
    assert found.middle == pytest.approx(rate, abs=0.05)
    assert found.high - found.low < 0.15
    # The unit of the scores does not matter, nor do numbers added to all of a sample's scores.
    shifted = 1e-3 * scores + rng.normal(size=(len(scores), 1))
    assert wrong_share(shifted, labels) == pytest.approx(found, abs=1e-6)
    # Fewer samples say less.
    few = wrong_share(scores[:40], labels[:40])
    assert few.high - few.low > found.high - found.low


def test_without_other_samples_nothing_is_known_about_the_labels():
    assert wrong_share(np.zeros((0, 3)), np.zeros(0, dtype=np.int64)) == (0, 0, 1)


def test_numbers_of_wrong_labels_add_up_over_sets():
    assert wrong_counts((WrongShare(0.0, 0.1, 0.2), 100), (WrongShare(0.5, 0.5, 1.0), 10)) == (15, (5, 30))


def test_near_duplicates_with_different_labels_are_found():
    model, (images, labels) = small_model(), digits()
    names = np.asarray(model.class_names)[labels]
    images, names = np.concatenate([images, images[:3]]), np.concatenate([names, names[:3]])
    # A copy with another label, a nearly equal copy with another label, and a copy with the same label.
    names[300], names[301] = "j" if names[0] != "j" else "a", "j" if names[1] != "j" else "a"
    images[301, 0, 0, 0] ^= 1
    found = model.audit(images, names)
    assert {(0, 300), (1, 301)} <= set(found.duplicates)
    assert all(names[i] != names[j] for i, j in found.duplicates)
    assert not any(302 in pair for pair in found.duplicates)


def test_a_model_audits_class_names():
    model, (images, labels) = small_model(), digits()
    names = np.asarray(model.class_names)[labels]
    found = model.audit(images, names)
    assert found.given.tolist() == names.tolist()
    agrees = model.predict(images) == names
    assert (agrees == (found.margins > 0)).all()
    np.testing.assert_allclose(found.distances, model.mahalanobis(images))
    with pytest.raises(InputError, match="labels contains 'z'"):
        model.audit(images, np.where(np.arange(300) == 4, "z", names))
    with pytest.raises(InputError, match="there are 300 samples and 299 labels"):
        model.audit(images, names[1:])


def test_a_classifier_finds_a_wrong_label_in_other_samples():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    classifier = DeepLDAClassifier(max_epochs=20, calibrate=False, random_state=0).fit(X[::2], names[::2])
    given = names[1::2].copy()
    given[5] = "virginica"
    found = classifier.audit(X[1::2], given)
    assert found.order[0] == 5
    assert found.suggested[5] == "setosa"
    with pytest.raises(InputError, match="y contains"):
        classifier.audit(X, np.where(names == "setosa", "rose", names))
