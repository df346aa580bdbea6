"""The last hidden layer in a model, scores of unknown inputs, and the answer "none of these"."""

import json

import numpy as np
import pytest
import torch
from onnxruntime import InferenceSession
from safetensors.torch import load_file, save_file
from scipy.spatial.distance import cdist, mahalanobis
from sklearn.covariance import oas
from torch import nn

from deeplda import load
from deeplda.data import Part
from deeplda.errors import InputError
from deeplda.export import export_model
from deeplda.model import Model
from deeplda.networks.hidden_layer import outputs_and_features
from deeplda.predictors import Hyperplanes
from deeplda.predictors.unknown_scores import NONE_OF_THESE, NeighbourScore, unit_rows
from deeplda.training.evaluation import evaluate, gather_both_statistics, gather_statistics
from small_model import digits, small_model


@pytest.fixture
def model():
    """A model with statistics of both layers, calibrated on samples of which it has seen none."""
    found, part = small_model(), Part(*digits())
    train, validation = part.take(np.arange(200)), part.take(np.arange(200, 300))
    statistics = gather_both_statistics(found, train)
    found._fit_statistics(statistics.outputs)
    found._set_feature_statistics(statistics.features, statistics.some)
    evaluate(found, validation, calibrate=True)
    return found


@pytest.fixture
def noise():
    return np.random.default_rng(0).integers(0, 256, (50, 1, 8, 8), dtype=np.uint8)


def test_features_are_the_last_hidden_layer(model):
    images = digits()[0]
    with torch.no_grad():
        expected = outputs_and_features(model.network, model.normalisation(torch.from_numpy(images)))[1]
    np.testing.assert_allclose(model.features(images), expected, rtol=1e-5, atol=1e-6)
    assert model.features(images[:0]).shape == (0, 32)
    mirrored = (model.features(images) + model.features(images[..., ::-1])) / 2
    np.testing.assert_allclose(model.features(images, tta="mirror"), mirrored, rtol=1e-5, atol=1e-6)


def test_both_statistics_come_from_one_pass(model):
    part = Part(*digits())
    outputs, features, some = gather_both_statistics(model, part)
    alone = gather_statistics(model, part)
    torch.testing.assert_close(outputs.within(), alone.within())
    hidden = model.features(part.inputs).astype(np.float64)
    means = np.stack([hidden[part.labels == label].mean(0) for label in range(10)])
    np.testing.assert_allclose(features.means, means, rtol=1e-6, atol=1e-9)
    centred = hidden - means[part.labels]
    np.testing.assert_allclose(features.pooled(), centred.T @ centred / len(hidden), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(some, hidden, rtol=1e-6)  # fewer than the 2,000 that are kept


def test_a_layer_that_is_too_wide_is_left_out():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 2049), nn.Linear(2049, 3))
    images, labels = digits()
    with torch.no_grad():
        predictor = Hyperplanes().fit(network(torch.from_numpy(images).float()), torch.from_numpy(labels))
    found = Model.from_parts(network, predictor, list("abcdefghij"), (1, 8, 8))
    assert gather_both_statistics(found, Part(images, labels))[1:] == (None, None)
    assert found.features(images[:2]).shape == (2, 2049)


def by_hand(features, labels, rows, rule):
    """The score by SciPy's distances and scikit-learn's shrunk covariances."""
    means = np.stack([features[labels == label].mean(0) for label in np.unique(labels)])
    centre = features.mean(0)
    centred = (features - means[labels], features - centre)
    within, total = (np.linalg.inv(oas(rows, assume_centered=True)[0]) for rows in centred)
    nearest = np.array([min(mahalanobis(row, mean, within) for mean in means) for row in rows])
    if rule == "mahalanobis":
        return nearest
    return nearest**2 - np.array([mahalanobis(row, centre, total) for row in rows]) ** 2


