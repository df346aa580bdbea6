"""FastNet: a network for short budgets on small colour or grey images."""

from collections.abc import Sequence

from torch import Tensor, nn

from deeplda.networks.blocks import conv_bn_relu, he_initialise
from deeplda.networks.checks import check_embedding_dim, image_channels, scaled


class FastNet(nn.Module):
    """A 2x2 convolution, three groups of two 3x3 convolutions of 64, 256 and 256 channels, and a linear output.

    Images (n, channels, height, width) -> embeddings (n, embedding_dim).

    The layout is that of networks made to learn CIFAR-10 in few epochs: each group pools right after its first
    convolution, so that most of the arithmetic is done on small images with many channels, and there is no dropout.
    The output is normalised over the batch without scale or shift: its variance is 1, whatever the weights, so that
    the ridge of the objective means the same throughout a training.

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
        # Twice the number of values in a patch of colour, as whitening filters and their negatives would be.
        first = 24

        self.features = nn.Sequential(
            *conv_bn_relu(channels, first, kernel=2, padding=0),
            *_group(first, c64),
            *_group(c64, c256),
            *_group(c256, c256),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
        )
        self.output = nn.Sequential(
            nn.Linear(c256, embedding_dim, bias=False), nn.BatchNorm1d(embedding_dim, affine=False)
        )
        he_initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, height, width) -> embeddings (n, embedding_dim)."""
        embeddings: Tensor = self.output(self.features(images))
        return embeddings


def _group(channels_in: int, channels_out: int) -> list[nn.Module]:
    convolution, norm, relu = conv_bn_relu(channels_in, channels_out)
    return [convolution, nn.MaxPool2d(2), norm, relu, *conv_bn_relu(channels_out, channels_out)]
