"""Cross-entropy of a batch that several processes share."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from deeplda.training.world import World


class SharedCrossEntropy(nn.Module):
    """The weighted mean over the whole batch, whatever the parts: parts of unequal size would not average to it.

    The value is the whole batch's; the gradient at a process's own outputs is the whole batch's times the number of
    processes, as `DistributedDataParallel` averages over them.
    """

    weights: Tensor

    def __init__(self, weights: Tensor, label_smoothing: float, world: World) -> None:
        super().__init__()
        self.register_buffer("weights", weights)
        self.label_smoothing, self.world = label_smoothing, world

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        own = nn.functional.cross_entropy(
            outputs, labels, self.weights, reduction="sum", label_smoothing=self.label_smoothing
        )
        figures = torch.stack([own.detach(), self.weights[labels].sum()]).double().cpu().numpy()
        total, weight = self.world.total(figures)
        scaled: Tensor = own * (self.world.size / float(weight))
        # The value is that of all processes, the gradient stays that of our own part.
        return scaled + (float(total / weight) - scaled.detach())
