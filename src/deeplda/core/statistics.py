"""Statistics of the discriminant eigenvalues v, each as a loss to minimise.

To add one, write a function like `wilks`, list it in _STATISTICS and, unless it is linear, in _FUNCTIONS, and add its
name to `StatisticName` in core/options.py.

Each function takes the symmetric matrix K with the eigenvalues v and returns minus the statistic, together with a
factor F of its derivative: the derivative of the statistic at K is a number times F'F, or F' diag(signs) F for a user's
function, whose derivative need not be positive. Only `smallest` and `user_defined` solve an eigenproblem.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from deeplda.core.options import Statistic
from deeplda.core.transforms import to_list, transforms_active
from deeplda.errors import got

# If K has larger entries than this, an SVD replaces its decomposition: its small eigenvalues have an absolute error of
# eps times the largest one. Wilks' statistic, which needs no eigenproblem, feels it least and gains most from waiting.
LARGE, _WILKS_LARGE = 1e5, 1e8
# Identity matrices up to this size are kept for the next batch, because small batches are bound by calls.
_KEPT_SIZE = 64


class Evaluation(NamedTuple):
    """Minus a statistic of a symmetric matrix K (k, k), and the derivative of the statistic at K.

    Attributes:
        loss: 0-d, minus the statistic.
        factor: F, (r, k).
        weight: a number, so that the derivative is weight F'F.
        signs: (r,), so that the derivative is weight F' diag(signs) F; None if all are 1.
        eigenvalues, product: (r,) and (r, s), so that F K = diag(eigenvalues) F and F P = product for K = P P'; None
            unless K is so large that these products would lose digits.
    """

    loss: Tensor
    factor: Tensor
    weight: float = 1.0
    signs: Tensor | None = None
    eigenvalues: Tensor | None = None
    product: Tensor | None = None


def evaluate(
    statistic: Statistic, matrix: Tensor, valid: int, epsilon: float, factor: Tensor | None = None
) -> Evaluation:
    """Evaluate a statistic, a name or a callable, of the `valid` largest eigenvalues of `matrix` (k, k).

    If `factor` P (k, r) with `matrix` = P P' is passed and K is so large that the product has lost the digits of small
    eigenvalues, the eigenvalues are computed from the singular values of P instead, which keep twice as many digits.
    """
    if factor is not None and _is_large(matrix, largest_precise(statistic)):
        function = statistic if callable(statistic) else (lambda values: _FUNCTIONS[statistic](values, epsilon))
        return _by_singular_values(function, factor, valid)
    if callable(statistic):
        return user_defined(statistic, matrix, valid)
    return _STATISTICS[statistic](matrix, valid, epsilon)


def largest_precise(statistic: Statistic) -> float:
    """Return the largest entry that K may have for `statistic` to be precise without the singular values."""
    # Hotelling's statistic is linear in K, so it has no use for small eigenvalues.
    return torch.inf if statistic == "hotelling" else _WILKS_LARGE if statistic == "wilks" else LARGE


def smallest(matrix: Tensor, valid: int, epsilon: float) -> Evaluation:
    """The paper's statistic: minus the mean of the valid eigenvalues up to the smallest one plus epsilon."""
    values, vectors = torch.linalg.eigh(matrix)
    values, vectors = values[-valid:], vectors[:, -valid:]
    k = selected_count(values, epsilon)
    return Evaluation(-values[:k].mean(), vectors[:, :k].T, 1 / k)


def wilks(matrix: Tensor, valid: int, _epsilon: float) -> Evaluation:
    """Wilks' lambda: -(1/m) sum log(1 + v) = -(1/m) logdet(I + K)."""
    identity = _identity(matrix)
    root = torch.linalg.cholesky_ex(matrix + identity)[0]
    inverse = torch.linalg.solve_triangular(root, identity, upper=False)
    # The dot product multiplies and sums in one call.
    return Evaluation(root.diagonal().log().dot(root.new_full((root.shape[0],), -2 / valid)), inverse, 1 / valid)


def pillai(matrix: Tensor, valid: int, _epsilon: float) -> Evaluation:
    """Pillai's trace: -(1/m) sum v / (1 + v) = -(1/m) tr[(I + K)^-1 K]."""
    inverse = torch.cholesky_inverse(torch.linalg.cholesky_ex(matrix + _identity(matrix))[0])
    # Rounding could take the value below -1, which no eigenvalues have.
    return Evaluation((-(inverse * matrix).sum() / valid).clamp(min=-1.0), inverse, 1 / valid)


def hotelling(matrix: Tensor, valid: int, _epsilon: float) -> Evaluation:
    """Hotelling's trace: -(1/m) sum v = -(1/m) tr K.

    The trace adds up all eigenvalues of K. Those that are not valid are 0, except with scatter="dorfer".
    """
    return Evaluation(-matrix.trace() / valid, _identity(matrix), 1 / valid)


_STATISTICS = {"smallest": smallest, "wilks": wilks, "pillai": pillai, "hotelling": hotelling}


# The same statistics, to be maximised, as functions of the eigenvalues and epsilon.
_FUNCTIONS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "smallest": lambda eigenvalues, epsilon: eigenvalues[: selected_count(eigenvalues, epsilon)].mean(),
    "wilks": lambda eigenvalues, _: eigenvalues.log1p().mean(),
    # v / (1 + v), whose derivative would cancel for large v in this form.
    "pillai": lambda eigenvalues, _: (1 - 1 / (1 + eigenvalues)).mean(),
}


