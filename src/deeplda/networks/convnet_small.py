"""ConvNetSmall: the network for images too small for DorferNet, such as the 8 x 8 digits of scikit-learn."""

from collections.abc import Sequence

from torch import Tensor, nn

from deeplda.networks.blocks import conv_bn_relu, he_initialise
from deeplda.networks.checks import check_embedding_dim, image_channels, scaled


class ConvNetSmall(nn.Module):
    """Five 3x3 convolutions, global average pooling and a linear output.

    Images (n, channels, height, width) -> embeddings (n, embedding_dim).

    The output is linear where DorferNet, as in the paper, ends in batch normalisation and ReLU. With those two an
    output dimension lives on one side of 0 and can fall silent for good; without them class means may lie
    anywhere. The objective itself is blind to a shift of the embeddings and compares spreads within them, so it
    needs no normalised output.

    Args:
        sample_shape: (channels, height, width) of one image, any number of channels, sides of 4 or more.
        embedding_dim: the width of the output.
        width: factor on the channels of every hidden layer; the output keeps its width.

    Raises InputError for a sample that is no image or too small, a width that leaves no channel, or no output.
    """

    # Two poolings halve the image, and one pixel has to be left.
    least_side = 4

    def __init__(self, sample_shape: Sequence[int], embedding_dim: int, *, width: float = 1.0) -> None:
        super().__init__()
        channels = image_channels(sample_shape, network="convnet-small", least=self.least_side)
        check_embedding_dim(embedding_dim)
        c32, c64, c128 = (scaled(count, width) for count in (32, 64, 128))

        self.features = nn.Sequential(
            *conv_bn_relu(channels, c32),
            *conv_bn_relu(c32, c32),
            nn.MaxPool2d(2),
            *conv_bn_relu(c32, c64),
            *conv_bn_relu(c64, c64),
            nn.MaxPool2d(2),
            *conv_bn_relu(c64, c128),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.output = nn.Linear(c128, embedding_dim)
        he_initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, height, width) -> embeddings (n, embedding_dim)."""
        embeddings: Tensor = self.output(self.features(images))
        return embeddings
