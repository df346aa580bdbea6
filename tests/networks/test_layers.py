"""Initial weights, the reason for convolutions without bias, and dropout."""

import math

import pytest
import torch
from torch import nn

from deeplda.networks import MLP, ConvNetSmall, DorferNet, NetworkBuilder
from deeplda.networks.layers import UniformDropout, conv_bn_relu


def weights(network: nn.Module) -> list[torch.Tensor]:
    """Of all layers but those that start at 0."""
    layers = [m.weight.detach() for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    return [weight for weight in layers if weight.any()]


@pytest.mark.parametrize(
    ("kind", "shape"), [(DorferNet, (3, 24, 24)), (ConvNetSmall, (3, 8, 8)), (MLP, (30,))], ids=str
)
def test_weights_are_normal_with_variance_2_over_fan_in(kind: NetworkBuilder, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    network = kind(shape, 10)
    for weight in weights(network):
        values = weight.double().flatten() * math.sqrt(weight[0].numel() / 2)
        n = values.numel()
        # Mean, variance and fourth moment of n standard normal numbers, each within five of its standard errors.
        assert abs(values.mean()) < 5 / math.sqrt(n)
        assert abs(values.square().mean() - 1) < 5 * math.sqrt(2 / n)
        assert abs(values.pow(4).mean() - 3) < 5 * math.sqrt(96 / n)


def test_biases_start_at_0_and_normalisation_at_the_identity() -> None:
    network = ConvNetSmall((3, 8, 8), 10)
    assert (network.output.bias == 0).all()
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    assert all((m.weight == 1).all() and (m.bias == 0).all() for m in norms)


def test_a_bias_before_batch_normalisation_would_change_nothing() -> None:
    """The reason the convolutions have none."""
    torch.manual_seed(0)
    block = nn.Sequential(*conv_bn_relu(2, 4))
    images = torch.randn(5, 2, 6, 6)
    before = block(images)
    block[0].bias = nn.Parameter(torch.randn(4))
    torch.testing.assert_close(block(images), before, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("p", [0.2, 0.5, 0.9])
def test_dropout_drops_its_share_and_keeps_the_mean(p: float) -> None:
    torch.manual_seed(0)
    layer, ones = UniformDropout(p), torch.ones(400, 500, requires_grad=True)
    dropped = layer(ones)
    assert dropped.unique().tolist() == pytest.approx([0, 1 / (1 - p)])
    # Five standard errors of a share of 200,000 values.
    assert abs(float((dropped == 0).double().mean()) - p) < 5 * (p * (1 - p) / ones.numel()) ** 0.5
    dropped.sum().backward()
    assert torch.equal(ones.grad, dropped)
    assert layer.eval()(ones) is ones


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_dropout_of_nothing_and_of_everything_is_that_of_torch(p: float) -> None:
    values = torch.randn(20, 30)
    assert torch.equal(UniformDropout(p)(values), nn.Dropout(p)(values))
