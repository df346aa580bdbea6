"""Statistics of the discriminant eigenvalues v, each as a loss to minimise.

Each takes the symmetric matrix K with the eigenvalues v and returns minus the statistic, and a factor F of its
derivative: if the loss is -sum f(v_i), then F F' = f'(K). Only `smallest` solves an eigenproblem.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Literal

import torch
from torch import Tensor

StatisticName = Literal["smallest", "wilks", "pillai", "hotelling"]

_EPS = torch.finfo(torch.float64).eps


def valid_eigenvalues(matrix: Tensor, valid: int) -> Tensor:
    """The `valid` largest eigenvalues of the symmetric `matrix`, ascending."""
    values: Tensor = torch.linalg.eigvalsh(matrix)
    return values[-valid:]


def selected_count(eigenvalues: Tensor, epsilon: float) -> int:
    """How many of the valid eigenvalues (ascending) are within `epsilon` of the smallest."""
    ascending = eigenvalues.tolist()
    return bisect_right(ascending, ascending[0] + epsilon)


def smallest(matrix: Tensor, valid: int, epsilon: float) -> tuple[Tensor, Tensor]:
    """The paper's: minus the mean of the eigenvalues not above the smallest valid one plus epsilon."""
    values, vectors = torch.linalg.eigh(matrix)
    values, vectors = values[-valid:], vectors[:, -valid:]
    k = selected_count(values, epsilon)
    return -values[:k].mean(), vectors[:, :k] / k**0.5


def wilks(matrix: Tensor, valid: int) -> tuple[Tensor, Tensor]:
    """-(1/m) sum log(1 + v) = -(1/m) logdet(I + K)."""
    root = _root_of_unit_plus(matrix)
    inverse = torch.linalg.solve_triangular(root, torch.eye(len(matrix)).to(matrix), upper=False)
    return -2 * root.diagonal().log().sum() / valid, inverse.T / valid**0.5


def pillai(matrix: Tensor, valid: int) -> tuple[Tensor, Tensor]:
    """-(1/m) sum v / (1 + v) = -(1/m) tr[(I + K)^-1 K]."""
    inverse = torch.cholesky_inverse(_root_of_unit_plus(matrix))
    return -(inverse * matrix).sum() / valid, inverse / valid**0.5


def hotelling(matrix: Tensor, valid: int) -> tuple[Tensor, Tensor]:
    """-(1/m) sum v = -(1/m) tr K, of all eigenvalues of K: those that are not valid are 0, but with "dorfer"."""
    return -matrix.trace() / valid, torch.eye(len(matrix)).to(matrix) / valid**0.5


def evaluate(statistic: StatisticName, matrix: Tensor, valid: int, epsilon: float) -> tuple[Tensor, Tensor]:
    """Minus the statistic of `matrix` (k, k) with so many valid eigenvalues, and F (k, r) with F F' = f'(matrix)."""
    if statistic == "smallest":
        return smallest(matrix, valid, epsilon)
    return {"wilks": wilks, "pillai": pillai, "hotelling": hotelling}[statistic](matrix, valid)


def _root_of_unit_plus(matrix: Tensor) -> Tensor:
    """The Cholesky factor of I + K. Beyond 1/eps the unit is lost in the rounding of K and is raised to it."""
    total = matrix.clone()
    total.diagonal().add_((16 * len(matrix) * _EPS * matrix.diagonal().max()).clamp(min=1.0))
    root: Tensor = torch.linalg.cholesky_ex(total)[0]
    return root
