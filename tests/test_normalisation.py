"""The normalisation of samples: mean and deviation of each channel or feature."""

import numpy as np
import pytest
import torch

from deeplda.normalisation import Normalisation, byte_sums


@pytest.mark.parametrize("shape", [(3, 5, 7), (4,)])
def test_normalisation_is_numpys(shape):
    rng = np.random.default_rng(0)
    inputs = rng.normal(50, 9, size=(40, *shape)).astype(np.float32)
    inputs[:, 1] = 7
    normalised = Normalisation(shape).fit(inputs)(torch.as_tensor(inputs)).numpy()
    axes = (0, *range(2, inputs.ndim))
    np.testing.assert_allclose(normalised.mean(axes), 0, atol=1e-5)
    np.testing.assert_allclose(normalised.std(axes), [1, 0, 1, 1][: shape[0]], atol=1e-5)


def test_sums_of_bytes_are_exact_and_add_up():
    images = np.random.default_rng(0).integers(0, 256, (700, 3, 40, 40), dtype=np.uint8)
    by_hand = [[int((images[:, c].astype(np.int64) ** power).sum()) for c in range(3)] for power in (0, 1, 2)]
    assert byte_sums(images).tolist() == by_hand
    assert (byte_sums(images[::2]) + byte_sums(images[1::2])).tolist() == by_hand
    fitted = Normalisation((3, 40, 40)).fit(images)
    np.testing.assert_allclose(fitted.mean.flatten(), images.mean((0, 2, 3)), rtol=1e-7)
    np.testing.assert_allclose(fitted.deviation.flatten(), images.std((0, 2, 3)), rtol=1e-7)
