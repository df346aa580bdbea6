"""MLP: the network for rows of numbers."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from deeplda.networks.blocks import he_initialise, linear_bn_relu
from deeplda.networks.checks import check_embedding_dim, row_features, scaled


class MLP(nn.Module):
    """Hidden layers with batch normalisation and ReLU, then a linear output.

    Rows (n, features) -> embeddings (n, embedding_dim).

    Args:
        sample_shape: (features,) of one row.
        embedding_dim: the width of the output.
        width: factor on the units of every hidden layer; the output keeps its width.
        hidden: the units of the hidden layers at width 1; none, `()`, leaves a linear map.

    Raises InputError for a sample that is no row, a width that leaves no unit, or no output.
    """

    def __init__(
        self,
        sample_shape: Sequence[int],
        embedding_dim: int,
        *,
        width: float = 1.0,
        hidden: Sequence[int] = (128, 128),
    ) -> None:
        super().__init__()
        features = row_features(sample_shape, network="mlp")
        check_embedding_dim(embedding_dim)
        sizes = [features, *(scaled(units, width) for units in hidden)]

        layers = [layer for inputs, outputs in pairwise(sizes) for layer in linear_bn_relu(inputs, outputs)]
        self.hidden = nn.Sequential(*layers)
        self.output = nn.Linear(sizes[-1], embedding_dim)
        he_initialise(self)

    def forward(self, rows: Tensor) -> Tensor:
        """Rows (n, features) -> embeddings (n, embedding_dim)."""
        embeddings: Tensor = self.output(self.hidden(rows))
        return embeddings
