"""Training on wide tables takes the same steps in the space of the rows as on all features."""

import numpy as np
import pytest
import torch

from deeplda import load
from deeplda.data.dataset import Data, Part
from deeplda.estimators import DeepLDAClassifier
from deeplda.networks import MLP
from deeplda.training.row_space import RowSpace

FAST = {"random_state": 0, "calibrate": False, "max_epochs": 5}


@pytest.fixture(scope="module")
def wide():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    return rng.normal(size=(60, 300)) + y[:, None] * (np.arange(300) < 20), y


@pytest.mark.parametrize("options", [{}, {"objective": "cce"}, {"subclasses": 2, "smallest_cluster": 3}])
def test_the_steps_are_those_on_all_features(wide, options):
    """A network passed as a callable is trained on all features."""
    X, y = wide
    ours = DeepLDAClassifier(**FAST, **options).fit(X, y)
    full = DeepLDAClassifier(**FAST, **options, network=lambda shape, outputs: MLP(shape, outputs)).fit(X, y)
    np.testing.assert_allclose(ours.loss_curve_, full.loss_curve_, rtol=1e-4)
    expected = full.decision_function(X)
    np.testing.assert_allclose(ours.decision_function(X), expected, atol=1e-4 * np.abs(expected).max())


def test_directions_without_training_rows_are_ignored(wide):
    X, y = wide
    classifier = DeepLDAClassifier(**FAST).fit(X, y)
    scaled = (X - X.mean(0)) / X.std(0)
    orthogonal = np.random.default_rng(1).normal(size=300)
    orthogonal -= scaled.T @ np.linalg.lstsq(scaled.T, orthogonal)[0]
    moved = X + orthogonal * X.std(0)
    assert np.abs(orthogonal).max() > 1
    np.testing.assert_allclose(classifier.transform(moved), classifier.transform(X), atol=1e-4)


def test_the_model_is_one_for_all_features(wide, tmp_path):
    X, y = wide
    classifier = DeepLDAClassifier(**FAST | {"calibrate": True}, early_stopping=True).fit(X, y)
    assert classifier.model_.card.sample_shape == (300,)
    classifier.save(tmp_path / "model")
    loaded = DeepLDAClassifier.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(X), classifier.predict_proba(X))
    assert load(tmp_path / "model").predict(X).tolist() == [str(label) for label in classifier.predict(X)]


def test_restriction_and_extension_agree_in_the_space():
    rows = np.random.default_rng(0).normal(size=(8, 30)).astype(np.float32)
    torch.manual_seed(0)
    network, space = MLP((30,), 3, dropout=0.0).eval(), RowSpace.of(rows)
    torch.nn.init.normal_(network.output.weight)
    expected = network(torch.from_numpy(rows))
    part = Part(rows, np.arange(8) % 2)
    data = space.coordinates(Data("rows", part, part.take(np.arange(3)), part.take(np.arange(0)), ("0", "1")))
    assert data.sample_shape == (8,)
    assert data.val.inputs.shape == (3, 8)
    torch.testing.assert_close(space.restrict(network)(torch.from_numpy(data.train.inputs)), expected)


@pytest.mark.parametrize("distinct", [0, 1, 5])
def test_equal_rows_span_fewer_dimensions(distinct):
    rows = np.zeros((8, 30), dtype=np.float32)
    rows[:distinct] = np.random.default_rng(0).normal(size=(distinct, 30))
    rows[distinct + 1 :] = rows[:1]
    basis = RowSpace.of(rows).basis.numpy()
    np.testing.assert_allclose(rows @ basis @ basis.T, rows, atol=1e-5)
    if distinct:
        np.testing.assert_allclose(basis.T @ basis, np.eye(distinct), atol=1e-5)
