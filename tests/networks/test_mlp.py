"""MLP: layers, widths and what it refuses."""

import pytest
import torch
from torch import nn

from deeplda.errors import InputError
from deeplda.networks import MLP


def linear_shapes(network: nn.Module) -> list[tuple[int, int]]:
    return [(m.in_features, m.out_features) for m in network.modules() if isinstance(m, nn.Linear)]


def test_two_hidden_layers_of_128_by_default() -> None:
    network = MLP((13,), 3)
    assert linear_shapes(network) == [(13, 128), (128, 128), (128, 3)]
    assert [type(m) for m in network.hidden] == [nn.Linear, nn.BatchNorm1d, nn.ReLU] * 2
    assert sum(p.numel() for p in network.parameters()) == 13 * 128 + 128 * 128 + 2 * 2 * 128 + 128 * 3 + 3
    assert network(torch.randn(5, 13)).shape == (5, 3)


def test_width_and_hidden() -> None:
    assert linear_shapes(MLP((4,), 2, width=0.1)) == [(4, 13), (13, 13), (13, 2)]
    assert linear_shapes(MLP((4,), 2, hidden=(64, 32, 16), width=0.5)) == [(4, 32), (32, 16), (16, 8), (8, 2)]


def test_without_hidden_layers_it_is_linear() -> None:
    network = MLP((4,), 2, hidden=())
    rows = torch.randn(3, 4)
    torch.testing.assert_close(network(rows), rows @ network.output.weight.T)


@pytest.mark.parametrize(
    ("shape", "message"),
    [((1, 8, 8), r"mlp on samples of shape \(1, 8, 8\), need rows of numbers"), ((0,), "none of them 0")],
)
def test_unsuitable_samples_are_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MLP(shape, 3)
