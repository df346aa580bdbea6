"""DorferNet against the paper's table, written out here."""

import pytest
import torch
from torch import nn

from deeplda.errors import InputError
from deeplda.networks import DorferNet

# The paper's Tab. DorferNet, line by line.
TABLE = """
3 x 3 Conv(pad-1)-64-BN-ReLU
3 x 3 Conv(pad-1)-64-BN-ReLU
2 x 2 Max-Pooling + Drop-Out(0.25)
3 x 3 Conv(pad-1)-128-BN-ReLU
3 x 3 Conv(pad-1)-128-BN-ReLU
2 x 2 Max-Pooling + Drop-Out(0.25)
3 x 3 Conv(pad-1)-256-BN-ReLU
3 x 3 Conv(pad-1)-256-BN-ReLU
3 x 3 Conv(pad-1)-256-BN-ReLU
3 x 3 Conv(pad-1)-256-BN-ReLU
2 x 2 Max-Pooling + Drop-Out(0.25)
3 x 3 Conv(pad-0)-1024-BN-ReLU
Drop-Out(0.5)
1 x 1 Conv(pad-0)-1024-BN-ReLU
Drop-Out(0.5)
1 x 1 Conv(pad-0)-10-BN-ReLU
Global-Average-Pooling
"""

# Weights of the convolutions: inputs x outputs x kernel area; of batch normalisation: a scale and a shift a channel.
CONVOLUTIONS = [
    *(3 * 64 * 9, 64 * 64 * 9),
    *(64 * 128 * 9, 128 * 128 * 9),
    *(128 * 256 * 9, 256 * 256 * 9, 256 * 256 * 9, 256 * 256 * 9),
    *(256 * 1024 * 9, 1024 * 1024, 1024 * 10),
]
NORMALISATIONS = 2 * (2 * 64 + 2 * 128 + 4 * 256 + 2 * 1024 + 10)


def leaves(network: nn.Module) -> list[nn.Module]:
    return [module for module in network.modules() if not list(module.children())]


def as_table(network: nn.Module) -> str:
    """The network in the paper's notation, from its modules."""
    text = ""
    for layer in leaves(network):
        match layer:
            case nn.Conv2d(kernel_size=(k, _), padding=(p, _), out_channels=c, stride=(1, 1), groups=1):
                text += f"\n{k} x {k} Conv(pad-{p})-{c}"
            case nn.BatchNorm2d():
                text += "-BN"
            case nn.ReLU():
                text += "-ReLU"
            case nn.MaxPool2d(kernel_size=2, stride=2):
                text += "\n2 x 2 Max-Pooling"
            case nn.Dropout(p=0.25):
                text += " + Drop-Out(0.25)"
            case nn.Dropout(p=0.5):
                text += "\nDrop-Out(0.5)"
            case nn.AdaptiveAvgPool2d(output_size=1):
                text += "\nGlobal-Average-Pooling\n"
            case nn.Flatten():
                pass
            case _:
                pytest.fail(f"not in the table: {layer}")
    return text


def test_layers_are_those_of_the_papers_table() -> None:
    assert as_table(DorferNet((3, 32, 32), 10)) == TABLE


def test_parameters_are_those_of_the_table_and_no_biases() -> None:
    network = DorferNet((3, 32, 32), 10)
    assert [m.weight.numel() for m in network.modules() if isinstance(m, nn.Conv2d)] == CONVOLUTIONS
    assert sum(p.numel() for p in network.parameters()) == sum(CONVOLUTIONS) + NORMALISATIONS == 5_749_204


def test_layers_run_in_the_order_they_are_listed() -> None:
    network = DorferNet((3, 32, 32), 10, width=1 / 16).eval()
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(network(images), nn.Sequential(*leaves(network))(images))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(24, 24), (28, 28), (32, 32), (33, 33), (96, 96), (25, 47)], ids=str)
def test_output_shape(channels: int, size: tuple[int, int]) -> None:
    network = DorferNet((channels, *size), 7, width=1 / 32)
    output = network(torch.randn(2, channels, *size))
    assert output.shape == (2, 7)
    assert (output >= 0).all()  # ReLU before the average


def test_width_scales_the_hidden_layers_only() -> None:
    network = DorferNet((3, 24, 24), 10, width=0.3)
    channels = [m.out_channels for m in network.modules() if isinstance(m, nn.Conv2d)]
    assert channels == [19, 19, 38, 38, 77, 77, 77, 77, 307, 307, 10]


def test_channels_last_gives_the_same_embeddings_and_gradients() -> None:
    torch.manual_seed(0)
    network = DorferNet((3, 33, 33), 5, width=1 / 16).eval()
    images = torch.randn(3, 3, 33, 33)

    def run(memory_format: torch.memory_format) -> list[torch.Tensor]:
        network.to(memory_format=memory_format)
        network.zero_grad()
        output = network(images.to(memory_format=memory_format))
        output.square().sum().backward()
        return [output.detach(), *(p.grad.clone() for p in network.parameters())]

    usual, channels_last = run(torch.contiguous_format), run(torch.channels_last)
    torch.testing.assert_close(channels_last, usual, rtol=1e-3, atol=1e-4)


def test_gradient_reaches_every_parameter() -> None:
    torch.manual_seed(0)
    network = DorferNet((1, 24, 24), 4, width=1 / 16)
    network(torch.randn(8, 1, 24, 24)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 23, 32), r"dorfernet cannot process images of 23 x 32 pixels, need at least 24 x 24"),
        ((3, 32, 8), r"32 x 8 pixels"),
        ((64,), r"dorfernet cannot process samples of shape \(64,\), need images"),
        ((32, 32), r"shape is \(32, 32\), need \(features,\) or \(channels, height, width\)"),
        ((0, 32, 32), r"at least 1"),
    ],
)
def test_unsuitable_samples_are_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DorferNet(shape, 10)


def test_least_side_is_the_least_that_the_layers_can_take() -> None:
    network = DorferNet((1, 24, 24), 3, width=1 / 64).eval()
    assert network(torch.zeros(1, 1, DorferNet.least_side, DorferNet.least_side)).shape == (1, 3)
    with pytest.raises(RuntimeError, match="size"):
        network(torch.zeros(1, 1, DorferNet.least_side, DorferNet.least_side - 1))
