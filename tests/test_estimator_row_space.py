"""Samples that are fewer than their features are trained in the space that they span."""

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.preprocessing import StandardScaler

from deeplda import DeepLDAClassifier, load
from deeplda.data.dataset import Part
from deeplda.data.sparse_rows import SparseRows
from deeplda.estimator_inputs import Standardisation
from deeplda.estimator_row_space import RowSpace
from deeplda.model import Model, ModelCard
from deeplda.networks import MLP

FAST = {"random_state": 0, "calibrate": False, "max_epochs": 30}


@pytest.fixture(scope="module")
def wide():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    return rng.normal(size=(60, 300)) * 3 + 5 + y[:, None] * (np.arange(300) < 20) * 6, y


def space_of(X, sparse=False):
    inputs = SparseRows(scipy.sparse.csr_array(X)) if sparse else X
    return RowSpace.of(inputs, Standardisation.of(Part(inputs, np.zeros(len(X), dtype=np.int64))))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("block", [100, 2**21])
def test_coordinates_keep_all_inner_products(wide, sparse, block, monkeypatch):
    X, _ = wide
    monkeypatch.setattr("deeplda.estimator_inputs._BLOCK_SIZE", block)
    space = space_of(X, sparse)
    standardised = StandardScaler().fit_transform(X)
    expected = standardised @ standardised.T
    found = space.own @ space.own.T
    np.testing.assert_allclose(found, expected * found.trace() / expected.trace(), atol=1e-9)
    assert space.own.shape == (60, 59)
    np.testing.assert_allclose(np.square(space.own).mean(), 1)
    np.testing.assert_allclose(space.coordinates(space.inputs), space.own, atol=1e-9)


@pytest.mark.parametrize("hidden", [(), (16, 8)])
def test_the_extended_network_computes_the_same_outputs(wide, hidden):
    X, _ = wide
    space = space_of(X)
    torch.manual_seed(0)
    network = MLP((59,), 3, hidden=hidden).eval().double()
    if hidden:
        torch.nn.init.normal_(network.output.weight)
    expected = network(torch.from_numpy(space.own)).detach()
    card = ModelCard(
        network="mlp", width=1, embedding_dim=3, sample_shape=(59,), class_names=("a", "b"), predictors=("hyperplanes",)
    )
    whole = space.extended(Model(card, network))
    assert whole.card.sample_shape == (300,)
    np.testing.assert_allclose(whole.transform(X), expected, atol=1e-9)


@pytest.mark.parametrize("distinct", [0, 1, 5])
def test_equal_rows_span_fewer_dimensions(distinct):
    X = np.zeros((8, 30))
    X[:distinct] = np.random.default_rng(0).normal(size=(distinct, 30))
    space = space_of(X)
    assert space.own.shape[1] == max(distinct, 1) if distinct else np.all(space.own == 0)
    assert np.isfinite(space.mixing).all()


def test_directions_without_training_samples_are_ignored(wide):
    X, y = wide
    classifier = DeepLDAClassifier(**FAST).fit(X, y)
    scaled = (X - X.mean(0)) / X.std(0)
    orthogonal = np.random.default_rng(1).normal(size=300)
    orthogonal -= scaled.T @ np.linalg.lstsq(scaled.T, orthogonal, rcond=None)[0]
    assert np.abs(orthogonal).max() > 1
    moved = X + orthogonal * X.std(0)
    np.testing.assert_allclose(classifier.transform(moved), classifier.transform(X), atol=1e-8)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"objective": "cce"},
        {"subclasses": 2, "smallest_cluster": 3},
        {"early_stopping": True},
        {"hidden_layer_sizes": ()},
    ],
)
def test_wide_tables_are_learned(wide, options):
    X, y = wide
    classifier = DeepLDAClassifier(**FAST | options).fit(X[:45], y[:45])
    assert classifier.score(X[45:], y[45:]) > 0.7


def test_the_model_takes_all_features(wide, tmp_path):
    X, y = wide
    classifier = DeepLDAClassifier(**FAST | {"calibrate": True}).fit(X, y)
    assert classifier.model_.card.sample_shape == (300,)
    assert classifier.model_.calibrated_on == 60
    classifier.save(tmp_path / "model")
    loaded = DeepLDAClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), classifier.predict_proba(X))
    assert load(tmp_path / "model").predict(X).tolist() == [str(label) for label in classifier.predict(X)]


def test_calibration_does_not_see_how_held_out_samples_are_labelled(wide):
    """Random labels cannot be predicted, and the probabilities say so, although training fits them."""
    X, _ = wide
    y = np.random.default_rng(3).permutation(np.arange(60) % 2)
    classifier = DeepLDAClassifier(**FAST | {"calibrate": True}).fit(X, y)
    assert classifier.score(X, y) > 0.95
    new = np.random.default_rng(4).normal(size=(200, 300)) * 3 + 5
    assert np.median(classifier.predict_proba(new).max(1)) < 0.6


def test_a_warm_start_trains_on_all_features(wide):
    X, y = wide
    classifier = DeepLDAClassifier(**FAST, warm_start=True).fit(X, y)
    first = classifier.loss_curve_[0]
    assert classifier.fit(X, y).loss_curve_[0] < first
