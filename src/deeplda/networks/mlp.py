"""MLP: the network for rows of numbers."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from deeplda.networks.blocks import he_initialise, linear_bn_relu
from deeplda.networks.checks import check_embedding_dim, row_features, scaled


class MLP(nn.Module):
    """A linear map, plus hidden layers with batch normalisation, ReLU and dropout that start at 0 and add to it.

    Rows (n, features) -> embeddings (n, embedding_dim).

    Args:
        sample_shape: (features,) of one row.
        embedding_dim: the width of the output.
        width: factor on the units of every hidden layer; the output keeps its width.
        hidden: the units of the hidden layers at width 1; none, `()`, leaves the linear map.
        dropout: the share of the hidden values left out in training. Tables are small, and a discriminant objective
            fits what it is given: without dropout their within-class scatter all but vanishes, and with it its meaning.

    Raises InputError for a sample that is no row, a width that leaves no unit, or no output.
    """

    def __init__(
        self,
        sample_shape: Sequence[int],
        embedding_dim: int,
        *,
        width: float = 1.0,
        hidden: Sequence[int] = (128, 128),
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        features = row_features(sample_shape, network="mlp")
        check_embedding_dim(embedding_dim)
        sizes = [features, *(scaled(units, width) for units in hidden)]

        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes):
            layers += [*linear_bn_relu(inputs, outputs), nn.Dropout(dropout)]
        self.linear = nn.Linear(features, embedding_dim)
        self.hidden = nn.Sequential(*layers)
        self.output = nn.Linear(sizes[-1], embedding_dim, bias=False) if layers else None
        he_initialise(self)
        if self.output is not None:
            # So training sets out from what a linear discriminant analysis would find, which small tables often favour.
            nn.init.zeros_(self.output.weight)

    def forward(self, rows: Tensor) -> Tensor:
        """Rows (n, features) -> embeddings (n, embedding_dim)."""
        embeddings: Tensor = self.linear(rows)
        return embeddings if self.output is None else embeddings + self.output(self.hidden(rows))
