"""The margins of the training samples' labels, added up over the epochs of a training."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeplda.training.parallel import World


class MarginSums:
    """How well the label of each training sample fitted, summed up over epochs: a sum and a count for each sample.

    The margins come from the outputs of the training batches, so they cost no extra pass. A sample whose label is wrong
    has low margins until the network has memorised it, so all epochs count, except the first quarter, which knows
    little.

    If a batch is split among processes, each one adds the margins of its own samples, and `gather` adds them up in the
    first process after every epoch.
    """

    def __init__(self, samples: int) -> None:
        self._sums, self._counts = torch.zeros(samples), torch.zeros(samples, dtype=torch.int32)

    def add(self, places: Tensor, margins: Tensor) -> None:
        """Add the margins (n,) of the training samples at `places` (n,); NaN is left out."""
        known = margins.isfinite()
        at = places[known].cpu()
        self._sums[at] += margins[known].float().cpu()
        self._counts[at] += 1

    def means(self) -> NDArray[np.float32]:
        """Return the mean margin of each training sample (n,), NaN for a sample without margins."""
        return torch.where(self._counts > 0, self._sums / self._counts, torch.nan).numpy()

    def gather(self, world: World) -> None:
        """Move the margins of all processes to the first one."""
        if world.size == 1:
            return
        for mine in (self._sums, self._counts):
            total = torch.from_numpy(world.total(mine.numpy()))
            mine.copy_(total if world.first else torch.zeros_like(mine))

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that a checkpoint stores."""
        return {"sums": self._sums, "counts": self._counts}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Replace all sums and counts by those of a checkpoint."""
        self._sums.copy_(state["sums"])
        self._counts.copy_(state["counts"])
