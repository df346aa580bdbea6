"""The normalisation of samples before they enter a network."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from deeplda.data.dataset import Inputs
from deeplda.errors import InputError


class Normalisation(nn.Module):
    """Normalise each image channel or feature to (x - mean) / deviation; the identity until fitted.

    Buffers: mean and deviation, (channels, 1, 1) or (features,).
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, sample_shape: Sequence[int]) -> None:
        super().__init__()
        shape = (sample_shape[0],) + (1,) * (len(sample_shape) - 1)
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("deviation", torch.ones(shape))

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise inputs (n, *sample_shape)."""
        return (inputs.to(self.mean.dtype) - self.mean) / self.deviation

    def prepare(self, inputs: Tensor) -> Tensor:
        """Normalise inputs for a network; images get channels_last memory, which makes convolutions faster."""
        normalised = self.forward(inputs)
        return normalised.contiguous(memory_format=torch.channels_last) if normalised.ndim == 4 else normalised

    def fit(self, inputs: Inputs) -> Normalisation:
        """Compute mean and deviation of inputs (n, *sample_shape); constant channels or features are only centred."""
        if inputs.dtype == np.uint8:
            return self.fit_sums(byte_sums(inputs))
        axes = (0, *range(2, inputs.ndim))
        count = math.prod(inputs.shape) // inputs.shape[1]
        mean = sum(part.sum(axes, dtype=np.float64) for part in _parts(inputs)) / count
        centre = mean.reshape((-1,) + (1,) * (inputs.ndim - 2))
        squares = sum(np.square(part - centre).sum(axes) for part in _parts(inputs))
        return self.fit_moments(mean, np.sqrt(squares / count))

    def fit_sums(self, sums: NDArray[np.int64]) -> Normalisation:
        """Compute mean and deviation from `byte_sums`, which may be added up over parts of the inputs."""
        # With Python's integers, there is no rounding before the last step, whatever the number of samples.
        moments = [(int(n), int(first), int(second)) for n, first, second in sums.T]
        mean = np.array([first / n for n, first, _ in moments])
        variance = np.array([(n * second - first**2) / n**2 for n, first, second in moments])
        return self.fit_moments(mean, np.sqrt(variance))

    def fit_moments(self, mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> Normalisation:
        """Set the mean and deviation of the inputs, as they were computed elsewhere; a deviation of 0 becomes 1."""
        self.mean.copy_(torch.as_tensor(mean).view_as(self.mean))
        self.deviation.copy_(torch.as_tensor(np.where(deviation > 0, deviation, 1.0)).view_as(self.deviation))
        return self

    def set(self, mean: ArrayLike | Tensor | None, deviation: ArrayLike | Tensor | None) -> None:
        """Set mean and deviation, each to one number or one per channel or feature; None leaves a value unchanged.

        Raises InputError if the number of values is wrong, a value is not finite, or a deviation is not positive.
        """
        for name, given, buffer in (("mean", mean, self.mean), ("deviation", deviation, self.deviation)):
            if given is None:
                continue
            values = torch.as_tensor(given, dtype=torch.float64).flatten()
            if len(values) not in (1, len(buffer)):
                needed = f"1 or {len(buffer)}, one for each channel or feature"
                raise InputError(f"{name} has {len(values)} values, need {needed}")
            if not values.isfinite().all() or (name == "deviation" and not (values > 0).all()):
                raise InputError(f"{name} must be finite{' and > 0' if name == 'deviation' else ''}, got {given}")
            buffer.copy_(values.expand(len(buffer)).view_as(buffer))


def byte_sums(inputs: Inputs) -> NDArray[np.int64]:
    """Return the number, the sum and the sum of squares of the values of each channel or feature, (3, C).

    The inputs are uint8, so all sums are exact integers, and those of several parts can be added up in any order.
    """
    sums = np.zeros((3, inputs.shape[1]), dtype=np.int64)
    for part in _parts(inputs):
        # float64 holds all integers of this size, and NumPy multiplies them faster.
        values = part.reshape(len(part), inputs.shape[1], -1)
        sums[0] += values.shape[0] * values.shape[2]
        sums[1] += values.sum((0, 2)).astype(np.int64)
        sums[2] += np.einsum("ncp,ncp->c", values, values).astype(np.int64)
    return sums


def _parts(inputs: Inputs) -> Iterator[NDArray[np.float64]]:
    """Yield the inputs as float64 in pieces of about 16 MB, so that the copies stay small."""
    step = max(1, 2**21 // max(1, math.prod(inputs.shape[1:])))
    for start in range(0, len(inputs), step):
        yield np.asarray(inputs[start : start + step], dtype=np.float64)
