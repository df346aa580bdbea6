"""Test-time augmentation: the views and their weights, pixel by pixel."""

import numpy as np
import pytest
import torch

from deeplda.views import averaged, reflected
from small_model import digits, small_model


def shifted(image, down, right):
    """Return the image moved by one pixel, with the row or column beyond the edge reflected at it."""
    channels, height, width = image.shape
    found = np.empty_like(image)
    for c in range(channels):
        for i in range(height):
            for j in range(width):
                row, column = i - down, j - right
                row = {-1: 1, height: height - 2}.get(row, row)
                column = {-1: 1, width: width - 2}.get(column, column)
                found[c, i, j] = image[c, row, column]
    return found


def six_views(image):
    """Return each view with its weight."""
    for moved, weight in ((image, 0.25), (shifted(image, -1, -1), 0.125), (shifted(image, 1, 1), 0.125)):
        yield moved, weight
        yield moved[..., ::-1].copy(), weight


def test_the_weights_are_a_half_and_two_quarters():
    assert sum(weight for _, weight in six_views(np.zeros((1, 3, 3)))) == 1


def test_views_are_those_of_a_loop_over_pixels():
    images = np.random.default_rng(0).integers(0, 255, (5, 3, 6, 4)).astype(np.uint8)
    seen = []

    def embed(batch):
        seen.append(batch)
        return batch.double().flatten(1) ** 2

    found = averaged(embed, torch.from_numpy(images), "views")
    expected = [sum(weight * view.astype(float).ravel() ** 2 for view, weight in six_views(image)) for image in images]
    np.testing.assert_allclose(found, expected)
    assert [batch.dtype for batch in seen] == [torch.uint8] * 6


def test_mirror_and_none():
    images = torch.randn(2, 1, 4, 5)
    assert averaged(lambda batch: batch, images, None) is images
    assert torch.equal(averaged(lambda batch: batch, images, "mirror"), (images + images.flip(-1)) / 2)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_reflection_is_numpys(size):
    padded = np.pad(np.arange(size), 1, mode="reflect")
    assert reflected(torch.arange(-1, size + 1), size).tolist() == padded.tolist()


def test_every_method_of_a_model_takes_views():
    model, images = small_model(), digits()[0][:7]
    embedding = sum(
        weight * model.transform(np.stack([list(six_views(image))[k][0] for image in images]))
        for k, (_, weight) in enumerate(six_views(images[0]))
    )
    scores = model.class_scores(torch.from_numpy(embedding))
    np.testing.assert_allclose(model.transform(images, tta="views"), embedding, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(images, tta="views"), scores.softmax(1), rtol=1e-3, atol=1e-6)
    names = np.asarray(model.class_names)[scores.argmax(1)].tolist()
    assert (
        model.predict(images, tta="views").tolist() == model.predict_subclasses(images, tta="views").tolist() == names
    )
    distances = model.predictor.mahalanobis(torch.from_numpy(embedding))
    np.testing.assert_allclose(model.mahalanobis(images, tta="views"), distances, rtol=1e-3)
    assert not np.allclose(embedding, model.transform(images, mirror=True), rtol=1e-3)
    np.testing.assert_array_equal(model.transform(images, tta="mirror"), model.transform(images, mirror=True))


def test_an_unknown_augmentation_is_rejected():
    with pytest.raises(ValueError, match="tta is 'flips', need one of 'mirror', 'views', or None"):
        small_model().predict(digits()[0][:1], tta="flips")
