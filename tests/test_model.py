"""A model: what it predicts, what it rejects, saving, and the parts it is made of."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import deeplda
from deeplda import RDLDALoss, load
from deeplda.errors import InputError
from deeplda.model import Model
from deeplda.predictors import ClassicLDA, Hyperplanes, NearestMean
from small_model import digits, small_model


@pytest.fixture
def saved(tmp_path):
    folder = tmp_path / "model"
    small_model().save(folder)
    return folder


def test_saved_and_loaded(saved):
    model, images = small_model(), digits()[0]
    for found in (load(saved), load(saved.parent)):
        np.testing.assert_allclose(found.transform(images), model.transform(images), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.predict_proba(images).sum(1), 1)
        assert found.predict(images).tolist() == model.predict(images).tolist()
        assert found.class_names == tuple("abcdefghij")


def test_predictions_agree_with_each_other(saved):
    model, images = load(saved), digits()[0]
    probabilities = model.predict_proba(images)
    assert model.predict(images).tolist() == [model.class_names[i] for i in probabilities.argmax(1)]
    np.testing.assert_allclose(model.predict_proba(images.astype(np.float32)), probabilities)
    np.testing.assert_allclose(model.predict_proba(torch.as_tensor(images)), probabilities)
    assert model.predict_proba(images[:0]).shape == (0, 10)
    assert model.transform(images[:0]).shape == (0, 4)


def test_an_image_and_its_mirror_image_are_one_with_mirror(saved):
    model, images = load(saved), digits()[0]
    mirrored = images[..., ::-1].copy()
    both = (model.transform(images) + model.transform(mirrored)) / 2
    np.testing.assert_allclose(model.transform(images, mirror=True), both, rtol=1e-5, atol=1e-6)
    for method in (model.predict_proba, model.mahalanobis):
        np.testing.assert_allclose(method(images, mirror=True), method(mirrored, mirror=True), rtol=1e-4)
        assert not np.allclose(method(images), method(mirrored), rtol=1e-4)
    for method in (model.predict, model.predict_subclasses):
        assert method(images, mirror=True).tolist() == method(mirrored, mirror=True).tolist()
        assert method(images).tolist() != method(mirrored).tolist()


def test_names_are_saved_in_utf8_in_any_locale(tmp_path):
    code = """if True:
        from small_model import small_model
        model = small_model()
        model.card = model.card.model_copy(update={"class_names": ("B\\u00e4r", *"bcdefghij")})
        model.save("saved")
    """
    ascii_locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    importable = os.pathsep.join([str(Path(__file__).parent), str(Path(deeplda.__file__).parents[1])])
    paths = {"PYTHONPATH": importable, "PATH": os.environ["PATH"]}
    subprocess.run([sys.executable, "-c", code], env=ascii_locale | paths, cwd=tmp_path, check=True)
    assert load(tmp_path / "saved").class_names[0] == "B\u00e4r"


def test_a_loaded_model_measures_distances_and_learns_a_class(saved, tmp_path):
    images, _ = digits()
    model = load(saved)
    distances = model.mahalanobis(images)
    np.testing.assert_allclose(distances, small_model().mahalanobis(images), rtol=1e-4)
    strange = 255 - images[:20]
    model.add_class(strange, "inverted")
    assert model.class_names[-1] == "inverted"
    assert (model.predict(255 - images[20:40]) == "inverted").mean() > 0.8
    with pytest.raises(InputError, match="'inverted' already exists"):
        model.add_class(strange, "inverted")
    for name in (11, ""):
        with pytest.raises(InputError, match="need a non-empty string"):
            model.add_class(strange, name)
    model.save(tmp_path / "again")
    np.testing.assert_allclose(load(tmp_path / "again").predict_proba(strange), model.predict_proba(strange), atol=1e-6)
    with pytest.raises(InputError, match="already exists: choose another name"):
        model.save(str(saved))
    assert load(saved).class_names == tuple("abcdefghij")


def test_a_class_that_cannot_be_learnt_leaves_the_model_as_it_was(saved):
    model, images = load(saved), digits()[0]
    with pytest.raises(ValueError, match="at least one sample"):
        model.add_class(images[:0], "nothing")
    assert model.class_names == tuple("abcdefghij")
    assert model.predict_proba(images).shape == (300, 10)


def test_tied_layers_are_saved(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(64, 64)
            self.second, self.last = self.first, nn.Linear(64, 4)

        def forward(self, images):
            return self.last(self.second(self.first(images.flatten(1))))

    model, images = small_model(), digits()[0]
    model.network = Tied()
    model.save(tmp_path / "tied")
    again = load(tmp_path / "tied", network=Tied())
    np.testing.assert_array_equal(again.transform(images), model.transform(images))


@pytest.fixture(scope="module")
def own_loop():
    """Digits, a network trained on them in a plain loop, and its embeddings of the training samples."""
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32), torch.tensor(labels)
    torch.manual_seed(0)
    network = own_network()
    criterion = RDLDALoss(alpha=0.9, lam=1e-2, statistic="wilks")
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(4):
        for batch in torch.randperm(1200).split(200):
            optimizer.zero_grad()
            criterion(network((x[batch] - 4.9) / 6.0), y[batch]).backward()
            optimizer.step()
    network.eval()
    with torch.no_grad():
        embeddings = network((x - 4.9) / 6.0)
    return network, x, y, embeddings


def own_network():
    return nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))


NAMES = [f"digit {number}" for number in range(10)]
PREDICTORS = {
    "hyperplanes": Hyperplanes(alpha=0.9, lam=1e-2, class_weight="balanced"),
    "nearest_mean": NearestMean(),
    "classic_lda": ClassicLDA(),
}


@pytest.mark.parametrize("name", PREDICTORS)
def test_a_model_from_parts_is_the_network_and_its_predictor(own_loop, name, tmp_path):
    network, x, y, embeddings = own_loop
    predictor = copy.deepcopy(PREDICTORS[name]).fit(embeddings[:1200], y[:1200])
    model = Model.from_parts(network, predictor, NAMES, (64,), mean=4.9, deviation=6.0)
    rows = x[1200:].numpy()
    np.testing.assert_allclose(model.transform(rows), embeddings[1200:], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(rows), predictor.predict_proba(embeddings[1200:]), atol=1e-4)
    np.testing.assert_allclose(model.mahalanobis(rows), predictor.mahalanobis(embeddings[1200:]), rtol=1e-3)
    assert (model.predict(rows) == np.array(NAMES)[y[1200:]]).mean() > 0.85
    assert model.card.predictors == (name,)

    model.save(tmp_path / "own")
    with pytest.raises(InputError, match="not run without your permission"):
        load(tmp_path / "own")
    again = load(tmp_path / "own", network=own_network())
    np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))
    np.testing.assert_array_equal(again.mahalanobis(rows), model.mahalanobis(rows))
    assert again.card == model.card

    # A class added before and after saving; the caller's predictor keeps its ten classes.
    for changed in (model, again):
        changed.add_class(16 - x[:20], "inverted")
        assert (changed.predict(16 - x[20:60]) == "inverted").mean() > 0.8
    np.testing.assert_allclose(again.predict_proba(rows), model.predict_proba(rows), atol=1e-9)
    assert len(predictor.classes) == 10


def test_the_card_of_a_model_from_parts_records_the_options_of_its_predictor(own_loop):
    network, _, y, embeddings = own_loop
    model = Model.from_parts(
        network,
        Hyperplanes(alpha=0.5, lam=0.1, class_weight="balanced").fit(embeddings, y),
        class_names=NAMES,
        sample_shape=[64],
    )
    card = model.card
    assert (card.alpha, card.lam, card.scatter, card.class_weight) == (0.5, 0.1, "pooled", "balanced")
    assert (card.sample_shape, card.embedding_dim, card.class_names) == ((64,), 10, tuple(NAMES))
    # Without mean and deviation, the network gets the samples as they are.
    rows = torch.randn(5, 64)
    with torch.no_grad():
        np.testing.assert_allclose(model.transform(rows), network(rows), rtol=1e-5, atol=1e-6)


def test_classes_of_a_model_from_parts_are_in_the_order_of_their_labels(own_loop, tmp_path):
    network, x, y, embeddings = own_loop
    chosen = (y == 3) | (y == 8)
    predictor = NearestMean().fit(embeddings[chosen], y[chosen])
    model = Model.from_parts(network, predictor, ["three", "eight"], (64,), mean=4.9, deviation=6.0)
    expected = np.where(predictor.predict(embeddings[chosen]) == 3, "three", "eight")
    assert (model.predict(x[chosen]) == expected).all()
    model.save(tmp_path / "two")
    assert (load(tmp_path / "two", network=own_network()).predict(x[chosen]) == expected).all()


def test_a_model_from_parts_keeps_float64_and_normalises_each_channel(tmp_path):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(2 * 3 * 3, 3)).double()
    images, labels = torch.randn(40, 2, 3, 3).double(), torch.arange(40) % 4
    mean, deviation = np.array([1.0, -2.0]), torch.tensor([2.0, 0.5])
    prepared = (images - torch.tensor(mean).view(2, 1, 1)) / deviation.view(2, 1, 1)
    with torch.no_grad():
        embeddings = network(prepared)
    predictor = Hyperplanes().fit(embeddings, labels)
    model = Model.from_parts(network, predictor, "abcd", (2, 3, 3), mean=mean, deviation=deviation)
    model.save(tmp_path / "images")
    again = load(tmp_path / "images", network=nn.Sequential(nn.Flatten(), nn.Linear(18, 3)))
    for each in (model, again):
        np.testing.assert_allclose(each.transform(images), embeddings, rtol=1e-12)
        np.testing.assert_allclose(each.predict_proba(images), predictor.predict_proba(embeddings), rtol=1e-9)


def test_parts_that_do_not_fit_together_are_rejected(own_loop):
    network, _, y, embeddings = own_loop
    fitted = NearestMean().fit(embeddings, y)
    for parts, message in (
        ((network, NearestMean(), NAMES, (64,)), "not fitted"),
        ((network, fitted, NAMES[:9], (64,)), "9 class names, need 10"),
        (
            (network, NearestMean().fit(embeddings[:, :4], y), NAMES, (64,)),
            "10 outputs, but the predictor was fitted on 4",
        ),
        ((network, Hyperplanes(normalize="unit").fit(embeddings, y), NAMES, (64,)), "normalize='unit'"),
        ((network, NearestMean(probability="sigmoid").fit(embeddings, y), NAMES, (64,)), "probability='sigmoid'"),
        ((network, nn.Linear(10, 10), NAMES, (64,)), "the predictor is a Linear"),
        ((nn.Flatten(), NearestMean().fit(embeddings[:, :4], y), NAMES, (1, 1, 2, 2)), "sample_shape"),
    ):
        with pytest.raises(InputError, match=message):
            Model.from_parts(*parts)
    for options, message in (({"mean": [1, 2]}, "mean has 2 values, need 1 or 64"), ({"deviation": 0}, "and > 0")):
        with pytest.raises(InputError, match=message):
            Model.from_parts(network, fitted, NAMES, (64,), **options)


def test_large_samples_are_processed_in_small_batches():
    model = small_model()
    images = digits()[0]
    assert [len(batch) for batch in model.embeddings(np.repeat(images, 4, 0))] == [500, 500, 200]
    model.card = model.card.model_copy(update={"sample_shape": (1, 600, 600)})
    large = Model(model.card, model.network)
    # 8 channels of 600 x 600 float32 values go into a layer, and as many come out.
    assert large.batch_size == 2**29 // (2 * 8 * 600 * 600 * 4)
    count = large.batch_size + 1
    assert [len(batch) for batch in large.embeddings(np.zeros((count, 1, 600, 600), np.uint8))] == [count - 1, 1]


class RejectsEmptyBatches(nn.Module):
    """Like many networks, it cannot reshape an empty batch; and it has infinite buffers, like masks."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.full((2,), -torch.inf))
        self.linear = nn.Linear(64, 2)

    def forward(self, images):
        return self.linear(images.reshape(len(images), -1)) + self.mask.exp()


