"""The regularised generalised eigenproblem S_B e = v S'_W e of a batch, in its smallest symmetric form.

With S'_W = L L' and S_B = B' B (B has a row for each class) the eigenvalues are those of the C x C matrix
(B L^-T)(B L^-T)' and, zeros apart, of the d x d matrix (B L^-T)'(B L^-T): the smaller one is built. With alpha = 0,
S'_W is diagonal, L is a vector, and nothing is factorised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from deeplda.core.checks import ClassWeight, Scatter, check_batch, check_regularisation
from deeplda.core.moments import CentredBatch, full_precision, gram
from deeplda.core.statistics import valid_eigenvalues
from deeplda.errors import got

_EPS = torch.finfo(torch.float64).eps
# Where less than this share of a dimension's variance is its own, the rounding of a float32 product is felt.
_SMALLEST_PIVOT = 1e-2
# Variance within classes that are points, as a share of that between them: bounds the eigenvalues by 1e18.
_POINT = 1e-4


def discriminant_eigenvalues(
    features: Tensor,
    labels: Tensor,
    *,
    alpha: float = 1.0,
    lam: float = 1e-3,
    scatter: Scatter = "pooled",
    class_weight: ClassWeight = None,
) -> Tensor:
    """The valid eigenvalues v of S_B e = v S'_W e: the top min(d, C - 1), ascending, float64.

    Each is the ratio of between-class to within-class variance along one discriminant direction.
    Not differentiable: `RDLDALoss` is. Raises ValueError or TypeError for bad options or a bad batch.
    """
    check_regularisation(alpha, lam, scatter, class_weight)
    check_batch(features, labels)
    with full_precision(features):
        problem = DiscriminantProblem.of(CentredBatch.of(features, labels), alpha, lam, scatter, class_weight)
        return valid_eigenvalues(problem.matrix, problem.valid)


class ScatterWeights(NamedTuple):
    """The factors with which the classes enter the scatters, each (C,).

    With W_c the sum of centred outer products of class c, S_W = sum within_c W_c and
    S_B = sum between_c (mu_c - mu)(mu_c - mu)' [+ sum residual_c W_c, in the reading "dorfer"].
    `total` is the sum of `between`; `uniform` the one value of `within` where the classes share it by definition.
    """

    within: Tensor
    between: Tensor
    total: float
    uniform: float | None = None
    residual: Tensor | None = None

    @classmethod
    def of(cls, counts: Tensor, n: int, scatter: Scatter, class_weight: ClassWeight) -> ScatterWeights:
        if scatter == "dorfer":
            several = counts >= 2
            within = several / ((counts - 1).clamp(min=1) * several.sum().clamp(min=1))
            others = max(n - 1, 1)
            return cls(within, counts / others, n / others, residual=1 / others - within)
        total = 1.0 if scatter == "pooled" else float(n)
        if class_weight == "balanced":
            share = total / len(counts)
            return cls(share / counts, torch.full_like(counts, share), total)
        unit = total / n
        return cls(torch.full_like(counts, unit), counts * unit, total, uniform=unit)


@dataclass(frozen=True, slots=True)
class DiscriminantProblem:
    """S_B e = v S'_W e of one batch.

    Attributes:
        matrix: symmetric, (C, C) or (d, d), with the eigenvalues v (and further zeros).
        valid: how many of them count, min(d, C - 1): the largest ones.
        by_class: whether `matrix` is the C x C form.
        root: L of S'_W = L L'; (d,) where S'_W is diagonal, else (d, d) lower triangular.
        between: B, (C, d), the rows sqrt(between_c) (mu_c - mu).
        roots: (C,), sqrt(between_c).
        weights: the factors of the scatters.
        variances: (d,), the diagonal of S_W.
        ridge: what was added to the diagonal of S_W, in the units of the batch's scaled features.
    """

    matrix: Tensor
    valid: int
    by_class: bool
    root: Tensor
    between: Tensor
    roots: Tensor
    weights: ScatterWeights
    variances: Tensor
    ridge: float

    @classmethod
    def of(
        cls, batch: CentredBatch, alpha: float, lam: float, scatter: Scatter, class_weight: ClassWeight
    ) -> DiscriminantProblem:
        n, d, c = batch.shape
        check_classes(batch)
        weights = ScatterWeights.of(batch.counts, n, scatter, class_weight)
        # From the first mean, not from 0: dimensions that are constant then come out as exactly that.
        means = batch.means - batch.means[0]
        roots = weights.between.sqrt()
        between = roots[:, None] * (means - (weights.between @ means) / weights.total)
        root, variances, ridge, exact = _within_root(batch, weights, between, alpha, lam)
        by_class = c < d and weights.residual is None
        if weights.residual is not None:
            s_b = gram(between) + batch.scatter(weights.residual, exact=exact)
            matrix = right_solve(right_solve(s_b, root).T, root)
        else:
            whitened = right_solve(between, root)
            matrix = gram(whitened.T if by_class else whitened)
        return cls(matrix, min(d, c - 1), by_class, root, between, roots, weights, variances, ridge)


def right_solve(rows: Tensor, root: Tensor, *, transpose: bool = True) -> Tensor:
    """rows L^-T, or rows L^-1 without `transpose`; `root` is L, or the diagonal of a diagonal L."""
    if root.ndim == 1:
        return rows / root
    factor = root.T if transpose else root
    solution: Tensor = torch.linalg.solve_triangular(factor, rows, upper=transpose, left=False)
    return solution


def check_classes(batch: CentredBatch) -> None:
    """Raise where the batch has one class alone."""
    n, _, c = batch.shape
    if c < 2:
        raise ValueError(
            got(
                f"all {n} labels are {int(batch.classes[0])}",
                need="at least two classes in a batch",
                do="use larger batches or a stratified sampler",
            )
        )


def regularised_root(within: Tensor, between: Tensor, means: Tensor, alpha: float, lam: float) -> Tensor:
    """L of S'_W = alpha S_W + (1 - alpha) diag(S_W) + lam I from S_W (d, d), B (C, d) and the means (C, d), float64."""
    variances = within.diagonal()
    diagonal = variances + _ridge(variances, between, means, lam)
    if alpha == 0.0:
        return diagonal.sqrt()
    regularised = within * alpha
    regularised.diagonal().copy_(diagonal)
    root: Tensor = torch.linalg.cholesky_ex(regularised)[0]
    return root


