"""The training part as a tensor, and batches cut from it, augmented."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from deeplda.data import Part
from deeplda.sampling import Indices


class BatchSource:
    """Inputs and labels of the training part on the device, images stored channels last.

    Flip and translation are part of the one gather that cuts a batch: they change which pixel is read, and cost no
    pass of their own. A pixel beyond the edge is the one mirrored at it. Flips are drawn anew for each batch, or
    alternate: each image is mirrored in every second epoch, half of them in the first.
    """

    def __init__(
        self,
        part: Part,
        device: torch.device,
        *,
        flip: bool = False,
        flip_order: Literal["random", "alternating"] = "random",
        translate: int = 0,
        seed: int = 0,
    ) -> None:
        inputs = torch.from_numpy(np.ascontiguousarray(part.inputs))
        self.images = inputs.ndim == 4
        self.inputs = (inputs.permute(0, 2, 3, 1).contiguous() if self.images else inputs).to(device)
        self.labels = torch.from_numpy(part.labels).to(device)
        self.flip, self.translate = flip and self.images, translate if self.images else 0
        self.mirrored_first: Tensor | None = None
        if self.flip and flip_order == "alternating":
            drawn = np.random.default_rng(seed).random(len(part)) < 0.5
            self.mirrored_first = torch.from_numpy(drawn).to(device)

    def batch(self, places: Indices, epoch: int) -> tuple[Tensor, Tensor]:
        """Inputs (n, *sample_shape) as stored, images in channels_last memory, and labels (n,).

        Args:
            places: of the samples in the training part.
            epoch: counted from 0; it decides on alternating flips.
        """
        at = torch.from_numpy(places).to(self.inputs.device)
        labels = self.labels[at]
        if not self.images:
            return self.inputs[at], labels
        pixels = self._gather(at, epoch) if self.flip or self.translate else self.inputs[at]
        return pixels.permute(0, 3, 1, 2), labels

    def _gather(self, at: Tensor, epoch: int) -> Tensor:
        _, height, width, _ = self.inputs.shape
        rows = self._moved(height, len(at))
        columns = self._moved(width, len(at))
        if self.flip:
            columns = torch.where(self._mirrored(at, epoch)[:, None], columns.flip(1), columns)
        return self.inputs[at[:, None, None], rows[:, :, None], columns[:, None, :]]

    def _mirrored(self, at: Tensor, epoch: int) -> Tensor:
        if self.mirrored_first is None:
            return torch.rand(len(at), device=at.device) < 0.5
        return self.mirrored_first[at] ^ (epoch % 2 == 1)

    def _moved(self, size: int, n: int) -> Tensor:
        """For each sample the places 0..size-1 moved by its own random step, mirrored at the edges, (n, size)."""
        places = torch.arange(size, device=self.inputs.device).expand(n, size)
        if not self.translate:
            return places
        step = torch.randint(-self.translate, self.translate + 1, (n, 1), device=places.device)
        moved = (places + step).abs()
        return torch.where(moved >= size, 2 * (size - 1) - moved, moved).clamp(0, size - 1)
