"""ConvNetSmall: shapes, the least size, and that it learns the digits."""

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from deeplda.errors import InputError
from deeplda.networks import ConvNetSmall


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(4, 4), (8, 8), (11, 9), (23, 23), (28, 28)], ids=str)
def test_output_shape(channels: int, size: tuple[int, int]) -> None:
    network = ConvNetSmall((channels, *size), 6, width=0.25)
    assert network(torch.randn(3, channels, *size)).shape == (3, 6)


def test_output_takes_both_signs() -> None:
    torch.manual_seed(0)
    output = ConvNetSmall((1, 8, 8), 10)(torch.randn(16, 1, 8, 8))
    assert output.min() < 0 < output.max()


def test_width_scales_the_hidden_layers_only() -> None:
    network = ConvNetSmall((1, 8, 8), 10, width=0.5)
    assert [m.out_channels for m in network.modules() if isinstance(m, nn.Conv2d)] == [16, 16, 32, 32, 64]
    assert network.output.out_features == 10


@pytest.mark.parametrize(
    ("shape", "message"), [((1, 3, 8), "3 x 8 pixels, need at least 4 x 4"), ((64,), "need images")]
)
def test_unsuitable_samples_are_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ConvNetSmall(shape, 10)


def test_learns_the_digits_in_a_few_epochs() -> None:
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
