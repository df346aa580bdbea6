"""The regularised generalised eigenproblem S_B e = v S'_W e of a batch, in its smallest symmetric form.

With S'_W = L L' and S_B = B' B, where B has one row per class, the C x C matrix (B L^-T)(B L^-T)' has the same
eigenvalues. Apart from zeros, so does the d x d matrix (B L^-T)'(B L^-T). The smaller of the two is built. With
alpha = 0, S'_W is diagonal, so L is stored as a vector and no factorisation is needed.

If the labels are subclasses and their parents are given, S_W is within the subclasses and S_B between the classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from deeplda.core.moments import CentredBatch, check_batch, full_precision, gram, weighted_samples
from deeplda.core.options import ClassWeight, Scatter, check_regularisation, check_unweighted, checked_parents
from deeplda.core.statistics import LARGE, valid_eigenvalues
from deeplda.errors import got

_EPS = torch.finfo(torch.float64).eps
# If the other dimensions explain more than 99 % of a dimension's variance, float32 rounding of the product matters.
_SMALLEST_PIVOT = 1e-2
# Within-class variance assumed for classes that are single points, relative to the variance between them, in units of
# the smallest ridge. It bounds their eigenvalues by 1e18.
_POINT = 1e-4


def discriminant_eigenvalues(
    features: Tensor,
    labels: Tensor,
    *,
    alpha: float = 1.0,
    lam: float = 1e-3,
    scatter: Scatter = "pooled",
    class_weight: ClassWeight = None,
    parents: Sequence[int] | None = None,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Return the valid eigenvalues v of S_B e = v S'_W e: the top min(d, C - 1), ascending, float64.

    Each is the ratio of between-class to within-class variance along one discriminant direction. The options are the
    same as in `DeepLDALoss`. The result has no gradient, so features that require one are rejected, except in
    `torch.no_grad()`. To maximise a function of the eigenvalues, pass it to `DeepLDALoss` as the statistic.
    Raises ValueError or TypeError if an option or the batch is invalid.
    """
    if getattr(features, "requires_grad", False) and torch.is_grad_enabled():
        raise ValueError(
            got(
                "features is a tensor that requires a gradient",
                need="one that does not, because the eigenvalues have no gradient",
                do="pass features.detach(); to train on f(eigenvalues), use DeepLDALoss(statistic=f)",
            )
        )
    check_regularisation(alpha, lam, scatter, class_weight)
    parents = checked_parents(parents, scatter)
    features, labels, weights = weighted_samples(features, labels, sample_weight)
    check_batch(features, labels, weights)
    with full_precision(features):
        batch = CentredBatch.of(features, labels, weights)
        problem = DiscriminantProblem.of(batch, alpha, lam, scatter, class_weight, parents)
        return valid_eigenvalues(problem.matrix, problem.valid, problem.factor())


class ScatterWeights(NamedTuple):
    """The weights in the scatters.

    If W_c is the sum of the centred outer products of class c, then S_W = unit sum within_c W_c and
    S_B = sum between_c (mu_c - mu)(mu_c - mu)', plus sum residual_c W_c with scatter="dorfer".

    Attributes:
        between: (C,).
        total: the sum of `between`.
        share: between_c / n_c, the weight of one sample in S_B: a number, or (C, 1) if it depends on the class.
        unit: a number.
        within: (C,), or one for each subclass; None if all are 1.
        residual: (C,); None without "dorfer".
    """

    between: Tensor
    total: float
    share: Tensor | float
    unit: float = 1.0
    within: Tensor | None = None
    residual: Tensor | None = None

    @classmethod
    def of(cls, counts: Tensor, n: float, scatter: Scatter, class_weight: ClassWeight) -> ScatterWeights:
        if scatter == "dorfer":
            several = counts >= 2
            within = several / ((counts - 1).clamp(min=1) * several.sum().clamp(min=1))
            others = max(n - 1, 1)
            return cls(counts / others, n / others, 1 / others, within=within, residual=1 / others - within)
        total = 1.0 if scatter == "pooled" else float(n)
        if class_weight == "balanced":
            each = total / len(counts)
            within = each / counts
            return cls(torch.full_like(counts, each), total, within[:, None], within=within)
        if scatter == "sum":
            return cls(counts, total, 1.0)
        return cls(counts / n, total, 1 / n, unit=1 / n)


