"""A first layer that whitens patches of the image: fixed filters, computed from images of the training part."""

import torch
from torch import Tensor, nn

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
