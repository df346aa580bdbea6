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
    assert linear_shapes(network) == [(13, 3), (13, 128), (128, 128), (128, 3)]
    assert [type(m) for m in network.hidden] == [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Dropout] * 2
    assert sum(p.numel() for p in network.parameters()) == 13 * 3 + 3 + 13 * 128 + 128 * 128 + 2 * 2 * 128 + 128 * 3
    assert network(torch.randn(5, 13)).shape == (5, 3)


def test_dropout_is_in_training_alone() -> None:
    network, rows = MLP((13,), 3), torch.randn(50, 13)
    nn.init.ones_(network.output.weight)
    assert not torch.equal(network(rows), network(rows))
    network.eval()
    assert torch.equal(network(rows), network(rows))
    plain = MLP((13,), 3, dropout=0.0)
    nn.init.ones_(plain.output.weight)
    assert torch.equal(plain(rows), plain(rows))


def test_width_and_hidden() -> None:
    assert linear_shapes(MLP((4,), 2, width=0.1)) == [(4, 2), (4, 13), (13, 13), (13, 2)]
    assert linear_shapes(MLP((4,), 2, hidden=(64, 32, 16), width=0.5)) == [
        (4, 2), (4, 32), (32, 16), (16, 8), (8, 2),
    ]  # fmt: skip


def test_without_hidden_layers_it_is_linear() -> None:
    network = MLP((4,), 2, hidden=())
    rows = torch.randn(3, 4)
    torch.testing.assert_close(network(rows), rows @ network.linear.weight.T)


def test_it_starts_as_a_linear_map_and_learns_beyond() -> None:
    network, rows = MLP((4,), 2, dropout=0.0), torch.randn(30, 4)
    torch.testing.assert_close(network(rows), rows @ network.linear.weight.T)
    network(rows).square().sum().backward()
    assert network.output.weight.grad.abs().min() > 0


@pytest.mark.parametrize(
    ("shape", "message"),
    [((1, 8, 8), r"mlp on samples of shape \(1, 8, 8\), need rows of numbers"), ((0,), "none of them 0")],
)
def test_unsuitable_samples_are_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MLP(shape, 3)
