"""FastNet: any image of 24 pixels and more, an output of variance 1."""

import pytest
import torch

from deeplda.errors import InputError
from deeplda.networks import FastNet


@pytest.mark.parametrize("side", [24, 28, 33, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_any_image(side: int, channels: int) -> None:
    network = FastNet((channels, side, side), 7, width=0.125)
    assert network(torch.randn(2, channels, side, side)).shape == (2, 7)


def test_too_small() -> None:
    with pytest.raises(InputError, match="24"):
        FastNet((3, 23, 32), 10)


def test_the_output_has_mean_0_and_variance_1_in_training() -> None:
    torch.manual_seed(0)
    output = FastNet((3, 24, 24), 5, width=0.125)(5 + 3 * torch.randn(200, 3, 24, 24))
    torch.testing.assert_close(output.mean(0), torch.zeros(5), rtol=0, atol=1e-5)
    torch.testing.assert_close(output.var(0, unbiased=False), torch.ones(5), rtol=1e-3, atol=0)


def test_layers() -> None:
    """2x2 convolution, then (conv, pool, norm, relu, conv, norm, relu) of 64, 256 and 256 channels."""
    convolutions = [m for m in FastNet((3, 32, 32), 10).modules() if isinstance(m, torch.nn.Conv2d)]
    assert [(c.in_channels, c.out_channels, c.kernel_size[0]) for c in convolutions] == [
        (3, 24, 2), (24, 64, 3), (64, 64, 3), (64, 256, 3), (256, 256, 3), (256, 256, 3), (256, 256, 3),
    ]  # fmt: skip
