"""DorferNet, the network used in the paper's experiments."""

from collections.abc import Sequence

from torch import Tensor, nn

from deeplda.networks.layers import (
    Head,
    PlainHead,
    UniformDropout,
    check_embedding_dim,
    checked_head,
    conv_bn_relu,
    conv_group,
    he_initialise,
    image_channels,
    scaled,
)
from deeplda.networks.whitened_output import Outputs, whitened_output


class DorferNet(nn.Module):
    """The network in the paper's table "DorferNet"; Dorfer et al. call it OurNet.

    It maps images (n, channels, height, width) to embeddings (n, embedding_dim).

    The six blocks correspond to the six sections of the table. The paper leaves three points open, which we interpret
    as follows: the output width, which is 10 in the table, is `embedding_dim`; dropout acts on single values, not on
    whole channels; and if a side is odd, pooling drops its last row or column. The paper's output is never negative,
    because a ReLU precedes the final average pooling.

    Args:
        sample_shape: (channels, height, width) of one image, with any number of channels and at least 24 pixels a side.
        embedding_dim: width of the output.
        width: multiplier for the number of channels in every hidden layer; the output keeps its width.
        head: "normalised" (the default) is the paper's last section: a 1x1 convolution, batch normalisation, a ReLU and
            average pooling. "plain" is average pooling and a linear layer, the same map without normalisation and ReLU.
        logit_scale: factor for the outputs of a plain head.
        outputs: "whitened" ends the network in a `WhitenedOutput`; by default, outputs are those of the head.

    Raises InputError if the samples are not images or are too small, if `width` leaves a layer without channels, if
    `embedding_dim` is less than 1, or if a logit scale is given for a normalised head.
    """

    # Three pooling layers each halve the image, and the unpadded 3x3 convolution needs 3 x 3 of the remaining pixels.
    least_side = 24
    output_layers = ("block6",)

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
        channels = image_channels(sample_shape, network="dorfernet", least=self.least_side)
        check_embedding_dim(embedding_dim)
        head = checked_head(head, logit_scale, network="dorfernet", choices=("normalised", "plain"))
        first, second, third = pooled_blocks(channels, width)
        c256, c1024 = scaled(256, width), scaled(1024, width)

        self.block1 = nn.Sequential(*conv_group(first), *_pool_and_drop())
        self.block2 = nn.Sequential(*conv_group(second), *_pool_and_drop())
        self.block3 = nn.Sequential(*conv_group(third), *_pool_and_drop())
        self.block4 = nn.Sequential(*conv_bn_relu(c256, c1024, padding=0), UniformDropout(0.5))
        self.block5 = nn.Sequential(*conv_bn_relu(c1024, c1024, kernel=1, padding=0), UniformDropout(0.5))
        pooling = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        self.block6 = (
            nn.Sequential(*pooling, PlainHead(c1024, embedding_dim, scale=logit_scale))
            if head == "plain"
            else nn.Sequential(*conv_bn_relu(c1024, embedding_dim, kernel=1, padding=0), *pooling)
        )
        self.whitened = whitened_output(outputs, embedding_dim)
        he_initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, channels, height, width) to embeddings (n, embedding_dim)."""
        return self.outputs(self.features(images))

    def features(self, images: Tensor) -> Tensor:
        """Map images (n, channels, height, width) to the last hidden layer, maps (n, d, h, w)."""
        hidden = self.block3(self.block2(self.block1(images)))
        features: Tensor = self.block5(self.block4(hidden))
        return features

    def outputs(self, features: Tensor) -> Tensor:
        """Map the last hidden layer (n, d, h, w) to embeddings (n, embedding_dim)."""
        embeddings: Tensor = self.block6(features)
        return embeddings if self.whitened is None else self.whitened(embeddings)


def pooled_blocks(channels: int, width: float) -> list[list[int]]:
    """Return the numbers of channels before, between and after the convolutions in each of blocks 1 to 3.

    These are the blocks that end in pooling. `channels` is the number of channels in the images.
    """
    c64, c128, c256 = (scaled(count, width) for count in (64, 128, 256))
    return [[channels, c64, c64], [c64, c128, c128], [c128, c256, c256, c256, c256]]


def _pool_and_drop() -> list[nn.Module]:
    return [nn.MaxPool2d(2), UniformDropout(0.25)]
