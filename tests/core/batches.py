"""Labelled batches for the tests."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

STATISTICS = ("smallest", "wilks", "pillai", "hotelling")
SCATTERS = ("pooled", "sum", "dorfer")
# Every combination of statistic, scatter and class_weight that is allowed.
COMBINATIONS = [
    (statistic, scatter, class_weight)
    for statistic in STATISTICS
    for scatter in SCATTERS
    for class_weight in (None, "balanced")
    if scatter != "dorfer" or (statistic in ("smallest", "hotelling") and class_weight is None)
]


def gaussian_batch(
    n: int = 80, d: int = 6, classes: int = 4, *, seed: int = 0, offset: float = 0.0
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draw overlapping Gaussian classes of unequal sizes with correlated dimensions."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), rng.choice(classes, n - classes, p=_uneven(classes))])
    h = rng.normal(size=(n, d)) @ (np.eye(d) + 0.3 * rng.normal(size=(d, d)))
    return h + 2 * rng.normal(size=(classes, d))[y] + offset, y


def simplex_batch(classes: int, d: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Place classes with the same isotropic samples at the corners of a simplex, so that all eigenvalues are equal."""
    corners = np.eye(classes, d) * 4
    spread = np.concatenate([np.eye(d), -np.eye(d)])
    return np.concatenate([corner + spread for corner in corners]), np.repeat(np.arange(classes), 2 * d)


def tensors(h: NDArray[np.float64], y: NDArray[np.int64], dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    return torch.tensor(h, dtype=dtype).requires_grad_(), torch.tensor(y)


def constants(h: NDArray[np.float64], y: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Return the features of `tensors` without a gradient, and the labels."""
    features, labels = tensors(h, y)
    return features.detach(), labels


def relative_error(found: NDArray[np.float64] | Tensor, true: NDArray[np.float64]) -> float:
    """Divide the largest difference by the largest true value."""
    found = found.detach().double().numpy() if isinstance(found, Tensor) else found
    return float(np.abs(found - true).max() / np.abs(true).max())


def _uneven(classes: int) -> NDArray[np.float64]:
    weights = np.linspace(1, 3, classes)
    return weights / weights.sum()
