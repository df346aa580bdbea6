"""The objective in arithmetic of 50 digits, for batches on which float64 references lose all of theirs.

It is written from the definitions, like `oracle`, with mpmath instead of NumPy and SciPy. It is slow, so use batches of
a few dozen samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import mpmath
import numpy as np
from mpmath import mpf
from numpy.typing import NDArray

DIGITS = 50
EPS = mpf(2) ** -52


@dataclass
class Exact:
    """Value, gradient (n, d) and ascending valid eigenvalues of one batch, rounded to float64."""

    value: float
    gradient: NDArray[np.float64]
    eigenvalues: NDArray[np.float64]


def exact_oracle(
    h: NDArray[np.float64],
    y: NDArray[np.int64],
    *,
    alpha: float = 1.0,
    lam: float = 1e-3,
    epsilon: float = 1.0,
    statistic: str = "wilks",
    scatter: str = "pooled",
    class_weight: str | None = None,
    least_ridge: bool = True,
) -> Exact:
    """Compute value, gradient and eigenvalues, with the documented lower bound of the ridge or with lam alone."""
    with mpmath.workdps(DIGITS):
        rows = np.array([[mpf(float(value)) for value in row] for row in h], dtype=object)
        classes, (n, d) = np.unique(y), h.shape
        sizes = {c: int((y == c).sum()) for c in classes}
        means = {c: rows[y == c].sum(0) / sizes[c] for c in classes}
        inner, outer, own = _weights(sizes, n, scatter, class_weight)
        mean = sum(outer[c] * means[c] for c in classes) / sum(outer.values())
        s_w = sum(inner[c] * (rows[y == c] - means[c]).T @ (rows[y == c] - means[c]) for c in classes)
        points = sum(outer[c] * np.outer(means[c] - mean, means[c] - mean) for c in classes)
        s_b = points + sum(own[c] * (rows[y == c] - means[c]).T @ (rows[y == c] - means[c]) for c in classes)
        ridge = np.array([mpf(lam)] * d, dtype=object)
        if least_ridge:
            ridge = _ridge(s_w.diagonal(), points.diagonal(), list(means.values()), lam)
        regularised = alpha * s_w + (1 - mpf(alpha)) * np.diag(s_w.diagonal()) + np.diag(ridge)
        v, e = _eigenvalues(s_b, regularised)
        m = min(d, len(classes) - 1)
        if scatter != "dorfer":
            v, e = v[-m:], e[:, -m:]
        value, slopes = _statistic(v, statistic, epsilon, m)
        at_s_b, at_s_w = -(e * slopes) @ e.T, (e * (slopes * v)) @ e.T
        at_s_w = alpha * at_s_w + (1 - mpf(alpha)) * np.diag(at_s_w.diagonal())
        gradient = np.empty_like(rows)
        for c in classes:
            centred = rows[y == c] - means[c]
            through_mean = outer[c] / sizes[c] * (means[c] - mean) @ at_s_b
            gradient[y == c] = 2 * (centred @ (inner[c] * at_s_w + own[c] * at_s_b) + through_mean)
        return Exact(float(value), gradient.astype(float), v[-m:].astype(float))


def _weights(sizes, n, scatter, class_weight):
    """Compute the weights of each class in S_W, of its mean in S_B, and of its own scatter in S_B."""
    if scatter == "dorfer":
        several = [c for c in sizes if sizes[c] >= 2]
        inner = {c: mpf(sizes[c] >= 2) / max(sizes[c] - 1, 1) / max(len(several), 1) for c in sizes}
        return inner, {c: mpf(sizes[c]) / (n - 1) for c in sizes}, {c: mpf(1) / (n - 1) - inner[c] for c in sizes}
    total = mpf(1) if scatter == "pooled" else mpf(n)
    inner = {c: total / n if class_weight is None else total / len(sizes) / sizes[c] for c in sizes}
    return inner, {c: inner[c] * sizes[c] for c in sizes}, dict.fromkeys(sizes, mpf(0))


def _ridge(variances, spreads, means, lam):
    unit = 16 * len(variances) * EPS
    rounding = [64 * EPS * max(abs(mean[j]) for mean in means) for j in range(len(variances))]
    bounds = [
        max(unit * variance, unit * mpf(1e-4) * spread - variance, r * r - variance)
        for variance, spread, r in zip(variances, spreads, rounding, strict=True)
    ]
    return np.array([max(mpf(lam), bound) or mpf(1) for bound in bounds], dtype=object)


def _eigenvalues(s_b, regularised):
    """Compute the ascending eigenvalues of S_B e = v S'_W e, and e as columns with e' S'_W e = 1."""
    root = mpmath.cholesky(mpmath.matrix(regularised.tolist()), tol=mpf("1e-1000"))
    inverse = root**-1
    values, vectors = mpmath.eigsy(inverse * mpmath.matrix(s_b.tolist()) * inverse.T)
    vectors = inverse.T * vectors
    return np.array(list(values), dtype=object), np.array(vectors.tolist(), dtype=object)


def _statistic(v, statistic, epsilon, m):
    if statistic == "smallest":
        valid = np.arange(len(v)) >= len(v) - m
        chosen = valid & np.array([value <= v[-m] + epsilon for value in v])
        return -v[chosen].mean(), np.array([mpf(int(one)) / int(chosen.sum()) for one in chosen], dtype=object)
    if statistic == "wilks":
        return -sum(mpmath.log(1 + value) for value in v) / m, 1 / (1 + v) / m
    if statistic == "pillai":
        return -(v / (1 + v)).sum() / m, 1 / (1 + v) ** 2 / m
    return -v.sum() / m, np.array([mpf(1) / m for _ in v], dtype=object)
