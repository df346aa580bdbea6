"""Mean 0 and deviation 1, as numpy counts them."""

import numpy as np
import pytest
import torch

from deeplda.model import Normalisation


@pytest.mark.parametrize("shape", [(3, 5, 7), (4,)])
def test_normalisation_is_numpys(shape):
    rng = np.random.default_rng(0)
    inputs = rng.normal(50, 9, size=(40, *shape)).astype(np.float32)
    inputs[:, 1] = 7
    normalised = Normalisation(shape).fit(inputs)(torch.as_tensor(inputs)).numpy()
    axes = (0, *range(2, inputs.ndim))
    np.testing.assert_allclose(normalised.mean(axes), 0, atol=1e-5)
    np.testing.assert_allclose(normalised.std(axes), [1, 0, 1, 1][: shape[0]], atol=1e-5)
