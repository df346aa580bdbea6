"""How far the pooled covariance is shrunk towards a sphere: the options, and the estimate of Ledoit and Wolf.

The formula needs only the covariance S = W / n, the number n of samples and the sum of |z|^4 over the samples z,
centred at their class means. The other estimate, OAS, is in `deeplda.core.oas`.
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
