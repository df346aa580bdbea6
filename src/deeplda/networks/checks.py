"""What every network asks of its arguments, so that each error reads the same."""

import math
from collections.abc import Sequence

from deeplda.errors import InputError, got


def row_features(sample_shape: Sequence[int], *, network: str) -> int:
    """The number of features of a sample (features,). InputError if the sample is not a row of numbers."""
    _check_sample_shape(sample_shape)
    if len(sample_shape) != 1:
        raise InputError(
            got(
                f"{network} on samples of shape {tuple(sample_shape)}",
                need="rows of numbers, shape (features,)",
                do="use a network for images, such as convnet-small or dorfernet",
            )
        )
    return sample_shape[0]


def image_channels(sample_shape: Sequence[int], *, network: str, least: int) -> int:
    """The number of channels of a sample (channels, height, width).

    InputError if the sample is not an image, or a side is shorter than `least` pixels.
    """
    _check_sample_shape(sample_shape)
    if len(sample_shape) != 3:
        raise InputError(
            got(
                f"{network} on samples of shape {tuple(sample_shape)}",
                need="images, shape (channels, height, width)",
                do="use a network for rows of numbers, such as mlp",
            )
        )
    channels, height, width = sample_shape
    if min(height, width) < least:
        raise InputError(
            got(
                f"{network} on images of {height} x {width} pixels",
                need=f"at least {least} x {least}",
                do="enlarge the images or use a network for smaller ones",
            )
        )
    return channels


def scaled(channels: int, width: float) -> int:
    """A hidden layer's `channels` times `width`, rounded. InputError if that leaves less than one channel."""
    if not (math.isfinite(width * channels) and width * channels >= 1):
        raise InputError(
            got(
                f"width={width} for a layer of {channels} channels",
                need=f"a finite number of at least 1/{channels} = {1 / channels:g}, so that one channel is left",
                do="1 gives the full network, 0.25 a quarter of its channels",
            )
        )
    return round(width * channels)


def check_embedding_dim(embedding_dim: int) -> None:
    """InputError if the network would have no output."""
    if embedding_dim < 1:
        raise InputError(
            got(f"embedding_dim={embedding_dim}", need="at least 1", do="the number of classes is the usual choice")
        )


def _check_sample_shape(sample_shape: Sequence[int]) -> None:
    if len(sample_shape) not in (1, 3) or min(sample_shape) < 1:
        raise InputError(
            got(
                f"samples of shape {tuple(sample_shape)}",
                need="(features,) or (channels, height, width), none of them 0",
                do="give the shape of one sample, without the batch",
            )
        )
