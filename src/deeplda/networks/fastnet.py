"""FastNet: a network for short budgets on small colour or grey images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from deeplda.networks.layers import check_embedding_dim, image_channels, scaled

_SIDE = 2
# Added to the variance of each direction, of images of variance about 1: far below it there is noise to leave small.
_NOISE = 5e-4
_IMAGES_AT_ONCE = 100


class Whitening(nn.Module):
    """2x2 convolution whose responses on the images of `start_from` are uncorrelated and of variance near 1.

    Images (n, channels, h, w) -> (n, 8 channels, h - 1, w - 1): the directions of the patches, the strongest first,
    then their negatives, so that what follows sees both signs through its nonlinearity. The filters are not trained,
    the bias is. Until `start_from` they are random directions.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.outputs = 2 * channels * _SIDE**2
        self.convolution = nn.Conv2d(channels, self.outputs, _SIDE)
        self.convolution.weight.requires_grad_(False)
        size = channels * _SIDE**2
        self._set(nn.init.orthogonal_(torch.empty(size, size)))

    def forward(self, images: Tensor) -> Tensor:
        responses: Tensor = self.convolution(images)
        return responses

    def start_from(self, images: Tensor) -> None:
        """Compute the filters from images (n, channels, h, w), prepared as the network gets them."""
        variances, directions = torch.linalg.eigh(patch_covariance(images))
        scaled = directions / (variances.clamp(min=0) + _NOISE).sqrt()
        self._set(scaled.T.flip(0))

    @torch.no_grad()
    def _set(self, filters: Tensor) -> None:
        """From one filter a row; their negatives follow."""
        weight = self.convolution.weight
        weight.copy_(torch.cat([filters, -filters]).reshape(weight.shape))
        assert self.convolution.bias is not None
        nn.init.zeros_(self.convolution.bias)


def patch_covariance(images: Tensor) -> Tensor:
    """Of all 2x2 patches about their mean, in float64: (4 channels, 4 channels), in the order of a filter's weights."""
    total: Tensor | float = 0.0
    products: Tensor | float = 0.0
    count = 0
    for start in range(0, len(images), _IMAGES_AT_ONCE):
        patches = images[start : start + _IMAGES_AT_ONCE].double().unfold(2, _SIDE, 1).unfold(3, _SIDE, 1)
        rows = patches.permute(0, 2, 3, 1, 4, 5).flatten(0, 2).flatten(1)
        total, products, count = total + rows.sum(0), products + rows.T @ rows, count + len(rows)
    mean = total / count
    assert isinstance(mean, Tensor)
    return products / count - mean.outer(mean)


# The share of the newest batch in the running mean and variance: a short training has few batches to forget early ones.
_MOMENTUM = 0.4


class FastNet(nn.Module):
    """Whitened patches, three groups of two 3x3 convolutions of 64, 256 and 256 channels, and a linear output.

    Images (n, channels, height, width) -> embeddings (n, embedding_dim).

    The family is that of Jordan's "94% on CIFAR-10 in 3.29 seconds on a single GPU" (2024): each group pools right
    after its first convolution, so that most of the arithmetic is done on small images with many channels; GELU, no
    dropout, batch normalisation without scale; convolutions start as the identity on as many channels as come in.
    Here the output is normalised over the batch: its variance is 1 at the start, whatever the weights, so that the
    ridge of the objective has a meaning. The scale is learnt for cross-entropy's sake, which is nothing without one;
    to an LDA objective it means almost nothing.

    Args:
        sample_shape: (channels, height, width) of one image, any number of channels, sides of 24 or more.
        embedding_dim: the width of the output.
        width: factor on the channels of the three groups; the first layer and the output keep their width.

    Raises InputError for a sample that is no image or too small, a width that leaves no channel, or no output.
    """

    least_side = 24

    def __init__(self, sample_shape: Sequence[int], embedding_dim: int, *, width: float = 1.0) -> None:
        super().__init__()
        channels = image_channels(sample_shape, network="fastnet", least=self.least_side)
        check_embedding_dim(embedding_dim)
        c64, c256 = (scaled(count, width) for count in (64, 256))
        self.whitening = Whitening(channels)
        self.groups = nn.Sequential(
            nn.GELU(), *_group(self.whitening.outputs, c64), *_group(c64, c256), *_group(c256, c256)
        )
        self.output = nn.Sequential(
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
            nn.Linear(c256, embedding_dim, bias=False),
            nn.BatchNorm1d(embedding_dim, momentum=_MOMENTUM),
        )

    def start_from(self, images: Tensor) -> None:
        """Whiten with the patches of these images (n, channels, height, width), prepared as `forward` gets them."""
        self.whitening.start_from(images)

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, height, width) -> embeddings (n, embedding_dim)."""
        embeddings: Tensor = self.output(self.groups(self.whitening(images)))
        return embeddings


def _group(inputs: int, outputs: int) -> list[nn.Module]:
    return [
        _convolution(inputs, outputs),
        nn.MaxPool2d(2),
        _norm(outputs),
        nn.GELU(),
        _convolution(outputs, outputs),
        _norm(outputs),
        nn.GELU(),
    ]


def _convolution(inputs: int, outputs: int) -> nn.Conv2d:
    """3x3; the first filters hand on the channels that come in, the others are random."""
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    nn.init.dirac_(convolution.weight[:inputs])
    return convolution


def _norm(channels: int) -> nn.BatchNorm2d:
    """Without scale: the next convolution's filters do its work."""
    norm = nn.BatchNorm2d(channels, momentum=_MOMENTUM)
    norm.weight.requires_grad_(False)
    return norm
