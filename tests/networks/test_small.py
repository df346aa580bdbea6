"""The small networks: layers, widths, the samples they reject, and that they learn."""

from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from deeplda.errors import InputError
from deeplda.networks import MLP, ConvNetSmall
from deeplda.networks.layers import UniformDropout


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(4, 4), (8, 8), (11, 9), (23, 23), (28, 28)], ids=str)
def test_convnet_output_shape(channels: int, size: tuple[int, int]) -> None:
    network = ConvNetSmall((channels, *size), 6, width=0.25)
    assert network(torch.randn(3, channels, *size)).shape == (3, 6)


def test_convnet_output_takes_both_signs() -> None:
    torch.manual_seed(0)
    output = ConvNetSmall((1, 8, 8), 10)(torch.randn(16, 1, 8, 8))
    assert output.min() < 0 < output.max()


def test_convnet_width_scales_the_hidden_layers_only() -> None:
    network = ConvNetSmall((1, 8, 8), 10, width=0.5)
    assert [m.out_channels for m in network.modules() if isinstance(m, nn.Conv2d)] == [16, 16, 32, 32, 64]
    assert network.output.out_features == 10


@pytest.mark.parametrize(
    ("shape", "message"), [((1, 3, 8), "3 x 8 pixels, need at least 4 x 4"), ((64,), "need images")]
)
def test_convnet_rejects_unsuitable_samples(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ConvNetSmall(shape, 10)


def test_convnet_learns_the_digits_in_a_few_epochs() -> None:
    """Half the width, six epochs: far from the best, far from chance, and short."""
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1
    labels = torch.tensor(digits.target)
    network = ConvNetSmall((1, 8, 8), 10, width=0.5)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    for _ in range(6):
        for batch in torch.randperm(1257).split(100)[:-1]:
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images[batch]), labels[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        accuracy = (network.eval()(images[1257:]).argmax(1) == labels[1257:]).float().mean()
    assert accuracy > 0.93


def linear_shapes(network: nn.Module) -> list[tuple[int, int]]:
    return [(m.in_features, m.out_features) for m in network.modules() if isinstance(m, nn.Linear)]


def test_mlp_has_two_hidden_layers_of_128_by_default() -> None:
    network = MLP((13,), 3)
    assert linear_shapes(network) == [(13, 3), (13, 128), (128, 128), (128, 3)]
    assert [type(m) for m in network.hidden] == [nn.Linear, nn.BatchNorm1d, nn.ReLU, UniformDropout] * 2
    assert sum(p.numel() for p in network.parameters()) == 13 * 3 + 3 + 13 * 128 + 128 * 128 + 2 * 2 * 128 + 128 * 3
    assert network(torch.randn(5, 13)).shape == (5, 3)


@pytest.mark.parametrize("hidden", [(16, 8), ()])
def test_mlp_is_its_features_followed_by_its_outputs(hidden: tuple[int, ...]) -> None:
    network, rows = MLP((13,), 3, hidden=hidden, outputs="whitened").eval(), torch.randn(20, 13)
    if network.output is not None:
        nn.init.normal_(network.output.weight)
    torch.testing.assert_close(network(rows), network.outputs(network.features(rows)))


def test_mlp_drops_values_only_in_training() -> None:
    network, rows = MLP((13,), 3), torch.randn(50, 13)
    nn.init.ones_(network.output.weight)
    assert not torch.equal(network(rows), network(rows))
    network.eval()
    assert torch.equal(network(rows), network(rows))
    plain = MLP((13,), 3, dropout=0.0)
    nn.init.ones_(plain.output.weight)
    assert torch.equal(plain(rows), plain(rows))


def test_mlp_width_and_hidden() -> None:
    assert linear_shapes(MLP((4,), 2, width=0.1)) == [(4, 2), (4, 13), (13, 13), (13, 2)]
    assert linear_shapes(MLP((4,), 2, hidden=(64, 32, 16), width=0.5)) == [
        (4, 2), (4, 32), (32, 16), (16, 8), (8, 2),
    ]  # fmt: skip


def test_mlp_without_hidden_layers_is_linear() -> None:
    network = MLP((4,), 2, hidden=())
    rows = torch.randn(3, 4)
    torch.testing.assert_close(network(rows), rows @ network.linear.weight.T)


def test_mlp_starts_as_a_linear_map_and_learns_beyond() -> None:
    network, rows = MLP((4,), 2, dropout=0.0), torch.randn(30, 4)
    torch.testing.assert_close(network(rows), rows @ network.linear.weight.T)
    network(rows).square().sum().backward()
    assert network.output.weight.grad.abs().min() > 0


@pytest.mark.parametrize(
    ("shape", "message"),
    [((1, 8, 8), r"mlp cannot process samples of shape \(1, 8, 8\), need feature vectors"), ((0,), "at least 1")],
)
def test_mlp_rejects_unsuitable_samples(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MLP(shape, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": (4, 0)}, r"\(4, 0\) units, need at least 1"),
        ({"hidden": (2,) * 101}, "101 hidden layers, need at most 100"),
        ({"dropout": 1.0}, "dropout must be at least 0 and less than 1, got 1.0"),
        ({"dropout": float("nan")}, "dropout must be .*, got nan"),
    ],
)
def test_mlp_rejects_unsuitable_hidden_layers(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MLP((3,), 2, **options)
