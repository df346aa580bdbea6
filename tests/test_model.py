"""A saved model is the model; a folder that lies is refused in one sentence."""

import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from deeplda import load
from deeplda.errors import InputError
from deeplda.model import Model, ModelCard, Normalisation
from deeplda.networks import build_network
from deeplda.predictors import FeatureStatistics


def small_model(network="convnet-small"):
    torch.manual_seed(0)
    card = ModelCard(
        network=network,
        width=0.25,
        embedding_dim=4,
        sample_shape=(1, 8, 8),
        class_names=tuple("abcdefghij"),
        predictors=("hyperplanes", "nearest_mean", "classic_lda"),
    )
    model = Model(card, build_network("convnet-small", card.sample_shape, 4, width=0.25))
    images, labels = digits()
    model.normalisation.fit(images)
    statistics = FeatureStatistics.for_labels(torch.as_tensor(labels))
    statistics.update(torch.as_tensor(model.transform(images)), torch.as_tensor(labels))
    model.fit_statistics(statistics)
    return model


def digits():
    images, labels = load_digits(return_X_y=True)
    return np.round(images * 255 / 16).astype(np.uint8).reshape(-1, 1, 8, 8)[:300], labels[:300]


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


def test_images_scaled_to_one_are_refused(saved):
    model, images = load(saved), digits()[0]
    for scaled in (images / 255, torch.as_tensor(images / 255).float()):
        with pytest.raises(InputError, match="images of 0 to 1, need the range of the training images"):
            model.predict(scaled)
    model.predict(np.zeros((1, 1, 8, 8)))
    model.predict(np.ones((1, 1, 8, 8), dtype=np.uint8))
    model.normalisation.fit(images.astype(np.float32) / 255)
    model.predict(images / 255)


def test_what_is_no_image_is_refused(saved):
    model, images = load(saved), digits()[0].astype(np.float32)
    assert model.predict(images[:2].tolist()).tolist() == model.predict(images[:2]).tolist()
    for broken in (np.nan, np.inf):
        images[1, 0, 3, 3] = broken
        with pytest.raises(InputError, match="inputs that are NaN or infinite, need numbers"):
            model.predict_proba(images)
    for strange in ("one.png", [["a"]], [[1], [2, 3]], None):
        with pytest.raises(InputError, match=f"inputs is a {type(strange).__name__}, need an array or tensor"):
            model.transform(strange)


def test_wrong_shape_of_inputs(saved):
    with pytest.raises(InputError, match=r"inputs of shape \(2, 3, 8, 8\), need \(n, 1, 8, 8\)"):
        load(saved).predict(np.zeros((2, 3, 8, 8), dtype=np.uint8))


@pytest.mark.parametrize("shape", [(3, 5, 7), (4,)])
def test_normalisation_is_numpys(shape):
    rng = np.random.default_rng(0)
    inputs = rng.normal(50, 9, size=(40, *shape)).astype(np.float32)
    inputs[:, 1] = 7
    normalised = Normalisation(shape).fit(inputs)(torch.as_tensor(inputs)).numpy()
    axes = (0, *range(2, inputs.ndim))
    np.testing.assert_allclose(normalised.mean(axes), 0, atol=1e-5)
    np.testing.assert_allclose(normalised.std(axes), [1, 0, 1, 1][: shape[0]], atol=1e-5)


def change_card(folder, **changes):
    card = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(card | changes))


def test_nothing_there(tmp_path):
    with pytest.raises(InputError, match="holds no model"):
        load(tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_names": ["a"]}, "class_names"),
        ({"class_names": list("abc")}, "does not fit model.json"),
        ({"embedding_dim": 5}, "does not fit model.json"),
        ({"embedding_dim": 0}, "embedding_dim"),
        ({"predictors": ["oracle"]}, "predictors"),
        ({"predictors": ["nearest_mean"]}, "does not fit model.json"),
        ({"network": "resnet"}, "network 'resnet' is not known"),
        ({"surprise": 1}, "surprise"),
        ({"format": 9}, "format"),
    ],
)
def test_a_card_that_lies(saved, changes, message):
    change_card(saved, **changes)
    with pytest.raises(InputError, match=message) as caught:
        load(saved)
    assert "\n" not in str(caught.value)


def test_truncated_weights(saved):
    weights = saved / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"weights\.safetensors cannot be read"):
        load(saved)


