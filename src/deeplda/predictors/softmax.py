"""The predictor of a network trained with cross-entropy."""

import torch
from torch import Tensor

from deeplda.predictors.linear import LinearPredictor
from deeplda.predictors.statistics import FeatureStatistics


class Softmax(LinearPredictor):
    """The network's own scores: its outputs, or a linear layer on them where there are more or fewer than classes."""

    def set_layer(self, classes: Tensor, weight: Tensor | None, bias: Tensor | None) -> "Softmax":
        """Take over the trained layer, weight (C, d) or None where the outputs are the scores, bias (C,) or None."""
        if weight is None:
            weight = torch.eye(len(classes), device=classes.device)
        if bias is None:
            bias = weight.new_zeros(len(classes))
        self._set(classes, weight.detach().double(), bias.detach().double())
        return self

    def solve(self, statistics: FeatureStatistics) -> tuple[Tensor, Tensor]:  # noqa: ARG002  # its parent has it
        """Raises RuntimeError: its layer is trained with the network, not fitted."""
        raise RuntimeError("softmax is not fitted: its layer is trained with the network, and set by set_layer")
