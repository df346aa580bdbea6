"""Autoencoders: networks that reconstruct their input from a small embedding, in which classes are split."""

from collections.abc import Sequence
from math import prod

from torch import Tensor, nn

from deeplda.errors import got
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
    """An encoder to an embedding within (-1, 1) and a decoder back; what the autoencoders share.

    Attributes: encoder and decoder, modules; embedding_dim, the width of the embedding.
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module, embedding_dim: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.embedding_dim = embedding_dim

    def encode(self, inputs: Tensor) -> Tensor:
        """Samples (n, *sample_shape) -> embedding (n, embedding_dim), within (-1, 1)."""
        embedding: Tensor = self.encoder(inputs)
        return embedding

    def decode(self, embedding: Tensor) -> Tensor:
        """Embedding (n, embedding_dim) -> samples (n, *sample_shape)."""
        samples: Tensor = self.decoder(embedding)
        return samples

    def forward(self, inputs: Tensor) -> Tensor:
        """The reconstruction of samples (n, *sample_shape), of the same shape."""
        return self.decode(self.encode(inputs))


class Autoencoder(EncoderDecoder):
    """The paper's autoencoder for images within (0, 1), that is x / 255; its reconstructions are within (0, 1) too.

    The encoder is DorferNet's first three blocks and a linear layer, with batch normalisation and Tanh. The decoder
    is the same backwards: a linear layer, then for each block an enlargement, to the very size that was pooled, and
    its convolutions in reverse; a Sigmoid ends it. There is no dropout: it would hide parts of the image that are to
    be reconstructed, and a bottleneck of 256 numbers restrains the network already.

    Args:
        sample_shape: (channels, height, width) of one image, any number of channels, sides of 24 or more.
        embedding_dim: the width of the embedding, 256 in the paper.
        width: factor on the channels of every hidden layer; the embedding keeps its width.

    Raises InputError for a sample that is no image or too small, a width that leaves no channel, or no embedding.
    """

    def __init__(self, sample_shape: Sequence[int], embedding_dim: int = 256, *, width: float = 1.0) -> None:
        channels = image_channels(sample_shape, network="the autoencoder", least=DorferNet.least_side)
        blocks = pooled_blocks(channels, width)
        super().__init__(*_convolutional(blocks, sample_shape, embedding_dim), embedding_dim)


class SmallAutoencoder(EncoderDecoder):
    """As `Autoencoder`, for images too small for it, such as the 8 x 8 digits: two blocks, with ConvNetSmall's widths.

    Args:
        sample_shape: (channels, height, width) of one image, any number of channels, sides of 4 or more.
        embedding_dim: the width of the embedding; a quarter of the image's values, 256 at most, where not given.
        width: factor on the channels of every hidden layer; the embedding keeps its width.

    Raises InputError as `Autoencoder` does.
    """

    def __init__(self, sample_shape: Sequence[int], embedding_dim: int | None = None, *, width: float = 1.0) -> None:
        channels = image_channels(sample_shape, network="the small autoencoder", least=4)
        c32, c64 = scaled(32, width), scaled(64, width)
        blocks = [[channels, c32, c32], [c32, c64, c64]]
        if embedding_dim is None:
            embedding_dim = min(256, prod(sample_shape) // 4)
        super().__init__(*_convolutional(blocks, sample_shape, embedding_dim), embedding_dim)


class RowAutoencoder(EncoderDecoder):
    """An autoencoder for rows of standardised numbers: two hidden layers to an embedding with Tanh, and two back.

    The decoder's end is linear, not a Sigmoid as for images: standardised numbers are not within (0, 1).

    Args:
        sample_shape: (features,) of one row.
        embedding_dim: the width of the embedding; the number of features, 16 at most, where not given. Rows of fewer
            features need no bottleneck to be clustered, and one would lose what sets their groups apart.
        width: factor on the units of every hidden layer; the embedding keeps its width.

    Raises InputError for a sample that is no row, a width that leaves no unit, or no embedding.
    """

    def __init__(self, sample_shape: Sequence[int], embedding_dim: int | None = None, *, width: float = 1.0) -> None:
        features = row_features(sample_shape, network="the autoencoder of rows")
        if embedding_dim is None:
            embedding_dim = min(features, 16)
        check_embedding_dim(embedding_dim)
        units = scaled(128, width)
        encoder = nn.Sequential(*_dense(features, units, embedding_dim), nn.Tanh())
        super().__init__(encoder, nn.Sequential(*_dense(embedding_dim, units, features)), embedding_dim)
        he_initialise(self)


def build_autoencoder(sample_shape: Sequence[int], *, width: float = 1.0) -> EncoderDecoder:
    """The autoencoder that suits samples of `sample_shape`, (features,) or (channels, height, width).

    Raises InputError for another shape, images with a side below 4, or a width that leaves no channel.
    """
    if len(sample_shape) == 1:
        return RowAutoencoder(sample_shape, width=width)
    if len(sample_shape) == 3 and min(sample_shape[1:]) < DorferNet.least_side:
        return SmallAutoencoder(sample_shape, width=width)
    return Autoencoder(sample_shape, width=width)


def reconstruction_error(reconstruction: Tensor, inputs: Tensor) -> Tensor:
    """The paper's Eq. reconstruction error: 1/n sum over samples of |x - x^|^2, a scalar.

    The squares of a sample are summed, not averaged, as the equation has it: divide by the number of values in a
    sample to compare images of different sizes. Raises ValueError where the shapes differ.
    """
    if reconstruction.shape != inputs.shape:
        raise ValueError(
            got(
                f"a reconstruction of shape {tuple(reconstruction.shape)}",
                need=f"that of the inputs, {tuple(inputs.shape)}",
                do="pass what the autoencoder gave for these inputs",
            )
        )
    return nn.functional.mse_loss(reconstruction, inputs, reduction="sum") / len(inputs)


def _dense(inputs: int, units: int, outputs: int) -> list[nn.Module]:
    return [*linear_bn_relu(inputs, units), *linear_bn_relu(units, units), nn.Linear(units, outputs)]


def _convolutional(
    blocks: Sequence[Sequence[int]], sample_shape: Sequence[int], embedding_dim: int
) -> tuple[nn.Module, nn.Module]:
    """Encoder and decoder of convolutions.

    Args:
        blocks: for each block that ends in pooling, the channels along its convolutions, first those that come in.
    """
    check_embedding_dim(embedding_dim)
    sizes = [(sample_shape[1] >> poolings, sample_shape[2] >> poolings) for poolings in range(len(blocks) + 1)]
    hidden = (blocks[-1][-1], *sizes[-1])

    down = [layer for channels in blocks for layer in (*conv_group(channels), nn.MaxPool2d(2))]
    # What ReLU and pooling hand on is positive and moves the mean of the response, which would drive the Tanh into
    # its flat ends; batch normalisation takes the mean away.
    embed = [nn.Linear(prod(hidden), embedding_dim, bias=False), nn.BatchNorm1d(embedding_dim), nn.Tanh()]
    encoder = nn.Sequential(*down, nn.Flatten(), *embed)

    up: list[nn.Module] = [nn.Linear(embedding_dim, prod(hidden), bias=False), nn.Unflatten(1, hidden)]
    up += [nn.BatchNorm2d(hidden[0]), nn.ReLU(inplace=True)]
    for channels, size in zip(reversed(blocks), reversed(sizes[:-1]), strict=True):
        # The size itself and not a factor of 2: a side that was odd is odd again.
        up += [nn.Upsample(size=size), *conv_group(channels[::-1])]
    # The last convolution gives the image: with a bias, and a Sigmoid for batch normalisation and ReLU.
    up[-3:] = [nn.Conv2d(blocks[0][1], blocks[0][0], 3, padding=1), nn.Sigmoid()]
    decoder = nn.Sequential(*up)
    he_initialise(encoder)
    he_initialise(decoder)
    return encoder, decoder
