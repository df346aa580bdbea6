"""Samples of known and new classes that are added to a trained model."""

import copy

import numpy as np
import pytest
import torch
from sklearn.covariance import oas

from deeplda import load
from deeplda.data import Part
from deeplda.errors import InputError
from deeplda.export import export_model
from deeplda.predictors.shrunk_lda import ShrunkLDA
from deeplda.training.evaluation import evaluate, gather_both_statistics
from small_model import digits, small_model


@pytest.fixture
def model():
    """A model of eight classes with statistics of its last hidden layer; eight and nine are not in them."""
    found, part = small_model(), Part(*digits())
    found.card = found.card.model_copy(update={"class_names": tuple("abcdefgh")})
    known = part.take(np.flatnonzero(part.labels < 8))
    outputs, features = gather_both_statistics(found, known.take(np.arange(150)))
    found._fit_statistics(outputs)
    found._set_feature_statistics(features)
    evaluate(found, known.take(np.arange(150, len(known))), calibrate=True)
    return found


def new_samples():
    images, labels = digits()
    new = labels >= 8
    return images[new], np.array(["i", "j"])[labels[new] - 8]


def expected_scores(features, labels, rows):
    """The rule of the docstring, with scikit-learn's OAS and NumPy's inverse, up to a number for each row."""
    counts = np.bincount(labels)
    means = np.stack([features[labels == label].mean(0) for label in range(len(counts))])
    centred = features - means[labels]
    inverse = np.linalg.inv(oas(centred, assume_centered=True)[0])
    distances = np.stack([np.einsum("ij,jk,ik->i", rows - mean, inverse, rows - mean) for mean in means], 1)
    excess = np.trace(inverse @ centred.T @ centred / len(features)) / counts
    return -(distances - excess) / 2


def test_shrunk_lda_by_hand():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [40, 30, 3])
    features = rng.standard_normal((73, 6)) @ rng.standard_normal((6, 6)) + 3 * labels[:, None]
    rows = rng.standard_normal((20, 6))
    found = ShrunkLDA().fit(features, labels).decision_function(rows).numpy()
    expected = expected_scores(features, labels, rows)
    np.testing.assert_allclose(
        found - found.mean(1, keepdims=True), expected - expected.mean(1, keepdims=True), rtol=1e-8, atol=1e-8
    )


def test_the_excess_of_the_distance_to_a_mean_of_few_samples():
    """The mean squared distance of new samples to the mean of k samples is larger by tr(S'^-1 S) / k."""
    rng = np.random.default_rng(0)
    d, k, repeats = 5, 4, 4000
    means = rng.standard_normal((repeats, k, d)).mean(1)
    rows = rng.standard_normal((repeats, d))
    assert np.square(rows - means).sum(1).mean() - np.square(rows).sum(1).mean() == pytest.approx(d / k, rel=0.1)


def test_new_classes_are_predicted(model):
    images, names = new_samples()
    model.add_class(images[names == "i"][:10], "i")
    model.add_class(images[names == "j"][:10], "j")
    assert model.class_names == tuple("abcdefghij")
    assert np.mean(model.predict(images) == names) > 0.5
    np.testing.assert_allclose(model.predict_proba(images).sum(1), 1)
    np.testing.assert_array_equal(model.transform(images), model.features(images))


def test_the_rule_is_that_of_all_samples_together(model):
    """Against the rule by hand, from all features at once."""
    images, names = new_samples()
    old, labels = digits()
    old, labels = old[labels < 8][:150], labels[labels < 8][:150]
    model.add_samples(images[:20], names[:20])
    rows = np.concatenate([old, images[:20]])
    first = list(dict.fromkeys(names[:20]))
    places = np.concatenate([labels, [8 + first.index(name) for name in names[:20]]])
    expected = expected_scores(*(model.features(rows).astype(np.float64), places), model.features(images))
    found = model.decision_function(images)
    np.testing.assert_allclose(
        found - found.mean(1, keepdims=True), expected - expected.mean(1, keepdims=True), rtol=1e-3, atol=1e-3
    )