class ClassMeans(NamedTuple):
    """The classes between which S_B is computed: those of the batch, or the parents of its labels.

    Attributes:
        counts: (C,), the number of samples of each class, or the sum of their weights.
        means: (C, d), the mean of each class.
        parent_of: (S,), the position of the class of each of the batch's S labels; None if labels are classes.
    """

    counts: Tensor
    means: Tensor
    parent_of: Tensor | None

    @classmethod
    def of(cls, batch: CentredBatch, parents: Sequence[int] | None) -> ClassMeans:
        """Compute the means of a batch's classes. Raises ValueError if it has only one, or a label without a parent."""
        if parents is None:
            check_classes(batch.ids, batch.n)
            return cls(batch.counts, batch.means, None)
        if int(batch.ids[-1]) >= len(parents):
            raise ValueError(
                got(
                    f"a label is {int(batch.ids[-1])}, but parents has {len(parents)} entries",
                    need="a class for every label",
                    do="pass the parents that belong to these subclasses",
                )
            )
        owners = torch.tensor(parents, device=batch.counts.device)[batch.classes]
        classes, parent_of = torch.unique(owners, return_inverse=True)
        check_classes(classes, batch.n)
        counts = batch.counts.new_zeros(len(classes)).index_add_(0, parent_of, batch.counts)
        # Differences from the first mean, so that an offset of the features costs no precision.
        sums = (batch.means - batch.means[0]) * batch.counts[:, None]
        totals = sums.new_zeros(len(classes), sums.shape[1]).index_add_(0, parent_of, sums)
        return cls(counts, batch.means[0] + totals / counts[:, None], parent_of)


class DiscriminantProblem(NamedTuple):
    """The eigenproblem S_B e = v S'_W e of one batch.

    Attributes:
        matrix: symmetric, (C, C) or (d, d), with the eigenvalues v and possibly additional zeros.
        valid: the number of valid eigenvalues, min(d, C - 1); they are the largest ones.
        by_class: whether `matrix` is the C x C form.
        root: L of S'_W = L L'; (d,) if S'_W is diagonal, otherwise (d, d) lower triangular.
        deviations: (C, d), mu_c - mu.
        roots: (C, 1), sqrt(between_c).
        whitened: B L^-T, (C, d), with the rows sqrt(between_c) (mu_c - mu) of B; None with scatter="dorfer".
        weights: the weights in the scatters.
        variances: (d,), the diagonal of S_W.
        ridge: the smallest value added to the diagonal of S_W, in units of the batch's scaled features.
        bound: an upper bound of the eigenvalues.
        parent_of: (S,), the position of the class of each label of the batch; None if labels are classes.
    """

    matrix: Tensor
    valid: int
    by_class: bool
    root: Tensor
    deviations: Tensor
    roots: Tensor
    whitened: Tensor | None
    weights: ScatterWeights
    variances: Tensor
    ridge: float
    bound: float
    parent_of: Tensor | None

    @classmethod
    def of(
        cls,
        batch: CentredBatch,
        alpha: float,
        lam: float,
        scatter: Scatter,
        class_weight: ClassWeight,
        parents: Sequence[int] | None = None,
    ) -> DiscriminantProblem:
        classes = ClassMeans.of(batch, parents)
        c, d = classes.means.shape
        if batch.weights is not None:
            check_unweighted(scatter)
        if scatter == "pooled" and class_weight is None:
            # With n lam, the undivided sums have the same eigenvalues, and nothing has to be divided.
            scatter, lam = "sum", lam * batch.total
        weights = ScatterWeights.of(classes.counts, batch.total, scatter, class_weight)
        if weights.within is not None and classes.parent_of is not None:
            weights = weights._replace(within=weights.within[classes.parent_of])
        # Means are relative to the first one, so that constant dimensions give exactly 0.
        means = classes.means - classes.means[0]
        totals = weights.between.unsqueeze(1)
        roots = totals.sqrt()
        deviations = means.sub(totals.t().mm(means), alpha=1 / weights.total)
        between, most_spread = roots * deviations, weights.total * (2 * batch.largest) ** 2
        root, variances, ridge, exact = _within_root(batch, weights, between, alpha, lam, most_spread)
        by_class, whitened = c < d and weights.residual is None, None
        if weights.residual is not None:
            s_b = gram(between) + batch.scatter(weights.residual, exact=exact)
            matrix = right_solve(right_solve(s_b, root).T, root)
        else:
            whitened = right_solve(between, root)
            matrix = gram(whitened.t() if by_class else whitened)
        # The largest eigenvalue of S_B is at most its trace, and the smallest of S'_W at least the ridge.
        bound, valid = d * most_spread / ridge, min(d, c - 1)
        return cls(
            matrix,
            valid,
            by_class,
            root,
            deviations,
            roots,
            whitened,
            weights,
            variances,
            ridge,
            bound,
            classes.parent_of,
        )

    def factor(self, limit: float = LARGE) -> Tensor | None:
        """Return P with `matrix` = P P', (C, d) or (d, C), for `evaluate`; None if no entry can exceed `limit`."""
        if self.whitened is None or self.bound <= limit:
            return None
        return self.whitened if self.by_class else self.whitened.t()


