"""The objective, reimplemented from the paper with NumPy and SciPy in float64, without using the library.

Scatters are sums over single samples, eigenvalues come from SciPy's generalised `eigh`, and the gradient is the
paper's formula with SciPy's eigenvectors, sample by sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Array = NDArray[np.float64]
# Maps the ascending valid eigenvalues (m,) to the value of a statistic and its derivatives (m,).
UserStatistic = Callable[[Array], tuple[float, Array]]


@dataclass
class Oracle:
    """Value, gradient and eigenvalues of one batch."""

    value: float
    gradient: Array
    eigenvalues: Array


def scatters(h: Array, y: NDArray[np.int64], scatter: str, class_weight: str | None) -> tuple[Array, Array]:
    """Compute S_W and S_B by their definitions, in loops over the classes."""
    n, d = h.shape
    classes = np.unique(y)
    if scatter == "dorfer":
        covariances = [np.cov(h[y == c], rowvar=False).reshape(d, d) for c in classes if (y == c).sum() >= 2]
        s_w = np.mean(covariances, axis=0) if covariances else np.zeros((d, d))
        return s_w, np.cov(h, rowvar=False).reshape(d, d) - s_w
    weight = {c: n / (len(classes) * (y == c).sum()) if class_weight == "balanced" else 1.0 for c in classes}
    mu = sum(weight[c] * h[y == c].sum(0) for c in classes) / n
    s_w, s_b = np.zeros((d, d)), np.zeros((d, d))
    for c in classes:
        rows = h[y == c]
        centred = rows - rows.mean(0)
        s_w += weight[c] * centred.T @ centred
        s_b += weight[c] * len(rows) * np.outer(rows.mean(0) - mu, rows.mean(0) - mu)
    return (s_w, s_b) if scatter == "sum" else (s_w / n, s_b / n)


def regularised(s_w: Array, alpha: float, lam: float) -> Array:
    """Compute S'_W, with the documented lower bound of the ridge in each dimension."""
    variances = s_w.diagonal()
    ridge = np.maximum(lam, 16 * len(s_w) * np.finfo(float).eps * variances)
    return alpha * s_w + (1 - alpha) * np.diag(variances) + np.diag(ridge)


def statistic_of(v: Array, statistic: str | UserStatistic, epsilon: float, m: int) -> tuple[float, Array]:
    """Compute the loss and -d loss / d v for all eigenvalues v (ascending)."""
    if callable(statistic):
        value, slopes = statistic(v[-m:])
        return -value, np.concatenate([np.zeros(len(v) - m), slopes])
    if statistic == "smallest":
        valid = np.zeros(len(v), dtype=bool)
        valid[-m:] = True
        chosen = valid & (v <= v[-m] + epsilon)
        return -v[chosen].mean(), chosen / chosen.sum()
    if statistic == "wilks":
        return -np.log1p(v).sum() / m, 1 / (1 + v) / m
    if statistic == "pillai":
        return -(v / (1 + v)).sum() / m, 1 / (1 + v) ** 2 / m
    return -v.sum() / m, np.ones_like(v) / m


def oracle(
    h: Array,
    y: NDArray[np.int64],
    *,
    alpha: float = 1.0,
    lam: float = 1e-3,
    epsilon: float = 1.0,
    statistic: str | UserStatistic = "wilks",
    scatter: str = "pooled",
    class_weight: str | None = None,
) -> Oracle:
    """Compute value, gradient and eigenvalues of a batch, slowly and literally."""
    h = np.asarray(h, dtype=np.float64)
    d, c = h.shape[1], len(np.unique(y))
    m = min(d, c - 1)
    s_w, s_b = scatters(h, y, scatter, class_weight)
    v, e = scipy.linalg.eigh(s_b, regularised(s_w, alpha, lam))
    if scatter != "dorfer":
        # Apart from rounding, the others are zero and contribute nothing to the gradient.
        v, e = v[-m:], e[:, -m:]
    value, slope = statistic_of(v, statistic, epsilon, m)
    # d loss = -sum slope_i e_i' (dS_B - v_i dS'_W) e_i
    at_s_b = -(e * slope) @ e.T
    at_s_w_prime = (e * (slope * v)) @ e.T
    at_s_w = alpha * at_s_w_prime + (1 - alpha) * np.diag(np.diag(at_s_w_prime))
    return Oracle(value, _pull_back(h, y, at_s_w, at_s_b, scatter, class_weight), v[-m:])


def _pull_back(
    h: Array, y: NDArray[np.int64], at_s_w: Array, at_s_b: Array, scatter: str, class_weight: str | None
) -> Array:
    """Compute the gradient at the samples from the gradients at the two scatters."""
    n, classes = len(h), np.unique(y)
    gradient = np.zeros_like(h)
    if scatter == "dorfer":
        at_s_w, at_s_t = at_s_w - at_s_b, at_s_b
        several = [c for c in classes if (y == c).sum() >= 2]
        for c in several:
            rows = h[y == c]
            gradient[y == c] = 2 * (rows - rows.mean(0)) @ at_s_w / (len(rows) - 1) / len(several)
        return gradient + 2 * (h - h.mean(0)) @ at_s_t / (n - 1)
    weight = {c: n / (len(classes) * (y == c).sum()) if class_weight == "balanced" else 1.0 for c in classes}
    mu = sum(weight[c] * h[y == c].sum(0) for c in classes) / n
    for c in classes:
        rows = h[y == c]
        mean = rows.mean(0)
        gradient[y == c] = 2 * weight[c] * ((rows - mean) @ at_s_w + (mean - mu) @ at_s_b)
    return gradient if scatter == "sum" else gradient / n
