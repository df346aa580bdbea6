"""Training on fewer samples than features, in the space that the samples span.

Let Z (n, d) be the standardised samples, with n < d. The weights W of a layer that reads samples get gradients that are
combinations of the rows of Z, and on the rows themselves, only the part of W in the space that they span has an effect.
So training loses nothing if W is restricted to that space, whose dimension is r <= n: it runs on r coordinates instead
of d features. The coordinates are scaled so that their mean square is 1, like that of standardised features; thereby
learning rate and initial weights suit them.

After training, the layers get weights for all d features, which compute the same outputs. The finished network is like
one that was trained on all features, except that its weights have no part outside the space: there, the training
samples say nothing, and random initial weights would only add noise to the embeddings of new samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from deeplda.data.dataset import Inputs
from deeplda.estimator_inputs import Standardisation
from deeplda.model import Model
from deeplda.networks.small import MLP

# Directions with a smaller share of the largest squared singular value are rounding errors.
_LEAST_SQUARE = 1e-10
_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class RowSpace:
    """The space that the standardised training samples Z (n, d) span.

    Attributes:
        inputs: the training samples, as they are.
        standardisation: the map from these to Z.
        mixing: M (n, r). The coordinates of a standardised sample z are z Z' M.
        own: Z Z' M (n, r) float64, the coordinates of the training samples.
    """

    inputs: Inputs
    standardisation: Standardisation
    mixing: NDArray[np.float64]
    own: NDArray[Any]

    @classmethod
    def of(cls, inputs: Inputs, standardisation: Standardisation) -> RowSpace:
        """Return the space of samples (n, d). It depends on no label.

        With the eigenvectors U and eigenvalues s of Z Z', the columns of Z' U / sqrt(s) are orthonormal.
        """
        gram = standardisation.products(inputs, inputs)
        squares, vectors = np.linalg.eigh(gram)
        # Standardised samples add up to zero, and some may be equal, so they span fewer than n dimensions.
        kept = squares >= _LEAST_SQUARE * squares[-1]
        mean_square = squares[kept].mean() / len(squares)
        mixing = vectors[:, kept] / np.sqrt((squares[kept] * mean_square).clip(min=_TINY))
        return cls(inputs, standardisation, mixing, gram @ mixing)

    def coordinates(self, inputs: Inputs) -> NDArray[np.float64]:
        """Return the coordinates (k, r) of samples (k, d), projected onto the space."""
        coordinates: NDArray[np.float64] = self.standardisation.products(inputs, self.inputs) @ self.mixing
        return coordinates

    def extended(self, model: Model) -> Model:
        """Return the model of coordinates as a model of samples, in float64.

        It has the same predictors, and the same network with new weights: W (k, r) on coordinates become W M' Z (k, d)
        on standardised samples.
        """
        assert isinstance(model.network, MLP)
        features = self.inputs.shape[1]
        for layer in model.network.input_layers:
            wide = self.standardisation.combined(layer.weight.detach().double().numpy() @ self.mixing.T, self.inputs)
            layer.weight, layer.in_features = nn.Parameter(torch.from_numpy(wide)), features
        whole = Model(model.card.model_copy(update={"sample_shape": (features,)}), model.network).double()
        whole.predictors = model.predictors
        whole.normalisation.set(self.standardisation.mean, self.standardisation.scale)
        return whole


def spans_fewer_dimensions(inputs: Inputs | NDArray[Any]) -> bool:
    """Return whether samples (n, d) are trained in the space that they span.

    Above 5,000 samples, the eigenvectors would take longer than they save.
    """
    samples, features = inputs.shape
    return samples < min(features, 5_000)
