"""FastNet: any image of 24 pixels and more, whitened patches, an output of variance 1."""

import numpy as np
import pytest
import torch

from deeplda.errors import InputError
from deeplda.networks import FastNet, StartsFromData
from deeplda.networks.fastnet import Whitening, patch_covariance


@pytest.mark.parametrize("side", [24, 28, 33, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_any_image(side, channels):
    network = FastNet((channels, side, side), 7, width=0.125)
    network.start_from(torch.randn(5, channels, side, side))
    assert network(torch.randn(2, channels, side, side)).shape == (2, 7)


def test_too_small():
    with pytest.raises(InputError, match="24"):
        FastNet((3, 23, 32), 10)


def test_the_output_has_mean_0_and_variance_1_before_training():
    torch.manual_seed(0)
    output = FastNet((3, 24, 24), 5, width=0.125)(5 + 3 * torch.randn(200, 3, 24, 24))
    torch.testing.assert_close(output.mean(0), torch.zeros(5), rtol=0, atol=1e-5)
    torch.testing.assert_close(output.var(0, unbiased=False), torch.ones(5), rtol=1e-3, atol=0)


def test_layers():
    """Whitening, then (conv, pool, norm, gelu, conv, norm, gelu) of 64, 256 and 256 channels."""
    convolutions = [m for m in FastNet((3, 32, 32), 10).modules() if isinstance(m, torch.nn.Conv2d)]
    assert [(c.in_channels, c.out_channels, c.kernel_size[0]) for c in convolutions] == [
        (3, 24, 2), (24, 64, 3), (64, 64, 3), (64, 256, 3), (256, 256, 3), (256, 256, 3), (256, 256, 3),
    ]  # fmt: skip


def test_convolutions_start_as_the_identity_on_the_channels_that_come_in():
    network = FastNet((3, 32, 32), 10, width=0.25)
    first = next(m for m in network.groups if isinstance(m, torch.nn.Conv2d))
    second = [m for m in network.groups if isinstance(m, torch.nn.Conv2d)][2]
    images = torch.randn(2, 16, 9, 9)
    torch.testing.assert_close(second(images)[:, :16], images)
    assert first.in_channels == 24  # more than the 16 that leave: the first 16 are handed on
    torch.testing.assert_close(first(torch.cat([images, images[:, :8]], 1)), images)


def test_fixed_parameters_are_not_trained():
    network = FastNet((3, 24, 24), 5, width=0.125)
    fixed = {name for name, parameter in network.named_parameters() if not parameter.requires_grad}
    norms = {name for name, module in network.named_modules() if isinstance(module, torch.nn.BatchNorm2d)}
    assert fixed == {"whitening.convolution.weight", *(f"{name}.weight" for name in norms)}
    assert len(norms) == 6


@pytest.mark.parametrize("channels", [1, 3])
def test_patches_come_out_uncorrelated_and_of_variance_1(channels):
    """Against NumPy's covariance, on images whose neighbouring pixels and channels go together."""
    torch.manual_seed(0)
    noise = torch.randn(250, channels, 12, 12)
    images = 3 + 2 * (noise + noise.roll(1, 2) + 0.5 * noise.roll(1, 1))
    layer = Whitening(channels)
    layer.start_from(images)
    responses = layer(images).detach().permute(1, 0, 2, 3).flatten(1).numpy()
    half = 4 * channels
    np.testing.assert_allclose(responses[:half], -responses[half:], atol=1e-4)
    np.testing.assert_allclose(np.cov(responses[:half], bias=True), np.eye(half), atol=0.01)


def test_the_strongest_direction_comes_first_and_noise_is_not_blown_up():
    images = torch.linspace(-1, 1, 50)[:, None, None, None].expand(50, 1, 6, 6)
    layer = Whitening(1)
    layer.start_from(images)
    deviations = layer(images).detach().std((0, 2, 3), unbiased=False)
    assert deviations[0] == pytest.approx(1, abs=0.01)
    assert deviations[1:4].max() < 0.01


def test_covariance_of_all_patches():
    images = torch.randn(203, 2, 5, 4)
    patches = [
        image[:, y : y + 2, x : x + 2].flatten().double().numpy()
        for image in images
        for y in range(4)
        for x in range(3)
    ]
    np.testing.assert_allclose(patch_covariance(images), np.cov(np.array(patches).T, bias=True), atol=1e-12)


def test_it_is_known_to_start_from_data():
    assert isinstance(FastNet((3, 24, 24), 5, width=0.125), StartsFromData)
    assert not isinstance(torch.nn.Linear(2, 2), StartsFromData)
