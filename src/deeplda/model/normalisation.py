"""Inputs brought to mean 0 and deviation 1 on the training part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


class Normalisation(nn.Module):
    """(x - mean) / deviation, for each channel of images or each feature of rows; the training part's figures."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, sample_shape: Sequence[int]) -> None:
        super().__init__()
        shape = (sample_shape[0],) + (1,) * (len(sample_shape) - 1)
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("deviation", torch.ones(shape))

    def forward(self, inputs: Tensor) -> Tensor:
        return (inputs.to(self.mean.dtype) - self.mean) / self.deviation

    def fit(self, inputs: NDArray[np.uint8] | NDArray[np.float32]) -> Normalisation:
        """Take mean and deviation from inputs (n, *sample_shape); a constant channel or feature is only centred."""
        axes = (0, *range(2, inputs.ndim))
        count = inputs.size // inputs.shape[1]
        mean = sum(part.sum(axes, dtype=np.float64) for part in _parts(inputs)) / count
        centre = mean.reshape((-1,) + (1,) * (inputs.ndim - 2))
        squares = sum(np.square(part - centre).sum(axes) for part in _parts(inputs))
        deviation = np.sqrt(squares / count)
        self.mean.copy_(torch.as_tensor(mean).view_as(self.mean))
        self.deviation.copy_(torch.as_tensor(np.where(deviation > 0, deviation, 1.0)).view_as(self.deviation))
        return self


def _parts(inputs: NDArray[np.uint8] | NDArray[np.float32]) -> Iterator[NDArray[np.float64]]:
    """Pieces of about 16 MB, so that float64 copies stay small."""
    step = max(1, 2**21 // max(1, inputs[0].size))
    for start in range(0, len(inputs), step):
        yield inputs[start : start + step].astype(np.float64)