def test_any_order_gives_the_same_result(model):
    images, names = new_samples()
    known, labels = digits()
    more, of_known = known[:30][labels[:30] < 8], np.array(list("abcdefghij"))[labels[:30]][labels[:30] < 8]
    once, parts = copy.deepcopy(model), copy.deepcopy(model)
    once.add_samples(np.concatenate([images, more]), np.concatenate([names, of_known]))
    for place in np.random.default_rng(0).permutation(len(images)):
        parts.add_samples(images[place : place + 1], names[place : place + 1])
    parts.add_samples(more, of_known.tolist())
    order = [parts.class_names.index(name) for name in once.class_names]
    np.testing.assert_allclose(parts.predict_proba(images)[:, order], once.predict_proba(images), rtol=1e-4, atol=1e-6)
    assert set(once.class_names) == set("abcdefghij")


def test_more_samples_of_known_classes_change_their_means(model):
    images, labels = digits()
    before = model.feature_statistics.counts.clone()
    model.add_samples(images[:40][labels[:40] == 0], ["a"] * int((labels[:40] == 0).sum()))
    assert model.class_names == tuple("abcdefgh")
    assert model.statistics.counts[0] == before[0] + (labels[:40] == 0).sum()


def test_known_classes_keep_their_calibration_and_thresholds(model):
    rule, quantiles = copy.deepcopy(model.features_rule), model._quantiles
    images, names = new_samples()
    model.add_samples(images, names)
    torch.testing.assert_close(model.predictor.calibration.state_dict(), rule.calibration.state_dict())
    torch.testing.assert_close(model._quantiles, quantiles)
    assert np.mean(model.predict(images, reject=0.95) == names) > 0.3


def test_saving_and_loading(model, tmp_path):
    images, names = new_samples()
    model.add_samples(images[:20], names[:20])
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(images, reject=0.9), model.predict(images, reject=0.9))
    for found in (again, model):
        found.add_samples(images[20:], names[20:])
    np.testing.assert_allclose(again.predict_proba(images), model.predict_proba(images), rtol=1e-4, atol=1e-6)


def test_onnx(model, tmp_path):
    images, names = new_samples()
    model.add_samples(images[:20], names[:20])
    assert export_model(model, tmp_path / "model.onnx", images).passed


def test_samples_of_a_class_with_subclasses_are_rejected(model):
    parents = (0, 0, 1, 2, 3, 4, 5, 6)
    model.card = model.card.model_copy(update={"class_names": tuple("abcdefg"), "parents": parents})
    images, _ = new_samples()
    with pytest.raises(InputError, match="class 'a' has subclasses"):
        model.add_samples(images[:1], ["a"])
    model.add_samples(images[:2], ["b", "new"])
    assert model.card.parents == (*parents, 7)
    assert model.class_names[7] == "new"
    assert model.predict_proba(images).shape == (len(images), 8)


@pytest.mark.parametrize(
    ("names", "message"),
    [([], "0 class names for 2 samples"), (["a", 3], "is 3, need non-empty"), (["a", ""], "is ''")],
)
def test_wrong_names(model, names, message):
    before = model.card
    with pytest.raises(InputError, match=message):
        model.add_samples(new_samples()[0][:2], names)
    assert model.card == before


def test_a_model_without_statistics_of_the_hidden_layer_keeps_its_rule():
    found = small_model()
    images, _ = new_samples()
    with pytest.raises(InputError, match="no statistics of its last hidden layer"):
        found.add_samples(images, ["new"] * len(images))
    found.add_class(images, "new")
    assert found.card.predictors == ("hyperplanes", "nearest_mean", "classic_lda")
    assert found.transform(images).shape[1] == found.card.embedding_dim


def test_the_old_statistics_of_the_outputs_are_gone(model):
    images, names = new_samples()
    model.add_samples(images, names)
    with pytest.raises(InputError, match='only statistics of the last hidden layer: pass layer="features"'):
        model.unknown_score(images, layer="outputs")
