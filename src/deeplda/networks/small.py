"""The two small networks: `ConvNetSmall` for small images and `MLP` for feature vectors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from deeplda.errors import InputError
from deeplda.networks.layers import (
    Head,
    PlainHead,
    UniformDropout,
    check_embedding_dim,
    checked_head,
    conv_bn_relu,
    he_initialise,
    image_channels,
    linear_bn_relu,
    row_features,
    scaled,
)
from deeplda.networks.whitened_output import Outputs, whitened_output

# More than anyone would train. The card of an untrusted model can declare millions.
_MOST_HIDDEN_LAYERS = 100


class ConvNetSmall(nn.Module):
    """Five 3x3 convolutions, global average pooling and a linear output.

    It maps images (n, channels, height, width) to embeddings (n, embedding_dim).

    The output is linear, whereas DorferNet, as in the paper, ends in batch normalisation and ReLU. With these two, an
    output is never negative and can die permanently; without them, class means may lie anywhere. The objective ignores
    shifts of the embeddings and compares spreads within them, so it does not need a normalised output.

    Args:
        sample_shape: (channels, height, width) of one image, with any number of channels and at least 4 pixels a side.
        embedding_dim: width of the output.
        width: multiplier for the number of channels in every hidden layer; the output keeps its width.
        head: only "plain", the default.
        logit_scale: factor for the outputs.
        outputs: "whitened" ends the network in a `WhitenedOutput`; by default, outputs are those of the head.

    Raises InputError if the samples are not images or are too small, if `width` leaves a layer without channels, if
    `embedding_dim` is less than 1, or if another head is given.
    """

    # Two pooling layers each halve the image, and at least one pixel must remain.
    least_side = 4
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
        channels = image_channels(sample_shape, network="convnet-small", least=self.least_side)
        check_embedding_dim(embedding_dim)
        checked_head(head, logit_scale, network="convnet-small", choices=("plain",))
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
        self.output = PlainHead(c128, embedding_dim, scale=logit_scale)
        self.whitened = whitened_output(outputs, embedding_dim)
        he_initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, channels, height, width) to embeddings (n, embedding_dim)."""
        return self.outputs(self.features(images))

    def outputs(self, features: Tensor) -> Tensor:
        """Map the last hidden layer (n, d) to embeddings (n, embedding_dim)."""
        embeddings: Tensor = self.output(features)
        return embeddings if self.whitened is None else self.whitened(embeddings)


class MLP(nn.Module):
    """A linear map plus hidden layers with batch normalisation, ReLU and dropout, whose contribution starts at 0.

    It maps feature vectors (n, features) to embeddings (n, embedding_dim).

    Args:
        sample_shape: (features,), the shape of one sample.
        embedding_dim: width of the output.
        width: multiplier for the number of units in every hidden layer; the output keeps its width.
        hidden: number of units in each hidden layer at width 1; `()` leaves only the linear map.
        dropout: fraction of the hidden values dropped during training. Tabular data sets are small, and a discriminant
            objective overfits them easily: without dropout, the within-class scatter almost vanishes and the loss loses
            its meaning.
        head: only "plain", the default.
        logit_scale: factor for the outputs.
        outputs: "whitened" ends the network in a `WhitenedOutput`; by default, outputs are those of the head.

    Raises InputError if the samples are not feature vectors, if there are more than 100 hidden layers, if `hidden` or
    `width` leaves one of them without units, if `dropout` is not a fraction, if `embedding_dim` is less than 1, or if
    another head is given.
    """

    output_layers = ("linear", "output")

    def __init__(
        self,
        sample_shape: Sequence[int],
        embedding_dim: int,
        *,
        width: float = 1.0,
        head: Head | None = None,
        logit_scale: float = 1.0,
        outputs: Outputs | None = None,
        hidden: Sequence[int] = (128, 128),
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        features = row_features(sample_shape, network="mlp")
        check_embedding_dim(embedding_dim)
        checked_head(head, logit_scale, network="mlp", choices=("plain",))
        if len(hidden) > _MOST_HIDDEN_LAYERS:
            raise InputError(f"there are {len(hidden)} hidden layers, need at most {_MOST_HIDDEN_LAYERS}: omit some")
        if any(units < 1 for units in hidden):
            raise InputError(f"the hidden layers have {tuple(hidden)} units, need at least 1 in each of them")
        if not 0 <= dropout < 1:
            raise InputError(f"dropout must be at least 0 and less than 1, got {dropout}")
        sizes = [features, *(scaled(units, width) for units in hidden)]

        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [*linear_bn_relu(before, after), UniformDropout(dropout)]
        self.linear = PlainHead(features, embedding_dim, scale=logit_scale)
        self.hidden = nn.Sequential(*layers)
        self.output = PlainHead(sizes[-1], embedding_dim, scale=logit_scale, bias=False) if layers else None
        self.whitened = whitened_output(outputs, embedding_dim)
        he_initialise(self)
        if self.output is not None:
            # Training then starts from a linear map, which is often enough for small tabular data sets.
            nn.init.zeros_(self.output.weight)

    @property
    def input_layers(self) -> list[nn.Linear]:
        """The layers that read the feature vectors; nothing else does."""
        return [self.linear, *[layer for layer in self.hidden if isinstance(layer, nn.Linear)][:1]]

    def forward(self, rows: Tensor) -> Tensor:
        """Map feature vectors (n, features) to embeddings (n, embedding_dim)."""
        return self._embeddings(rows, None if self.output is None else self.hidden(rows))

    def features(self, rows: Tensor) -> Tensor:
        """Map feature vectors (n, features) to what the two output layers take: the vectors and the hidden values."""
        return rows if self.output is None else torch.cat([rows, self.hidden(rows)], 1)

    def outputs(self, features: Tensor) -> Tensor:
        """Map the result of `features` to embeddings (n, embedding_dim)."""
        return self._embeddings(*features.tensor_split([self.linear.in_features], 1))

    def _embeddings(self, rows: Tensor, hidden: Tensor | None) -> Tensor:
        embeddings: Tensor = self.linear(rows)
        if self.output is not None:
            embeddings = embeddings + self.output(hidden)
        return embeddings if self.whitened is None else self.whitened(embeddings)
