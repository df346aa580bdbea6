"""DorferNet: the network of the paper's experiments."""

from collections.abc import Sequence

from torch import Tensor, nn

from deeplda.networks.layers import check_embedding_dim, conv_bn_relu, conv_group, he_initialise, image_channels, scaled


class DorferNet(nn.Module):
    """The paper's table "DorferNet", which Dorfer et al. call OurNet.

    Images (n, channels, height, width) -> embeddings (n, embedding_dim).

    The six blocks are the six parts of the table. The paper leaves three things open, read here as follows: the
    output, 10 in the table, is `embedding_dim`; dropout is of single values, not of whole channels; where a side is
    odd, pooling drops the last row or column. The output is never negative: its ReLU comes before the average.

    Args:
        sample_shape: (channels, height, width) of one image, any number of channels, sides of 24 or more.
        embedding_dim: the width of the output.
        width: factor on the channels of every hidden layer; the output keeps its width.

    Raises InputError for a sample that is no image or too small, a width that leaves no channel, or no output.
    """

    # Three poolings halve the image, and the 3x3 convolution without padding needs 3 x 3 of what is left.
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
    """The channels along the convolutions of the blocks that end in pooling, 1 to 3; first those that come in."""
    c64, c128, c256 = (scaled(count, width) for count in (64, 128, 256))
    return [[channels, c64, c64], [c64, c128, c128], [c128, c256, c256, c256, c256]]


def _pool_and_drop() -> list[nn.Module]:
    return [nn.MaxPool2d(2), nn.Dropout(0.25)]
