"""DorferNet: the network of the paper's experiments."""

from collections.abc import Sequence

from torch import Tensor, nn

from deeplda.networks.layers import check_embedding_dim, conv_bn_relu, conv_group, he_initialise, image_channels, scaled


class DorferNet(nn.Module):
    """The network in the paper's table "DorferNet"; Dorfer et al. call it OurNet.

    Images (n, channels, height, width) -> embeddings (n, embedding_dim).

    The six blocks are the six parts of the table. The paper leaves three points open, and we read them as follows: the
    output width, 10 in the table, is `embedding_dim`; dropout acts on single values, not on complete channels; if a
    side is odd, pooling drops its last row or column. The output is never negative, because its ReLU precedes the
    average.

    Args:
        sample_shape: (channels, height, width) of one image: any number of channels, sides of at least 24 pixels.
        embedding_dim: width of the output.
        width: factor on the channels of every hidden layer; the output keeps its width.

    Raises InputError if the samples are not images or too small, if `width` leaves a layer without channels, or if
    `embedding_dim` is less than 1.
    """

    # Three poolings halve the image, and the 3x3 convolution without padding needs 3 x 3 of the rest.
    least_side = 24

    def __init__(self, sample_shape: Sequence[int], embedding_dim: int, *, width: float = 1.0) -> None:
        super().__init__()
        channels = image_channels(sample_shape, network="dorfernet", least=self.least_side)
        check_embedding_dim(embedding_dim)
        first, second, third = pooled_blocks(channels, width)
        c256, c1024 = scaled(256, width), scaled(1024, width)

        self.block1 = nn.Sequential(*conv_group(first), *_pool_and_drop())
        self.block2 = nn.Sequential(*conv_group(second), *_pool_and_drop())
        self.block3 = nn.Sequential(*conv_group(third), *_pool_and_drop())
        self.block4 = nn.Sequential(*conv_bn_relu(c256, c1024, padding=0), nn.Dropout(0.5))
        self.block5 = nn.Sequential(*conv_bn_relu(c1024, c1024, kernel=1, padding=0), nn.Dropout(0.5))
        self.block6 = nn.Sequential(
            *conv_bn_relu(c1024, embedding_dim, kernel=1, padding=0), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        he_initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, height, width) -> embeddings (n, embedding_dim)."""
        hidden = self.block3(self.block2(self.block1(images)))
        embeddings: Tensor = self.block6(self.block5(self.block4(hidden)))
        return embeddings


def pooled_blocks(channels: int, width: float) -> list[list[int]]:
    """Return the channels before, between and after the convolutions of blocks 1 to 3, which end in pooling.

    `channels` is the number of channels of the images.
    """
    c64, c128, c256 = (scaled(count, width) for count in (64, 128, 256))
    return [[channels, c64, c64], [c64, c128, c128], [c128, c256, c256, c256, c256]]


def _pool_and_drop() -> list[nn.Module]:
    return [nn.MaxPool2d(2), nn.Dropout(0.25)]