def test_code_named_by_a_folder_is_not_run_on_its_word(saved, tmp_path, monkeypatch):
    (tmp_path / "trap.py").write_text("raise SystemExit('the code ran')")
    monkeypatch.chdir(tmp_path)
    change_card(saved, network="trap:make")
    with pytest.raises(InputError, match="need your word that it may run"):
        load(saved)


def test_a_loaded_model_knows_what_is_far_and_learns_a_class(saved, tmp_path):
    images, _ = digits()
    model = load(saved)
    distances = model.mahalanobis(images)
    np.testing.assert_allclose(distances, small_model().mahalanobis(images), rtol=1e-4)
    strange = 255 - images[:20]
    model.add_class(strange, "inverted")
    assert model.class_names[-1] == "inverted"
    assert (model.predict(255 - images[20:40]) == "inverted").mean() > 0.8
    with pytest.raises(InputError, match="'inverted' is there already"):
        model.add_class(strange, "inverted")
    for name in (11, ""):
        with pytest.raises(InputError, match="need a name, as a string"):
            model.add_class(strange, name)
    model.save(tmp_path / "again")
    np.testing.assert_allclose(load(tmp_path / "again").predict_proba(strange), model.predict_proba(strange), atol=1e-6)
    with pytest.raises(InputError, match=r"model is there already, need a new folder"):
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


def test_statistics_that_lie(saved):
    from safetensors.torch import load_file, save_file

    state = load_file(saved / "weights.safetensors")
    save_file(state | {"statistics.means": torch.zeros(10, 3)}, saved / "weights.safetensors")
    with pytest.raises(InputError, match="statistics that do not fit"):
        load(saved)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    "changes",
    [
        {"embedding_dim": 10**9},
        {"embedding_dim": 10**30},
        {"width": 1e9},
        {"width": 1e300},
        {"sample_shape": [10**6, 10**6, 10**6]},
        {"sample_shape": [10**30, 8, 8]},
        {"class_names": [str(number) for number in range(10**6)]},
        {"class_names": list("ab"), "parents": [0] * 10**6 + [1]},
        {"network": "dorfernet", "sample_shape": [10**6, 32, 32]},
        {"network": "mlp", "sample_shape": [10**9]},
        {"scatter": "dorfer", "class_weight": "balanced"},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_a_card_that_declares_what_its_weights_do_not_hold(saved, changes):
    change_card(saved, **changes)
    with pytest.raises(InputError, match=r"model\.json") as caught:
        load(saved)
    assert len(str(caught.value)) < 2_100


@pytest.mark.parametrize(
    "network", ["../x", "/etc/passwd", "os:system", "os.path:join", "__main__:x", ":", "a:", "\x00", ""]
)
def test_names_of_networks_lead_nowhere(saved, network):
    change_card(saved, network=network)
    with pytest.raises(InputError, match=r"is not known|your word that it may run"):
        load(saved)


def test_names_of_classes_are_names(saved, tmp_path):
    """Not paths: whatever is in them, nothing is opened or written."""
    names = ["../../x", "/etc/passwd", "a\nb", "\x1b[2J", "[/b]", "%s", "", " ", "con", "é"]
    change_card(saved, class_names=names)
    before = sorted(tmp_path.rglob("*"))
    model = load(saved)
    assert set(model.predict(digits()[0]).tolist()) <= set(names)
    assert sorted(tmp_path.rglob("*")) == before


def change_weights(folder, **changes):
    from safetensors.torch import load_file, save_file

    save_file(load_file(folder / "weights.safetensors") | changes, folder / "weights.safetensors")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("statistics.counts", torch.full((10,), -1.0).double()),
        ("statistics.counts", torch.full((10,), torch.nan).double()),
        ("statistics.counts", torch.full((10,), 1e308, dtype=torch.float64)),
        ("statistics.counts", torch.ones(10).int()),
        ("statistics.classes", torch.zeros(10).long()),
        ("statistics.classes", torch.arange(10).double()),
        ("statistics.within", torch.full((4, 4), torch.inf).double()),
        ("predictors.hyperplanes.classes", torch.arange(10).double()),
        ("predictors.hyperplanes.weight", torch.ones(10, 4).to(torch.complex64)),
        ("network.output.weight", torch.ones(4, 32).int()),
        ("normalisation.mean", torch.ones(1, 1, 1).to(torch.float8_e5m2)),
    ],
)
def test_weights_of_another_kind(saved, name, value):
    change_weights(saved, **{name: value})
    with pytest.raises(InputError, match="not fit"):
        load(saved)
