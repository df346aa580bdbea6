"""How far the pooled covariance is shrunk towards a sphere: scikit-learn's estimates, computed from moments.

Both formulas need only the covariance S = W / n, the number n of samples and, for Ledoit-Wolf, the sum of |z|^4 over
the samples z, centred at their class means.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from torch import Tensor

from deeplda.errors import InputError

Shrinkage = Literal["oas", "ledoit-wolf"]


def check_shrinkage(shrinkage: object) -> None:
    """Raise InputError unless `shrinkage` is None, a number from 0 to 1, or the name of an estimate."""
    if shrinkage is None or (isinstance(shrinkage, str) and shrinkage in get_args(Shrinkage)):
        return
    if isinstance(shrinkage, float | int | np.floating) and not isinstance(shrinkage, bool) and 0 <= shrinkage <= 1:
        return
    names = " or ".join(map(repr, get_args(Shrinkage)))
    raise InputError(f"shrinkage is {shrinkage!r}, need None, a number from 0 to 1, {names}")


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


def ledoit_wolf_shrinkage(covariance: Tensor, n: float, fourth: float) -> float:
    """Return the coefficient of Ledoit and Wolf (2004), as `sklearn.covariance.ledoit_wolf` computes it.

    `covariance` is S, (d, d), of `n` samples, and `fourth` is the sum of |z|^4 over them.
    """
    d, mean = len(covariance), float(covariance.diagonal().mean())
    if d == 1 or mean == 0:
        return 0.0
    # In units of the mean variance, no square overflows.
    squared = float((covariance / mean).square().sum())
    # The squared distance from the sphere, and the variance of S that part of it is due to.
    distance = (squared - d) / d
    noise = min((fourth / mean / mean / n - squared) / (d * n), distance)
    return 0.0 if noise == 0 else noise / distance