def test_a_network_of_the_user_may_reject_empty_batches_and_have_infinite_buffers(tmp_path):
    images, labels = digits()
    with pytest.raises(RuntimeError, match="0 elements"):
        RejectsEmptyBatches()(torch.zeros(0, 1, 8, 8))
    network = RejectsEmptyBatches()
    features = network(torch.from_numpy(images).float()).detach()
    model = Model.from_parts(network, NearestMean().fit(features, labels), tuple("abcdefghij"), (1, 8, 8))
    model.save(tmp_path / "model")
    assert load(tmp_path / "model", network=network).predict(images).tolist() == model.predict(images).tolist()


METHODS = ("transform", "predict", "predict_proba", "predict_subclasses", "mahalanobis")


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("method", METHODS)
def test_outputs_that_are_not_finite_are_rejected(method, value):
    model = small_model()
    with torch.no_grad():
        next(model.network.parameters()).fill_(value)
    with pytest.raises(InputError, match="computes NaN or infinity"):
        getattr(model, method)(digits()[0][:3])


def test_scores_that_overflow_are_rejected():
    model = small_model()
    model.predictor.weight.fill_(1e308)
    assert np.isfinite(model.transform(digits()[0][:3])).all()
    for method in ("predict", "predict_proba", "predict_subclasses"):
        with pytest.raises(InputError, match="computes NaN or infinity"):
            getattr(model, method)(digits()[0][:3])
