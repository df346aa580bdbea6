"""Autoencoders: networks that reconstruct their input from a small embedding, which is used to cluster classes."""

from collections.abc import Sequence
from math import prod

from torch import Tensor, nn

from deeplda.networks.dorfernet import DorferNet, pooled_blocks
from deeplda.networks.layers import (
    check_embedding_dim,
    conv_group,
    he_initialise,
    image_channels,
    linear_bn_relu,
    row_features,
    scaled,
)


class EncoderDecoder(nn.Module):
    """Base class for autoencoders, which encode samples to an embedding within (-1, 1) and decode it back.

    Attributes:
        encoder, decoder: the two modules.
        embedding_dim: width of the embedding.
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module, embedding_dim: int) -> None:
        super().__init__()
        self.encoder, self.decoder, self.embedding_dim = encoder, decoder, embedding_dim

    def encode(self, inputs: Tensor) -> Tensor:
        """Map samples (n, *sample_shape) to their embedding (n, embedding_dim), within (-1, 1)."""
        embedding: Tensor = self.encoder(inputs)
        return embedding

    def decode(self, embedding: Tensor) -> Tensor:
        """Map an embedding (n, embedding_dim) to samples (n, *sample_shape)."""
        samples: Tensor = self.decoder(embedding)
        return samples

    def forward(self, inputs: Tensor) -> Tensor:
        """Reconstruct samples (n, *sample_shape); the result has the same shape."""
        return self.decode(self.encode(inputs))


class Autoencoder(EncoderDecoder):
    """The paper's autoencoder for images scaled to (0, 1) as x / 255; its reconstructions also lie within (0, 1).

    The encoder consists of DorferNet's first three blocks and a linear layer, with batch normalisation and Tanh. The
    decoder reverses this: it has a linear layer; then, for each block, upsampling to the size before pooling and the
    block's convolutions in reverse order; and a Sigmoid at the end. There is no dropout, because it would hide parts of
    the image that have to be reconstructed, and a bottleneck of 256 numbers constrains the network enough.

    Args:
        sample_shape: (channels, height, width) of one image, with any number of channels and at least 24 pixels a side.
        embedding_dim: width of the embedding; 256 in the paper.
        width: multiplier for the number of channels in every hidden layer; the embedding keeps its width.

    Raises InputError if the samples are not images or are too small, if `width` leaves a layer without channels, or if
    `embedding_dim` is less than 1.
    """

    def __init__(self, sample_shape: Sequence[int], embedding_dim: int = 256, *, width: float = 1.0) -> None:
        channels = image_channels(sample_shape, network="the autoencoder", least=DorferNet.least_side)
        super().__init__(*_convolutional(pooled_blocks(channels, width), sample_shape, embedding_dim), embedding_dim)


class SmallAutoencoder(EncoderDecoder):
    """A smaller `Autoencoder`, for images such as the 8 x 8 digits, with two blocks that have ConvNetSmall's widths.

    Args:
        sample_shape: (channels, height, width) of one image, with any number of channels and at least 4 pixels a side.
        embedding_dim: width of the embedding. The default is a quarter of the number of values in an image, but at most
            256.
        width: multiplier for the number of channels in every hidden layer; the embedding keeps its width.

    Raises the same errors as `Autoencoder`.
    """

    def __init__(self, sample_shape: Sequence[int], embedding_dim: int | None = None, *, width: float = 1.0) -> None:
        channels = image_channels(sample_shape, network="the small autoencoder", least=4)
        c32, c64 = scaled(32, width), scaled(64, width)
        blocks = [[channels, c32, c32], [c32, c64, c64]]
        if embedding_dim is None:
            embedding_dim = min(256, prod(sample_shape) // 4)
        super().__init__(*_convolutional(blocks, sample_shape, embedding_dim), embedding_dim)


class RowAutoencoder(EncoderDecoder):
    """An autoencoder for standardised feature vectors, with two hidden layers before and after a Tanh embedding.

    The decoder ends in a linear layer, not in a Sigmoid as for images, because standardised features may lie outside
    (0, 1).

    Args:
        sample_shape: (features,), the shape of one sample.
        embedding_dim: width of the embedding. The default is the number of features, but at most 16. Samples with fewer
            features can be clustered without a bottleneck, which might lose the differences between their groups.
        width: multiplier for the number of units in every hidden layer; the embedding keeps its width.

    Raises InputError if the samples are not feature vectors, if `width` leaves a layer without units, or if
    `embedding_dim` is less than 1.
    """

    def __init__(self, sample_shape: Sequence[int], embedding_dim: int | None = None, *, width: float = 1.0) -> None:
        features = row_features(sample_shape, network="the autoencoder for feature vectors")
        if embedding_dim is None:
            embedding_dim = min(features, 16)
        check_embedding_dim(embedding_dim)
        units = scaled(128, width)
        encoder = nn.Sequential(*_dense(features, units, embedding_dim), nn.Tanh())
        super().__init__(encoder, nn.Sequential(*_dense(embedding_dim, units, features)), embedding_dim)
        he_initialise(self)


def build_autoencoder(sample_shape: Sequence[int], *, width: float = 1.0) -> EncoderDecoder:
    """Build the autoencoder for samples of shape (features,) or (channels, height, width).

    Raises InputError if the samples have any other shape, if images have a side of less than 4 pixels, or if `width`
    leaves a layer empty.
    """
    if len(sample_shape) == 1:
        return RowAutoencoder(sample_shape, width=width)
    if len(sample_shape) == 3 and min(sample_shape[1:]) < DorferNet.least_side:
        return SmallAutoencoder(sample_shape, width=width)
    return Autoencoder(sample_shape, width=width)


def reconstruction_error(reconstruction: Tensor, inputs: Tensor) -> Tensor:
    """Return the paper's reconstruction error, the mean over samples of |x - x^|^2, as a scalar.

    As in the paper's equation, the squares in a sample are summed, not averaged. To compare images of different sizes,
    divide by the number of values in a sample. Raises ValueError if the shapes differ.
    """
    if reconstruction.shape != inputs.shape:
        shapes = f"shape {tuple(reconstruction.shape)}, need the inputs' shape {tuple(inputs.shape)}"
        raise ValueError(f"the reconstruction has {shapes}: pass the autoencoder's output for these inputs")
    return nn.functional.mse_loss(reconstruction, inputs, reduction="sum") / len(inputs)


def _dense(inputs: int, units: int, outputs: int) -> list[nn.Module]:
    return [*linear_bn_relu(inputs, units), *linear_bn_relu(units, units), nn.Linear(units, outputs)]


def _convolutional(
    blocks: Sequence[Sequence[int]], sample_shape: Sequence[int], embedding_dim: int
) -> tuple[nn.Module, nn.Module]:
    """Build an encoder and a decoder from `blocks`, in the form returned by `pooled_blocks`."""
    check_embedding_dim(embedding_dim)
    sizes = [(sample_shape[1] >> poolings, sample_shape[2] >> poolings) for poolings in range(len(blocks) + 1)]
    hidden = (blocks[-1][-1], *sizes[-1])

    down = [layer for channels in blocks for layer in (*conv_group(channels), nn.MaxPool2d(2))]
    # The output of ReLU and pooling is never negative, so the linear layer's output would have a mean that saturates
    # the Tanh; batch normalisation removes this mean.
    embed = [nn.Linear(prod(hidden), embedding_dim, bias=False), nn.BatchNorm1d(embedding_dim), nn.Tanh()]
    encoder = nn.Sequential(*down, nn.Flatten(), *embed)

    up: list[nn.Module] = [nn.Linear(embedding_dim, prod(hidden), bias=False), nn.Unflatten(1, hidden)]
    up += [nn.BatchNorm2d(hidden[0]), nn.ReLU(inplace=True)]
    for channels, size in zip(reversed(blocks), reversed(sizes[:-1]), strict=True):
        # Upsample to the exact size instead of by a factor of 2, so that odd sides are restored.
        up += [nn.Upsample(size=size), *conv_group(channels[::-1])]
    # The last convolution produces the image, so it has a bias, and a Sigmoid replaces batch normalisation and ReLU.
    up[-3:] = [nn.Conv2d(blocks[0][1], blocks[0][0], 3, padding=1), nn.Sigmoid()]
    decoder = nn.Sequential(*up)
    he_initialise(encoder)
    he_initialise(decoder)
    return encoder, decoder