def user_defined(statistic: Callable[[Tensor], Tensor], matrix: Tensor, valid: int) -> Evaluation:
    """Evaluate a user's function f of the ascending valid eigenvalues; autograd computes its derivative.

    With g_i = df / dv_i and the eigenvectors u_i, the derivative at K is sum g_i u_i u_i'. The eigenvectors themselves
    are not differentiated. Raises TypeError or ValueError unless f returns a finite 0-d tensor with finite derivatives.
    """
    values, vectors = torch.linalg.eigh(matrix)
    loss, slopes = _loss_and_slopes(statistic, values[-valid:])
    return Evaluation(loss, (vectors[:, -valid:] * slopes.abs().sqrt()).T, signs=slopes.sign())


def _by_singular_values(statistic: Callable[[Tensor], Tensor], factor: Tensor, valid: int) -> Evaluation:
    """Evaluate a function of the eigenvalues of P P', given P (k, s) with k <= s."""
    left, roots, right = torch.linalg.svd(factor, full_matrices=False)
    left, roots, right = left[:, :valid].flip(1), roots[:valid].flip(0), right[:valid].flip(0)
    values = roots.square()
    loss, slopes = _loss_and_slopes(statistic, values)
    weights = slopes.abs().sqrt()
    product = (weights * roots)[:, None] * right
    return Evaluation(loss, (left * weights).T, signs=slopes.sign(), eigenvalues=values, product=product)


def _loss_and_slopes(statistic: Callable[[Tensor], Tensor], values: Tensor) -> tuple[Tensor, Tensor]:
    """Return minus a function of ascending eigenvalues (m,), and the derivatives of the function (m,)."""
    # The caller may be in inference mode, whose tensors autograd rejects.
    with torch.inference_mode(False), torch.enable_grad():
        if transforms_active():  # in which requires_grad_() is not allowed
            result = statistic(values)
            _check_result(result, values)
            slopes = torch.func.grad(statistic)(values)
        else:
            eigenvalues = values.clone().requires_grad_()
            result = statistic(eigenvalues)
            _check_result(result, values)
            slopes = _slopes(result, eigenvalues)
    _check_slopes(slopes, values)
    return -result.detach().to(values), slopes


def valid_eigenvalues(matrix: Tensor, valid: int, factor: Tensor | None = None) -> Tensor:
    """Return the `valid` largest eigenvalues of the symmetric `matrix`, ascending; `factor` is as in `evaluate`."""
    values: Tensor
    if factor is not None and _is_large(matrix, LARGE):
        values = torch.linalg.svdvals(factor).square().flip(0)
    else:
        values = torch.linalg.eigvalsh(matrix)
    return values[-valid:]


def selected_count(eigenvalues: Tensor, epsilon: float) -> int:
    """Return the number of eigenvalues, which are ascending, that are within `epsilon` of the smallest."""
    ascending = to_list(eigenvalues)
    return bisect_right(ascending, ascending[0] + epsilon)


def _is_large(matrix: Tensor, limit: float) -> bool:
    largest: float = max(to_list(matrix.diagonal()))
    return largest > limit


def _identity(matrix: Tensor) -> Tensor:
    """Return the identity matrix with the size, dtype and device of `matrix`. It must not be changed."""
    size = matrix.shape[0]
    if size <= _KEPT_SIZE and not transforms_active():
        return _kept_identity(size, matrix.dtype, matrix.device)
    return _new_identity(size, matrix.dtype, matrix.device)


def _new_identity(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    # Outside of inference mode, so that a kept one can be used everywhere.
    with torch.inference_mode(False):
        return torch.eye(size, dtype=dtype, device=device)


_kept_identity = lru_cache(maxsize=16)(_new_identity)


def _check_result(result: object, eigenvalues: Tensor) -> None:
    if not isinstance(result, Tensor):
        raise TypeError(
            got(
                f"statistic returned an object of type {type(result).__name__}",
                need="a 0-d tensor",
                do="compute it from the eigenvalues with PyTorch operations",
            )
        )
    if result.ndim != 0 or not result.is_floating_point():
        raise ValueError(
            got(
                f"statistic returned a tensor of shape {tuple(result.shape)} and dtype {result.dtype}",
                need="a 0-d floating-point tensor",
                do="reduce the eigenvalues to one number, for example with mean()",
            )
        )
    if not result.isfinite():
        raise ValueError(
            got(
                f"statistic returned {result.item()} for the eigenvalues {_range_of(eigenvalues)}",
                need="a finite number",
                do="use a function that is defined for all eigenvalues of a batch",
            )
        )


def _slopes(result: Tensor, eigenvalues: Tensor) -> Tensor:
    """Return the derivatives of `result` at `eigenvalues` (m,)."""
    slopes = torch.autograd.grad(result, eigenvalues, allow_unused=True)[0] if result.requires_grad else None
    if slopes is None:
        raise ValueError(
            got(
                "statistic returned a tensor without a gradient at the eigenvalues",
                need="a differentiable function of them",
                do="compute it with PyTorch operations, without detach(), item() or NumPy",
            )
        )
    return slopes


def _check_slopes(slopes: Tensor, eigenvalues: Tensor) -> None:
    if not slopes.isfinite().all():
        raise ValueError(
            got(
                f"statistic has derivatives of {_range_of(slopes)} at the eigenvalues {_range_of(eigenvalues)}",
                need="finite derivatives",
                do="use a function that is differentiable there",
            )
        )


def _range_of(values: Tensor) -> str:
    return f"{values.min().item():.4g} to {values.max().item():.4g}"