def _within_root(
    batch: CentredBatch, weights: ScatterWeights, between: Tensor, alpha: float, lam: float
) -> tuple[Tensor, Tensor, float, bool]:
    """As `regularised_root` of a batch, with the diagonal of S_W, the ridge and whether float64 was needed for it."""
    factors, unit = (weights.within, 1.0) if weights.uniform is None else (None, weights.uniform)
    lam = lam * batch.scale * batch.scale
    if alpha == 0.0:
        variances = batch.variances(factors) * unit
        ridge = _ridge(variances, between, batch.means, lam)
        return (variances + ridge).sqrt(), variances, ridge, False
    for exact in (True,) if batch.rows.dtype == torch.float64 else (False, True):
        within = batch.scatter(factors, exact=exact)
        variances = within.diagonal() * unit
        ridge = _ridge(variances, between, batch.means, lam)
        within.mul_(unit * alpha).diagonal().copy_(variances + ridge)
        root, failed = torch.linalg.cholesky_ex(within)
        if exact or _well_conditioned(root, within, failed):
            break
    return root, variances, ridge, exact


def _well_conditioned(root: Tensor, within: Tensor, failed: Tensor) -> bool:
    """Whether a factorisation L L' of `within` went through with no pivot lost in the rounding of float32.

    A pivot is what is left of a dimension's variance once the dimensions before it are known. Rounding is relative to
    the whole of that variance, so the two are compared; how wide the other dimensions are does not matter.
    """
    return not failed and bool((root.diagonal().square() > _SMALLEST_PIVOT * within.diagonal()).all())


def _ridge(variances: Tensor, between: Tensor, means: Tensor, lam: float) -> float:
    """lam, raised to the least with which float64 can factorise S'_W.

    That is 16 d eps of the largest variance. Where all classes are points S_W says nothing; the variance between
    them and the rounding of the means then give the bound.
    """
    unit = 16 * len(variances) * _EPS
    ridge = max(lam, unit * float(variances.max()))
    if ridge < unit:
        spread = float(between.square().sum(0).max())
        rounding = 64 * _EPS * float(means.abs().max())
        ridge = max(ridge, unit * _POINT * spread, rounding * rounding)
    return ridge or 1.0