def right_solve(rows: Tensor, root: Tensor, *, transpose: bool = True) -> Tensor:
    """Return rows L^-T, or rows L^-1 without `transpose`; `root` is L, or the diagonal of a diagonal L."""
    if root.ndim == 1:
        return rows / root
    factor = root.t() if transpose else root
    solution: Tensor = torch.linalg.solve_triangular(factor, rows, upper=transpose, left=False)
    return solution


def discriminant_vectors(between: Tensor, root: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest eigenvalues v of S_B e = v S'_W e, ascending, (m,), and eigenvectors as rows, (m, d).

    The arguments are S_B, (d, d), and L of S'_W = L L'. The eigenvectors are scaled to e' S'_W e = 1.
    """
    matrix = right_solve(right_solve(between, root).T, root)
    values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    return values[-count:], right_solve(vectors[:, -count:].T, root, transpose=False)


def check_classes(ids: Tensor | range, n: int) -> None:
    """Raise ValueError if a batch of n samples has only one class, given its class ids (C,)."""
    if len(ids) < 2:
        raise ValueError(
            got(
                f"all {n} samples belong to class {int(ids[0])}",
                need="at least two classes in a batch",
                do="use larger batches or StratifiedBatchSampler",
            )
        )


def regularised_root(within: Tensor, between: Tensor, means: Tensor, alpha: float, lam: float) -> Tensor:
    """Return L with L L' = S'_W = alpha S_W + (1 - alpha) diag(S_W) + lam I.

    L is (d, d) lower triangular, or (d,) if alpha = 0. The arguments are S_W (d, d), B (C, d) and the class means
    (C, d), all float64.
    """
    variances = within.diagonal()
    diagonal = variances + _ridge(variances, between, means, lam)
    if alpha == 0.0:
        return diagonal.sqrt()
    regularised = within * alpha
    regularised.diagonal().copy_(diagonal)
    root: Tensor = torch.linalg.cholesky_ex(regularised)[0]
    return root


def _within_root(
    batch: CentredBatch, weights: ScatterWeights, between: Tensor, alpha: float, lam: float, most_spread: float
) -> tuple[Tensor, Tensor, float, bool]:
    """Return L as in `regularised_root`, the diagonal of S_W, the least ridge, and if the product was in float64."""
    lam = lam * batch.scale * batch.scale
    if alpha == 0.0:
        variances = batch.variances(weights.within)
        ridge = _ridge(variances, between, batch.means, lam, weights.total, most_spread)
        return (variances + ridge).sqrt(), variances, _smallest(ridge), False
    for exact in (True,) if batch.rows.dtype == torch.float64 else (False, True):
        within = batch.scatter(weights.within, exact=exact)
        diagonal = within.diagonal()
        variances = diagonal.clone()
        ridge = _ridge(variances, between, batch.means, lam, weights.total, most_spread)
        if alpha != 1.0:
            within.mul_(alpha)
            diagonal.copy_(variances)
        diagonal.add_(ridge)
        root, failed = torch.linalg.cholesky_ex(within)
        if exact or _well_conditioned(root, within, failed):
            break
    return root, variances, _smallest(ridge), exact


def _well_conditioned(root: Tensor, within: Tensor, failed: Tensor) -> bool:
    """Return whether L L' = `within` was factorised without losing a pivot to float32 rounding.

    A pivot is the part of a dimension's variance that the dimensions before it do not explain. Rounding errors are
    relative to the full variance of the dimension, so the pivot is compared with that; other dimensions do not matter.
    """
    pivots = root.diagonal().square()
    return bool((failed == 0) & (pivots > _SMALLEST_PIVOT * within.diagonal()).all())


def _ridge(
    variances: Tensor, between: Tensor, means: Tensor, lam: float, total: float = 1.0, most_spread: float = torch.inf
) -> Tensor | float:
    """Return lam, or (d,) if it is too small in some dimensions to factorise S'_W in float64 and is raised there.

    The lower bound is 16 d eps times the variance of the dimension. If all classes are nearly single points along a
    dimension, the ridge raises its variance to a least value, which comes from the variance between the classes and
    the rounding of the means. So multiplying one dimension by a factor multiplies its bound alone, by the square of
    the factor. The variances are multiplied by `total`. No dimension has a larger one within or between the classes
    than `most_spread`.
    """
    unit = 16 * variances.shape[0] * _EPS
    # Usually lam exceeds every bound, and nothing has to be computed.
    if 0 < lam >= unit * most_spread:
        return lam
    spread, rounding = between.square().sum(0), 64 * _EPS * means.abs().amax(0)
    least = torch.maximum(unit * _POINT * spread, total * rounding.square())
    ridge = torch.maximum(unit * variances, least - variances).clamp(min=lam)
    # A dimension in which all features are zero can have any ridge.
    return torch.where(ridge > 0, ridge, 1.0)


def _smallest(ridge: Tensor | float) -> float:
    return ridge if isinstance(ridge, float) else float(ridge.min())