@pytest.mark.parametrize("layer", ["outputs", "features"])
@pytest.mark.parametrize("rule", ["relative", "mahalanobis"])
def test_scores_against_scipy(model, rule, layer):
    images, labels = digits()
    values = (model.transform if layer == "outputs" else model.features)(images).astype(np.float64)
    expected = by_hand(values[:200], labels[:200], values[200:], rule)
    found = model.unknown_score(images[200:], rule=rule, layer=layer)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_neighbours_against_scipy(model):
    """The third smallest cosine distance to the features of the 200 training samples."""
    values = model.features(digits()[0]).astype(np.float64)
    expected = np.sort(cdist(values[200:], values[:200], "cosine"), 1)[:, 2]
    np.testing.assert_allclose(model.unknown_score(digits()[0][200:], rule="neighbours"), expected, atol=1e-6)
    with pytest.raises(InputError, match="not on the outputs"):
        model.unknown_score(digits()[0], rule="neighbours", layer="outputs")
    with pytest.raises(InputError, match="needs stored samples"):
        small_model().unknown_score(digits()[0], rule="neighbours")


def test_a_sample_without_any_feature_is_at_a_right_angle_to_all_others():
    score = NeighbourScore(unit_rows(torch.eye(3)))
    assert score(torch.zeros(2, 3)).tolist() == [1, 1]


def test_the_probability_rule_needs_no_statistics(model):
    images = digits()[0]
    expected = 1 - model.predict_proba(images).max(1)
    np.testing.assert_allclose(model.unknown_score(images, rule="probability"), expected)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_the_level_is_the_share_of_known_samples_that_are_kept(model, level):
    validation = digits()[0][200:]
    kept = model.predict(validation, reject=level) != NONE_OF_THESE
    assert kept.mean() == pytest.approx(level, abs=0.011)
    np.testing.assert_array_equal(model.predict(validation)[kept], model.predict(validation, reject=level)[kept])
    assert (model.unknown_score(validation)[kept] <= model.unknown_threshold(level)).all()


def test_noise_is_rejected_more_often_than_known_samples(model, noise):
    """Although the network is not trained."""
    assert np.mean(model.predict(noise, reject=0.95) == NONE_OF_THESE) > 3 * 0.05


def test_saving_keeps_scores_and_thresholds(model, noise, tmp_path):
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.card == model.card
    np.testing.assert_array_equal(again.predict(noise, reject=0.9), model.predict(noise, reject=0.9))
    for layer in ("outputs", "features"):
        np.testing.assert_allclose(
            again.unknown_score(noise, rule="relative", layer=layer),
            model.unknown_score(noise, rule="relative", layer=layer),
            rtol=1e-3,
            atol=1e-3,
        )


def test_a_model_without_the_hidden_layer_falls_back_to_its_outputs(noise):
    found = small_model()
    with pytest.raises(InputError, match="no scores of known validation samples"):
        found.predict(noise, reject=0.95)
    with pytest.raises(InputError, match="no statistics of the last hidden layer"):
        found.unknown_score(noise, rule="relative", layer="features")
    found.fit_rejection(digits()[0])
    assert (found.card.unknown.rule, found.card.unknown.layer) == ("relative", "outputs")
    assert np.mean(found.predict(digits()[0], reject=0.9) == NONE_OF_THESE) == pytest.approx(0.1, abs=0.01)


def test_a_network_without_a_hidden_layer_says_so(noise):
    found = small_model()
    found.network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(InputError, match="the network has no last hidden layer"):
        found.features(noise)


@pytest.mark.parametrize("level", [0, 1, -0.5, 95, True, "0.95"])
def test_levels_that_are_no_share(model, noise, level):
    with pytest.raises(InputError, match="need a number between 0 and 1"):
        model.predict(noise, reject=level)


def test_wrong_rules_and_layers(model, noise):
    with pytest.raises(ValueError, match="rule"):
        model.unknown_score(noise, rule="entropy")
    with pytest.raises(ValueError, match="layer"):
        model.unknown_score(noise, layer="inputs")
    with pytest.raises(InputError, match="no samples"):
        model.fit_rejection(noise[:0])


