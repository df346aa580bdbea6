"""The building blocks that the networks share, and how their weights start."""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn


def conv_bn_relu(inputs: int, outputs: int, *, kernel: int = 3, padding: int = 1) -> list[nn.Module]:
    """Convolution, batch normalisation and ReLU, in that order: (n, inputs, h, w) -> (n, outputs, h', w')."""
    return [
        # The batch normalisation subtracts the mean, and a bias with it; its own shift does a bias's work.
        nn.Conv2d(inputs, outputs, kernel, padding=padding, bias=False),
        nn.BatchNorm2d(outputs),
        # In place: batch normalisation does not need its output again, and a third of the activations is saved.
        nn.ReLU(inplace=True),
    ]


def conv_group(channels: Sequence[int]) -> list[nn.Module]:
    """3x3 convolutions as in `conv_bn_relu`, from each number of channels to the next."""
    return [layer for inputs, outputs in pairwise(channels) for layer in conv_bn_relu(inputs, outputs)]


def linear_bn_relu(inputs: int, outputs: int) -> list[nn.Module]:
    """Linear layer, batch normalisation and ReLU: (n, inputs) -> (n, outputs). No bias, as in `conv_bn_relu`."""
    return [nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)]


def he_initialise(network: nn.Module) -> None:
    """Draw the weights of every convolution and linear layer anew from N(0, 2 / fan_in); biases start at 0.

    He et al. (2015), "Delving deep into rectifiers", for ReLU, forward case: with fan_in = inputs x kernel area, the
    variance of a layer's response is that of the layer before, as ReLU halves the mean square of what comes in.
    They show that fan_out serves as well; with fan_in the last layer does not depend on `embedding_dim`.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
