"""Augmented batches of the training set."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeplda.data.dataset import Labels, Part
from deeplda.data.mapped_rows import MappedRows
from deeplda.data.sparse_rows import SparseRows
from deeplda.sampling import Indices
from deeplda.training.config import LoopConfig
from deeplda.views import reflected

# The first epochs in which no margins are kept are this part of all: a quarter.
_EARLY = 4


class Batch(NamedTuple):
    """Samples for one step: inputs (n, *sample_shape), labels (n,), and their weights (n,) if they have any.

    Attributes:
        places: (n,), positions of the samples in the training set, to keep their margins; None if they are not kept.
    """

    inputs: Tensor
    labels: Tensor
    weights: Tensor | None = None
    places: Tensor | None = None


class BatchSource:
    """The training set on the device; images are stored channels last.

    Images in a file and rows of a sparse matrix stay there, and those of a batch are read when it is cut.

    Flips and shifts are part of the single gather that cuts a batch: they only change which pixels are read and need no
    extra pass. Pixels beyond an edge are reflected at that edge. Flips are either drawn at random for each batch or
    alternate: each image is flipped in every second epoch, and half of the images are flipped in the first.
    """

    def __init__(self, part: Part, device: torch.device, config: LoopConfig) -> None:
        self._images, self._device = part.inputs.ndim == 4, device
        self._inputs: Tensor | MappedRows | SparseRows
        if isinstance(part.inputs, MappedRows | SparseRows):
            self._inputs = part.inputs
        else:
            self._inputs = self._channels_last(part.inputs).contiguous().to(device)
        self.relabel(part.labels)
        self._weights = None if part.weights is None else torch.from_numpy(part.weights).to(device)
        self._flip, self._translate = config.flip and self._images, config.translate if self._images else 0
        # In the first epochs, margins say little about labels.
        self._margins_from = config.epochs // _EARLY
        self._mirrored_first: Tensor | None = None
        if self._flip and config.flip_order == "alternating":
            drawn = np.random.default_rng(config.seed).random(len(part)) < 0.5
            self._mirrored_first = torch.from_numpy(drawn).to(device)

    def relabel(self, labels: Labels) -> None:
        """Replace the labels of the training set."""
        self._labels = torch.from_numpy(labels).to(self._device)

    def batch(self, indices: Indices, epoch: int) -> Batch:
        """Return samples, with inputs in their stored dtype and images in channels_last format.

        Args:
            indices: positions of the samples in the training set.
            epoch: the epoch, counted from 0; alternating flips depend on it.
        """
        samples = torch.from_numpy(indices).to(self._device)
        places = samples if epoch >= self._margins_from else None
        labels = self._labels.index_select(0, samples)
        weights = None if self._weights is None else self._weights.index_select(0, samples)
        inputs, at = self._inputs, samples
        if not isinstance(inputs, Tensor):
            inputs, at = self._channels_last(inputs[indices]).to(self._device), torch.arange(len(at), device=at.device)
        if not self._images:
            return Batch(inputs.index_select(0, at), labels, weights, places)
        pixels = self._augmented(inputs, at, samples, epoch) if self._flip or self._translate else inputs[at]
        return Batch(pixels.permute(0, 3, 1, 2), labels, weights, places)

    def _channels_last(self, inputs: NDArray[Any]) -> Tensor:
        """Return samples as a tensor, and images as a view with the channels last."""
        tensor = torch.from_numpy(np.require(inputs, requirements=["C", "W"]))
        return tensor.permute(0, 2, 3, 1) if self._images else tensor

    def _augmented(self, inputs: Tensor, at: Tensor, samples: Tensor, epoch: int) -> Tensor:
        """Return the images at the places `at` of `inputs`, which are these samples of the training set."""
        _, height, width, _ = inputs.shape
        rows = self._shifted(height, len(at))
        columns = self._shifted(width, len(at))
        if self._flip:
            columns = torch.where(self._is_mirrored(samples, epoch)[:, None], columns.flip(1), columns)
        return inputs[at[:, None, None], rows[:, :, None], columns[:, None, :]]

    def _is_mirrored(self, samples: Tensor, epoch: int) -> Tensor:
        if self._mirrored_first is None:
            return torch.rand(len(samples), device=samples.device) < 0.5
        return self._mirrored_first[samples] ^ (epoch % 2 == 1)

    def _shifted(self, size: int, n: int) -> Tensor:
        """Return, for each of n samples, the positions 0..size-1 shifted at random and reflected at the edges."""
        positions = torch.arange(size, device=self._device).expand(n, size)
        if not self._translate:
            return positions
        shift = torch.randint(-self._translate, self._translate + 1, (n, 1), device=positions.device)
        return reflected(positions + shift, size)
