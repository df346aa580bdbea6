"""Oracle approximating shrinkage (OAS): how far a covariance is shrunk towards a sphere, from moments alone."""

from __future__ import annotations

from torch import Tensor


def oas_shrinkage(covariance: Tensor, n: float) -> float:
    """Return the coefficient of Chen, Wiesel, Eldar and Hero (2010), as `sklearn.covariance.oas` computes it.

    `covariance` is S, (d, d), of `n` samples.
    """
    d, mean = len(covariance), float(covariance.diagonal().mean())
    if d == 1 or mean == 0:
        return 0.0 if d == 1 else 1.0
    # In units of the mean variance, no square overflows.
    squared = float((covariance / mean).square().mean())
    spread = (n + 1) * (squared - 1 / d)
    return 1.0 if spread == 0 else min((squared + 1) / spread, 1.0)
