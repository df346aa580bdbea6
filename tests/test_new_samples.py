"""Samples of known and new classes that are added to a trained model."""

import copy

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from deeplda import load
from deeplda.data import Part
from deeplda.errors import InputError
from deeplda.export import export_model
from deeplda.predictors.balanced_ridge import BalancedRidge
from deeplda.training.evaluation import evaluate, gather_both_statistics
from small_model import digits, small_model


@pytest.fixture
def model():
    """A model of eight classes with statistics of its last hidden layer; eight and nine are not in them."""
    found, part = small_model(), Part(*digits())
    found.card = found.card.model_copy(update={"class_names": tuple("abcdefgh")})
    known = part.take(np.flatnonzero(part.labels < 8))
    statistics = gather_both_statistics(found, known.take(np.arange(150)))
    found._fit_statistics(statistics.outputs)
    found._set_feature_statistics(statistics.features, statistics.some)
    evaluate(found, known.take(np.arange(150, len(known))), calibrate=True)
    return found


def new_samples():
    images, labels = digits()
    new = labels >= 8
    return images[new], np.array(["i", "j"])[labels[new] - 8]


def balanced(features, labels):
    """Samples with the moments of the rule: every class with the same weight, and the pooled covariance."""
    counts = np.bincount(labels)
    means = np.stack([features[labels == label].mean(0) for label in range(len(counts))])
    pooled = np.concatenate([means[label] + (features - means[labels]) for label in range(len(counts))])
    return pooled, np.repeat(np.arange(len(counts)), len(features)), counts


def expected_scores(features, labels, rows):
    """The rule by scikit-learn's ridge regression on these samples, with the ridge that has the least GCV error."""
    samples, places, counts = balanced(features, labels)
    classes, n = len(counts), len(samples)
    targets = np.eye(classes)[places]
    centred = samples - samples.mean(0)
    covariance = centred.T @ centred / n
    effective = classes**2 / np.sum(1 / counts)
    best = None
    for ridge in 10.0 ** (1 - np.arange(21) / 4) * np.trace(covariance) / len(covariance):
        model = Ridge(alpha=n * ridge).fit(samples, targets)
        freedom = np.trace(np.linalg.solve(covariance + ridge * np.eye(len(covariance)), covariance))
        if freedom < effective:
            error = np.square(model.predict(samples) - targets).sum() / n / (1 - freedom / effective) ** 2
            if best is None or error < best[0]:
                best = error, ridge, model
    within = np.cov((samples - samples.reshape(classes, -1, samples.shape[1]).mean(1)[places]).T, ddof=0)
    optimism = np.trace(np.linalg.solve(covariance + best[1] * np.eye(len(within)), within)) / counts
    means = np.stack([features[labels == label].mean(0) for label in range(classes)])
    halves = classes * np.diag(best[2].predict(means) - best[2].predict(means.mean(0, keepdims=True))) / 2
    return classes * best[2].predict(rows) + 0.15 * optimism - halves


def assert_same_up_to_a_number_for_each_row(found, expected, **tolerances):
    np.testing.assert_allclose(
        found - found.mean(1, keepdims=True), expected - expected.mean(1, keepdims=True), **tolerances
    )


def test_the_ridge_rule_against_scikit_learn():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [40, 30, 3])
    features = rng.standard_normal((73, 6)) @ rng.standard_normal((6, 6)) + 3 * labels[:, None]
    rows = rng.standard_normal((20, 6))
    found = BalancedRidge().fit(features, labels).decision_function(rows).numpy()
    assert_same_up_to_a_number_for_each_row(found, expected_scores(features, labels, rows), rtol=1e-7, atol=1e-7)


def test_a_class_between_two_others_is_predicted():
    """Regression of the indicators hides it: its score is nearly the same everywhere."""
    labels = np.repeat([0, 1, 2], 500)
    features = np.random.default_rng(0).standard_normal((1500, 1)) + 4 * labels[:, None]
    middle = BalancedRidge().fit(features, labels).predict(features)[labels == 1]
    assert (middle == 1).double().mean() > 0.9
    indicators = Ridge(1.0).fit(features, np.eye(3)[labels])
    assert (indicators.predict(features)[labels == 1].argmax(1) == 1).mean() < 0.5


def test_the_score_of_a_class_is_too_high_on_its_own_samples():
    """By tr(P S) / k for the score mean' P h, where the mean is that of k samples and S their covariance."""
    rng = np.random.default_rng(0)
    d, k, repeats = 5, 4, 4000
    root = rng.standard_normal((d, d)) / 2
    own, others = rng.standard_normal((2, repeats, k, d)) @ root
    matrix = np.diag(np.arange(1.0, d + 1))
    means = own.mean(1)
    gap = [np.einsum("ri,ij,rkj->rk", means, matrix, rows).mean() for rows in (own, others)]
    assert gap[0] - gap[1] == pytest.approx(np.trace(matrix @ root.T @ root) / k, rel=0.1)


@pytest.mark.parametrize("constant", [0.0, 5.0])
def test_features_that_do_not_vary_do_no_harm(constant):
    features = np.full((6, 3), constant)
    scores = BalancedRidge().fit(features, np.array([0, 0, 0, 1, 1, 1])).decision_function(features)
    assert scores.isfinite().all()


def test_one_sample_for_each_of_two_classes():
    features = np.random.default_rng(0).standard_normal((2, 50))
    predictor = BalancedRidge().fit(features, np.array([0, 1]))
    assert predictor.predict(features).tolist() == [0, 1]


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
    assert_same_up_to_a_number_for_each_row(found, expected, rtol=1e-3, atol=1e-3)


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
    rule, quantiles = copy.deepcopy(model.features_rule), model.rejection.quantiles
    images, names = new_samples()
    model.add_samples(images, names)
    torch.testing.assert_close(model.predictor.calibration.state_dict(), rule.calibration.state_dict())
    torch.testing.assert_close(model.rejection.quantiles, quantiles)
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


@pytest.mark.usefixtures("onnx_conversion")
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
        model.unknown_score(images, rule="relative", layer="outputs")


def test_added_samples_become_known(model):
    """The third nearest of the stored samples is one of a few copies of the sample itself."""
    image = 255 - digits()[0][:1]
    before = model.unknown_score(image)
    model.add_samples(np.repeat(image, 3, 0), ["new"] * 3)
    assert before > 1e-3
    np.testing.assert_allclose(model.unknown_score(image), 0, atol=1e-6)