def test_a_class_of_that_name_is_an_error(model, noise):
    names = (NONE_OF_THESE, *model.class_names[1:])
    model.card = model.card.model_copy(update={"class_names": names})
    with pytest.raises(InputError, match="rename it"):
        model.predict(noise, reject=0.95)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("unknown.quantiles", lambda values: values.flip(0), "are not 1,001 ascending numbers"),
        ("unknown.quantiles", lambda values: values[:-1], "are not 1,001 ascending numbers"),
        ("unknown.quantiles", lambda values: values * torch.nan, "are not 1,001 ascending numbers"),
        ("unknown.quantiles", None, "'unknown.quantiles' is missing"),
        ("unknown.neighbours", lambda rows: 2 * rows, "are not features of length 1"),
        ("unknown.neighbours", lambda rows: rows[:, 1:], "are not features of length 1"),
        ("unknown.neighbours", lambda rows: rows[:0], "are not features of length 1"),
        ("unknown.neighbours", None, "'unknown.neighbours' is missing"),
        ("feature_statistics.within", lambda matrix: -matrix, "statistics that do not fit"),
        ("feature_statistics.means", lambda means: means[1:], "statistics that do not fit"),
        ("feature_statistics.counts", None, "statistics that do not fit"),
        ("features_rule.weight", lambda weight: weight[:, 1:], "does not fit model.json"),
        ("features_rule.bias", lambda bias: bias * torch.inf, "not finite"),
        ("features_rule.classes", lambda classes: classes.flip(0), "the positions of the classes"),
    ],
)
def test_forged_files(model, tmp_path, name, change, message):
    model.save(tmp_path / "model")
    file = tmp_path / "model" / "weights.safetensors"
    state = load_file(file)
    forged = None if change is None else change(state.pop(name)).contiguous()
    state = {key: tensor for key, tensor in state.items() if key != name} | ({} if forged is None else {name: forged})
    save_file(state, file)
    with pytest.raises(InputError, match=message) as caught:
        load(tmp_path / "model")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features_dim": 31}, "does not fit model.json"),
        ({"features_dim": None}, "does not fit model.json"),
        ({"features_dim": 10**9}, "features_dim"),
        ({"layer": "features"}, "require each other"),
        ({"layer": "features", "predictors": ["balanced_ridge"]}, "does not fit model.json"),
        ({"layer": "features", "predictors": ["balanced_ridge"], "features_dim": None}, "features_dim is missing"),
        ({"unknown": {"rule": "guess", "layer": "features"}}, "unknown.rule"),
        ({"unknown": None}, "'unknown.quantiles' is unexpected"),
    ],
)
def test_cards_that_lie(model, tmp_path, changes, message):
    model.save(tmp_path / "model")
    file = tmp_path / "model" / "model.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(InputError, match=message):
        load(tmp_path / "model")


@pytest.mark.usefixtures("onnx_conversion")
def test_onnx_has_the_score_and_its_threshold(model, noise, tmp_path):
    images = digits()[0]
    assert export_model(model, tmp_path / "model.onnx", images).passed
    session = InferenceSession(tmp_path / "model.onnx")
    (found,) = session.run(["unknown_score"], {"inputs": noise})
    np.testing.assert_allclose(found, model.unknown_score(noise), atol=1e-5)
    about = json.loads(session.get_modelmeta().custom_metadata_map["unknown"])
    assert about == {
        "rule": "neighbours",
        "layer": "features",
        "reject": 0.95,
        "threshold": pytest.approx(model.unknown_threshold(0.95)),
    }


@pytest.mark.usefixtures("onnx_conversion")
def test_onnx_of_a_network_whose_hidden_layer_is_found_by_a_hook(noise, tmp_path):
    torch.manual_seed(0)
    found, part = small_model(), Part(*digits())
    found.network = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 4))
    statistics = gather_both_statistics(found, part)
    found._fit_statistics(statistics.outputs)
    found._set_feature_statistics(statistics.features, statistics.some)
    evaluate(found, part, calibrate=True)
    assert found.card.features_dim == 16
    assert export_model(found, tmp_path / "model.onnx", noise).passed
