"""What a batch looked like to the loss, worked out when somebody asks."""

from __future__ import annotations

import torch
from torch import Tensor

from deeplda.objective.statistics import selected_count, valid_eigenvalues


class Diagnostics:
    """Figures of the last batch. Until one is read this holds a few small detached tensors and computes nothing."""

    def __init__(
        self, *, matrix: Tensor, valid: int, epsilon: float | None, counts: Tensor, means: Tensor, variances: Tensor
    ) -> None:
        self._matrix, self._valid, self._epsilon = matrix, valid, epsilon
        self._counts, self._means, self._variances = counts, means, variances

    @property
    def eigenvalues(self) -> Tensor:
        """The valid eigenvalues, ascending, (min(d, C - 1),) float64."""
        return valid_eigenvalues(self._matrix, self._valid)

    @property
    def selected(self) -> int:
        """How many eigenvalues the loss is made of: for "smallest" those below its threshold, else the valid ones."""
        return self._valid if self._epsilon is None else selected_count(self.eigenvalues, self._epsilon)

    @property
    def classes(self) -> int:
        """How many classes were present."""
        return len(self._counts)

    @property
    def smallest_class(self) -> int:
        """How many samples the smallest class had."""
        return int(self._counts.min())

    @property
    def dead_dims(self) -> int:
        """How many dimensions had the same value for every sample, but for rounding."""
        rounding = 64 * torch.finfo(torch.float64).eps * self._means.abs().amax(0)
        constant = self._means.amax(0) - self._means.amin(0) <= rounding
        return int((constant & (self._variances.sqrt() <= rounding)).sum())

    def __repr__(self) -> str:
        low, high = self.eigenvalues[[0, -1]].tolist()
        return (
            f"Diagnostics(eigenvalues {low:.4g} to {high:.4g}, selected={self.selected}, classes={self.classes}, "
            f"smallest_class={self.smallest_class}, dead_dims={self.dead_dims})"
        )
