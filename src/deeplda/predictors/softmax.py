"""The predictor of a network trained with cross-entropy."""

import torch
from torch import Tensor

from deeplda.predictors.linear import LinearPredictor


class Softmax(LinearPredictor):
    """The network's own scores: its outputs, or a linear layer on them where there are more or fewer than classes."""

    def set_layer(self, classes: Tensor, weight: Tensor | None, bias: Tensor | None) -> "Softmax":
        """Take over the trained layer, weight (C, d) and bias (C,); None where the outputs are the scores."""
        if weight is None or bias is None:
            weight = torch.eye(len(classes), device=classes.device)
            bias = weight.new_zeros(len(classes))
        self._set(classes, weight.detach().double(), bias.detach().double())
        return self
