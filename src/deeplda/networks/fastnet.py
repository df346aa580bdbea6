"""FastNet: a network for small colour or greyscale images that trains well within a short time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from deeplda.networks.layers import Head, PlainHead, check_embedding_dim, checked_head, image_channels, scaled
from deeplda.networks.whitened_output import Outputs, whitened_output

# Weight of the newest batch in the running mean and variance. It is large because a short training run has few batches
# in which to forget the early ones.
_MOMENTUM = 0.4
# Height and width of the patches to whiten.
_SIDE = 2
# Added to the variance of each direction so that mere noise is not amplified; suits images with a variance of about 1.
_NOISE = 5e-4
_IMAGES_AT_ONCE = 100
# The modules of `output` before the output layer: pooling and flattening. Their place is part of the weights' names.
_POOLING = 2


class FastNet(nn.Module):
    """Patch whitening, three groups of two 3x3 convolutions with 64, 256 and 256 channels, and a linear output.

    It maps images (n, channels, height, width) to embeddings (n, embedding_dim).

    The design follows Jordan's "94% on CIFAR-10 in 3.29 seconds on a single GPU" (2024). Each group pools right after
    its first convolution, so most of the arithmetic is done on small images with many channels. The network uses GELU,
    no dropout, and batch normalisation without a scale, and its convolutions start as the identity on their input
    channels. By default, our output is normalised over the batch, so its variance starts at 1 whatever the weights are;
    this gives the objective's ridge a well-defined meaning. The output's scale is learnt because cross-entropy needs
    one; it hardly matters to an LDA objective. Jordan's network has a plain output, multiplied by 1/9.

    Args:
        sample_shape: (channels, height, width) of one image, with any number of channels and at least 24 pixels a side.
        embedding_dim: width of the output.
        width: multiplier for the number of channels in the three groups; the first layer and the output keep theirs.
        head: "normalised" (the default) ends in batch normalisation, "plain" in a linear layer.
        logit_scale: factor for the outputs of a plain head.
        outputs: "whitened" ends the network in a `WhitenedOutput`; by default, outputs are those of the head.

    Raises InputError if the samples are not images or are too small, if `width` leaves a layer without channels, if
    `embedding_dim` is less than 1, or if a logit scale is given for a normalised head.
    """

    least_side = 24
    output_layers = ("output",)

    def __init__(
        self,
        sample_shape: Sequence[int],
        embedding_dim: int,
        *,
        width: float = 1.0,
        head: Head | None = None,
        logit_scale: float = 1.0,
        outputs: Outputs | None = None,
    ) -> None:
        super().__init__()
        channels = image_channels(sample_shape, network="fastnet", least=self.least_side)
        check_embedding_dim(embedding_dim)
        head = checked_head(head, logit_scale, network="fastnet", choices=("normalised", "plain"))
        c64, c256 = (scaled(count, width) for count in (64, 256))
        self.whitening = Whitening(channels)
        self.groups = nn.Sequential(
            nn.GELU(), *_group(self.whitening.outputs, c64), *_group(c64, c256), *_group(c256, c256)
        )
        layer = PlainHead(c256, embedding_dim, scale=logit_scale, bias=False)
        norm = [nn.BatchNorm1d(embedding_dim, momentum=_MOMENTUM)] if head == "normalised" else []
        self.output = nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten(), layer, *norm)
        self.whitened = whitened_output(outputs, embedding_dim)

    def start_from(self, images: Tensor) -> None:
        """Compute the whitening from images (n, channels, height, width), normalised as the inputs of `forward` are."""
        self.whitening.start_from(images)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, channels, height, width) to embeddings (n, embedding_dim)."""
        return self.outputs(self.features(images))

    def features(self, images: Tensor) -> Tensor:
        """Map images (n, channels, height, width) to the last hidden layer, the largest values of the maps, (n, d)."""
        features: Tensor = self.output[:_POOLING](self.groups(self.whitening(images)))
        return features

    def outputs(self, features: Tensor) -> Tensor:
        """Map the last hidden layer (n, d) to embeddings (n, embedding_dim)."""
        embeddings: Tensor = self.output[_POOLING:](features)
        return embeddings if self.whitened is None else self.whitened(embeddings)


class Whitening(nn.Module):
    """A 2x2 convolution whose responses to the images passed to `start_from` are uncorrelated with variance near 1.

    It maps images (n, channels, h, w) to responses (n, 8 * channels, h - 1, w - 1). The filters are the principal
    directions of the patches, strongest first, followed by their negatives, so that both signs pass through the
    nonlinearity that follows. The filters are not trained, but the bias is. Until `start_from` is called, the filters
    are random orthogonal directions.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        size = channels * _SIDE**2
        self.outputs = 2 * size
        self.convolution = nn.Conv2d(channels, self.outputs, _SIDE)
        self.convolution.weight.requires_grad_(False)
        # On the meta device there are no values to compute, and a matrix of this size may not fit in any memory.
        if not self.convolution.weight.is_meta:
            self._set(nn.init.orthogonal_(torch.empty(size, size)))

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, channels, h, w) to responses (n, 8 * channels, h - 1, w - 1)."""
        responses: Tensor = self.convolution(images)
        return responses

    def start_from(self, images: Tensor) -> None:
        """Compute the filters from images (n, channels, h, w), normalised as the network's inputs are."""
        variances, directions = torch.linalg.eigh(patch_covariance(images))
        whitened = directions / (variances.clamp(min=0) + _NOISE).sqrt()
        self._set(whitened.T.flip(0))

    @torch.no_grad()
    def _set(self, filters: Tensor) -> None:
        """Set the weights to `filters`, one per row, followed by their negatives."""
        weight = self.convolution.weight
        weight.copy_(torch.cat([filters, -filters]).reshape(weight.shape))
        assert self.convolution.bias is not None
        nn.init.zeros_(self.convolution.bias)


def patch_covariance(images: Tensor) -> Tensor:
    """Return the covariance of all 2x2 patches, with axes ordered like a filter's weights.

    The result is a float64 matrix of shape (4 * channels, 4 * channels).
    """
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
    """Return a 3x3 convolution whose first filters copy the input channels; the other filters are random."""
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    # Like nn.init.dirac_, but without its loop over channels, which would take forever for a huge width from a broken
    # file.
    with torch.no_grad():
        copies = convolution.weight[:inputs].zero_()
        copies[:, :, 1, 1].diagonal().fill_(1)
    return convolution


def _norm(channels: int) -> nn.BatchNorm2d:
    """Return batch normalisation without a trained scale, which the next convolution's filters provide."""
    norm = nn.BatchNorm2d(channels, momentum=_MOMENTUM)
    norm.weight.requires_grad_(False)
    return norm
