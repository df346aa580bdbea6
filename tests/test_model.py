"""A model: what it predicts, what it rejects, saving, and the parts it is made of."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import deeplda
from deeplda import load
from deeplda.errors import InputError
from deeplda.model import Normalisation
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
        with pytest.raises(InputError, match="NaN or infinite"):
            model.predict_proba(images)
    for strange in ("one.png", [["a"]], [[1], [2, 3]], None):
        with pytest.raises(InputError, match=f"inputs is a {type(strange).__name__}, need an array or tensor"):
            model.transform(strange)


@pytest.mark.parametrize("kind", ["mirrored", "read only", "big-endian", "long double", "every second"])
def test_arrays_as_they_may_come(saved, kind):
    model, images = load(saved), digits()[0][:20].astype(np.float64)
    array = {
        "mirrored": images[..., ::-1],
        "read only": np.frombuffer(images.tobytes()).reshape(images.shape),
        "big-endian": images.astype(">f8"),
        "long double": images.astype(np.longdouble),
        "every second": images[::2],
    }[kind]
    expected = model.predict_proba(np.array(array, dtype=np.float64, order="C"))
    np.testing.assert_array_equal(model.predict_proba(array), expected)


def test_names_are_saved_alike_whatever_the_locale(tmp_path):
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


def test_wrong_shape_of_inputs(saved):
    with pytest.raises(InputError, match=r"inputs of shape \(2, 3, 8, 8\), need \(n, 1, 8, 8\)"):
        load(saved).predict(np.zeros((2, 3, 8, 8), dtype=np.uint8))


def test_a_loaded_model_knows_what_is_far_and_learns_a_class(saved, tmp_path):
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
        with pytest.raises(InputError, match="need a name"):
            model.add_class(strange, name)
    model.save(tmp_path / "again")
    np.testing.assert_allclose(load(tmp_path / "again").predict_proba(strange), model.predict_proba(strange), atol=1e-6)
    with pytest.raises(InputError, match="already exists, need a new folder"):
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


@pytest.mark.parametrize("shape", [(3, 5, 7), (4,)])
def test_normalisation_is_numpys(shape):
    rng = np.random.default_rng(0)
    inputs = rng.normal(50, 9, size=(40, *shape)).astype(np.float32)
    inputs[:, 1] = 7
    normalised = Normalisation(shape).fit(inputs)(torch.as_tensor(inputs)).numpy()
    axes = (0, *range(2, inputs.ndim))
    np.testing.assert_allclose(normalised.mean(axes), 0, atol=1e-5)
    np.testing.assert_allclose(normalised.std(axes), [1, 0, 1, 1][: shape[0]], atol=1e-5)
