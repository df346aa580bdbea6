"""Building blocks shared by the networks, weight initialisation, and checks of the networks' arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from deeplda.errors import InputError

Head = Literal["normalised", "plain"]


class PlainHead(nn.Linear):
    """A linear output layer whose outputs are multiplied by a fixed factor: (n, inputs) to (n, outputs).

    The layer can learn any scale. The factor determines the scale at which it starts and, squared, how fast it learns.
    """

    def __init__(self, inputs: int, outputs: int, *, scale: float = 1.0, bias: bool = True) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.scale = scale

    def forward(self, features: Tensor) -> Tensor:
        outputs = super().forward(features)
        return outputs if self.scale == 1 else outputs * self.scale

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, scale={self.scale:g}"


class UniformDropout(nn.Dropout):
    """`nn.Dropout` whose mask compares uniform random numbers with p, which the CPU draws five times as fast.

    `nn.Dropout` draws Bernoulli numbers, which took half of the time of a training step on tables.
    """

    def forward(self, features: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return features
        kept = torch.rand_like(features).ge_(self.p)
        return features * (kept.div_(1 - self.p) if self.p < 1 else kept)


def checked_head(head: Head | None, scale: float, *, network: str, choices: tuple[Head, ...]) -> Head:
    """Return the head of a network, by default the first of its `choices`.

    Raises InputError if the network has no such head, or if it is normalised and `scale` is not 1, because
    normalisation would undo the scale.
    """
    chosen = head or choices[0]
    if chosen not in choices:
        raise InputError(f"head is {chosen!r}, but {network} has only a {' or '.join(choices)} head: omit head")
    if chosen == "normalised" and scale != 1:
        raise InputError(f"logit_scale is {scale:g}, but the head is normalised: use head plain, or omit logit_scale")
    return chosen


def conv_bn_relu(inputs: int, outputs: int, *, kernel: int = 3, padding: int = 1) -> list[nn.Module]:
    """Return a convolution, batch normalisation and a ReLU, which map (n, inputs, h, w) to (n, outputs, h', w')."""
    return [
        # No bias: batch normalisation would subtract it together with the mean, and it has a shift of its own.
        nn.Conv2d(inputs, outputs, kernel, padding=padding, bias=False),
        nn.BatchNorm2d(outputs),
        # In place, which saves a third of the activations: batch normalisation does not need its output again.
        nn.ReLU(inplace=True),
    ]


def conv_group(channels: Sequence[int]) -> list[nn.Module]:
    """Return a chain of `conv_bn_relu` blocks with 3x3 kernels, from each number of channels to the next."""
    return [layer for inputs, outputs in pairwise(channels) for layer in conv_bn_relu(inputs, outputs)]


def linear_bn_relu(inputs: int, outputs: int) -> list[nn.Module]:
    """Return a linear layer without bias, batch normalisation and a ReLU, which map (n, inputs) to (n, outputs)."""
    return [nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)]


def he_initialise(network: nn.Module) -> None:
    """Redraw the weights of every convolution and linear layer from N(0, 2 / fan_in), and set biases to 0.

    This is the forward case for ReLU in He et al. (2015), "Delving deep into rectifiers": with fan_in = inputs x kernel
    area, each layer's response has the same variance as the previous layer's response, because ReLU halves the mean
    square of its input. They show that fan_out works as well, but with fan_in the last layer's scale does not depend on
    `embedding_dim`.
    """
    for module in network.modules():
        # On the meta device there are no values to draw, and drawing them would import a large part of torch.
        if isinstance(module, nn.Conv2d | nn.Linear) and not module.weight.is_meta:
            nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def row_features(sample_shape: Sequence[int], *, network: str) -> int:
    """Return the number of features in a sample. Raises InputError if its shape is not (features,)."""
    _check_sample_shape(sample_shape)
    if len(sample_shape) != 1:
        what = f"{network} cannot process samples of shape {tuple(sample_shape)}"
        need = "feature vectors of shape (features,)"
        raise InputError(what, need=need, do="use convnet-small or dorfernet for images")
    return sample_shape[0]


def image_channels(sample_shape: Sequence[int], *, network: str, least: int) -> int:
    """Return the number of channels in an image of shape (channels, height, width).

    Raises InputError if the sample is not an image, or if a side is shorter than `least` pixels.
    """
    _check_sample_shape(sample_shape)
    if len(sample_shape) != 3:
        what = f"{network} cannot process samples of shape {tuple(sample_shape)}"
        raise InputError(what, need="images of shape (channels, height, width)", do="use mlp for feature vectors")
    channels, height, width = sample_shape
    if min(height, width) < least:
        what = f"{network} cannot process images of {height} x {width} pixels"
        do = "enlarge them or use a network for smaller images"
        raise InputError(what, need=f"at least {least} x {least}", do=do)
    return channels


def scaled(channels: int, width: float) -> int:
    """Return the channel count of a hidden layer, scaled by `width` and rounded.

    Raises InputError if less than one channel would remain.
    """
    if not (math.isfinite(width * channels) and width * channels >= 1):
        raise InputError(
            f"width={width} is invalid for a layer with {channels} channels",
            need=f"a finite number of at least 1/{channels} = {1 / channels:g}, which leaves one channel",
            do="pass 1 for the full network, or 0.25 for a quarter of its channels",
        )
    return round(width * channels)


def check_embedding_dim(embedding_dim: int) -> None:
    """Raise InputError if the network would have no output."""
    if embedding_dim < 1:
        raise InputError(f"embedding_dim is {embedding_dim}, need at least 1: use the number of classes, for example")


def _check_sample_shape(sample_shape: Sequence[int]) -> None:
    if len(sample_shape) not in (1, 3) or min(sample_shape) < 1:
        needed = "(features,) or (channels, height, width), with all sizes at least 1"
        raise InputError(f"sample_shape is {tuple(sample_shape)}", need=needed, do="pass the shape of one sample")
