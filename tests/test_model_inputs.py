"""The inputs of a model: the arrays that it accepts, and those that it rejects."""

import numpy as np
import pytest
import torch

from deeplda.errors import InputError
from small_model import digits, small_model


@pytest.fixture
def model():
    return small_model()


def test_images_scaled_to_one_are_rejected(model):
    images = digits()[0]
    for scaled in (images / 255, torch.as_tensor(images / 255).float()):
        with pytest.raises(InputError, match=r"scaled to 0\.\.1, but the training images were not"):
            model.predict(scaled)
    model.predict(np.zeros((1, 1, 8, 8)))
    model.predict(np.ones((1, 1, 8, 8), dtype=np.uint8))
    model.normalisation.fit(images.astype(np.float32) / 255)
    model.predict(images / 255)


def test_inputs_that_are_not_numbers_are_rejected(model):
    images = digits()[0].astype(np.float32)
    assert model.predict(images[:2].tolist()).tolist() == model.predict(images[:2]).tolist()
    for broken in (np.nan, np.inf):
        images[1, 0, 3, 3] = broken
        with pytest.raises(InputError, match="NaN or infinity"):
            model.predict_proba(images)
    for strange in ("one.png", [["a"]], [[1], [2, 3]], None):
        with pytest.raises(InputError, match=f"inputs is a {type(strange).__name__}, need an array or tensor"):
            model.transform(strange)


@pytest.mark.parametrize("kind", ["mirrored", "read only", "big-endian", "long double", "every second"])
def test_arrays_as_they_may_come(model, kind):
    images = digits()[0][:20].astype(np.float64)
    array = {
        "mirrored": images[..., ::-1],
        "read only": np.frombuffer(images.tobytes()).reshape(images.shape),
        "big-endian": images.astype(">f8"),
        "long double": images.astype(np.longdouble),
        "every second": images[::2],
    }[kind]
    expected = model.predict_proba(np.array(array, dtype=np.float64, order="C"))
    np.testing.assert_array_equal(model.predict_proba(array), expected)


def test_wrong_shape_of_inputs(model):
    with pytest.raises(InputError, match=r"inputs has shape \(2, 3, 8, 8\), need \(n, 1, 8, 8\)"):
        model.predict(np.zeros((2, 3, 8, 8), dtype=np.uint8))
