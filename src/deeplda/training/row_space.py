"""Training on tables with more features than rows, in the space that the rows span.

Let Q, (d, r), be an orthonormal basis of the space that n rows span, r <= n. The input weights W of an `MLP` act on a
row x of the training set as W Q acts on its coordinates Q'x, and the gradient with respect to W lies in the same space.
So SGD takes the same steps on W Q and r coordinates as on W and d features, and each step costs as much as with r
features.
Afterwards, W Q Q' replaces W. This drops the part of W that is orthogonal to all training rows: a rest of the random
initial weights, which could only add noise to the embeddings of new rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deeplda.data.dataset import Data, Part
from deeplda.model import Model, Normalisation
from deeplda.networks.small import MLP

# Directions with less than this share of the largest squared singular value are rounding errors of float32 rows.
_LEAST_SQUARE = 1e-10


@dataclass(frozen=True)
class RowSpace:
    """The space that the rows of a training set span.

    Attributes:
        basis: Q, (d, r) float32, with orthonormal columns.
    """

    basis: Tensor

    @classmethod
    def of(cls, rows: NDArray[np.float32]) -> RowSpace:
        """Return the space of `rows`, (n, d) with n < d."""
        exact = rows.astype(np.float64)
        squares, vectors = np.linalg.eigh(exact @ exact.T)
        # Standardised rows add up to zero, and some may be equal, so they span fewer than n dimensions.
        kept = squares >= _LEAST_SQUARE * squares[-1]
        basis = exact.T @ (vectors[:, kept] / np.sqrt(squares[kept].clip(min=np.finfo(np.float64).tiny)))
        return cls(torch.from_numpy(basis.astype(np.float32)))

    def coordinates(self, data: Data) -> Data:
        """Return the data with rows (k, r) in place of (k, d), the coordinates of their projections onto the space."""
        train, val, test = (
            Part(part.inputs @ self.basis.numpy(), part.labels) for part in (data.train, data.val, data.test)
        )
        return replace(data, train=train, val=val, test=test)

    def restrict(self, network: MLP) -> MLP:
        """Change a network for rows of d features to one for coordinates, which has the same outputs in the space."""
        _multiply_inputs(network, self.basis)
        return network

    def extend(self, model: Model) -> None:
        """Undo `restrict` for the network of a model. The model's normalisation becomes the identity."""
        assert isinstance(model.network, MLP)
        _multiply_inputs(model.network, self.basis.T)
        shape = (len(self.basis),)
        model.card = model.card.model_copy(update={"sample_shape": shape})
        model.normalisation = Normalisation(shape)


def _multiply_inputs(network: MLP, matrix: Tensor) -> None:
    """Replace the weights W of the input layers by W `matrix`."""
    for layer in network.input_layers:
        weight = layer.weight.detach()
        layer.weight = nn.Parameter(weight @ matrix.to(weight))
        layer.in_features = matrix.shape[1]
