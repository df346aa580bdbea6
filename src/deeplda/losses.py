"""RDLDALoss: the discriminant objective as a PyTorch loss, with its gradient in closed form.

The gradient never passes through eigenvectors, so it is exact where eigenvalues are equal, as at the optimum.
With V the discriminant directions of the statistic, d loss / d S'_W = left' right and d loss / d S_B = -right' right,
and through the scatters the gradient of row i of class c is

    2 within_c (h_i - mu_c) [alpha left' right + (1 - alpha) diag(left' right)]
    - 2 between_c / n_c (mu_c - mu) right' right,

computed as (n x r) (r x d) products: no (n, d, d) array is formed, nor the (d, d) derivatives.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import torch
from torch import Tensor, nn

from deeplda.core import statistics
from deeplda.core.checks import ClassWeight, Scatter, check_batch, check_regularisation, check_word
from deeplda.core.distributed import Ranks
from deeplda.core.moments import CentredBatch, full_precision
from deeplda.core.scatter import DiscriminantProblem, right_solve
from deeplda.core.statistics import StatisticName, selected_count, valid_eigenvalues
from deeplda.errors import got

__all__ = ["DLDALoss", "DeepLDALoss", "Diagnostics", "RDLDALoss", "deep_lda_loss"]

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class Diagnostics:
    """Figures of the last batch. Until one is read this holds a few small detached tensors and computes nothing."""

    def __init__(
        self, *, matrix: Tensor, valid: int, epsilon: float | None, counts: Tensor, means: Tensor, variances: Tensor
    ) -> None:
        self._matrix, self._valid, self._epsilon = matrix, valid, epsilon
        self._counts, self._means, self._variances = counts, means, variances

    @property
    def eigenvalues(self) -> Tensor:
        """The valid eigenvalues, ascending, (min(d, C - 1),) float64."""
        return valid_eigenvalues(self._matrix, self._valid)

    @property
    def selected(self) -> int:
        """How many eigenvalues the loss is made of: for "smallest" those below its threshold, else the valid ones."""
        return self._valid if self._epsilon is None else selected_count(self.eigenvalues, self._epsilon)

    @property
    def classes(self) -> int:
        """How many classes were present."""
        return len(self._counts)

    @property
    def smallest_class(self) -> int:
        """How many samples the smallest class had."""
        return int(self._counts.min())

    @property
    def dead_dims(self) -> int:
        """How many dimensions had the same value for every sample, but for rounding."""
        rounding = 64 * torch.finfo(torch.float64).eps * self._means.abs().amax(0)
        constant = self._means.amax(0) - self._means.amin(0) <= rounding
        return int((constant & (self._variances.sqrt() <= rounding)).sum())

    def __repr__(self) -> str:
        low, high = self.eigenvalues[[0, -1]].tolist()
        return (
            f"Diagnostics(eigenvalues {low:.4g} to {high:.4g}, selected={self.selected}, classes={self.classes}, "
            f"smallest_class={self.smallest_class}, dead_dims={self.dead_dims})"
        )


# torch.compile does not look into what is marked so. torch.compiler.disable would import torch._dynamo, which takes as
# long as torch, with this module; the mark of torch's own optimisers does at the first call, but its name is private.
_untraced = getattr(torch, "_disable_dynamo", torch.compiler.disable)


class RDLDALoss(nn.Module):
    """The objective of (regularised) deep linear discriminant analysis, called as `loss(features, labels)`.

    From a batch of features it takes S_B and S'_W = alpha S_W + (1 - alpha) diag(S_W) + lam I and returns minus a
    statistic of the eigenvalues of S_B e = v S'_W e: the larger the ratios v of between-class to within-class
    variance, the lower the loss. It is negative by nature. alpha=1 is DLDA.

    Args:
        alpha: share of the off-diagonal elements of S_W that is kept, 0 to 1.
        lam: the ridge added to S'_W.
        epsilon: for "smallest": eigenvalues up to the smallest plus epsilon enter the mean.
        statistic: "wilks", "pillai", "hotelling", or "smallest": the paper's, which has alpha 0.6 on CIFAR-10.
        scatter: "pooled" (divided by n), "sum" (the paper to the letter), or "dorfer" (the original DLDA code:
            mean of unbiased class covariances; only with "smallest" or "hotelling" and no class weights).
        class_weight: None, or "balanced": classes count alike however many samples each has.
        process_group: the ranks that share a batch; None for the default group where torch.distributed is
            initialised, as in SyncBatchNorm.

    Under a process group of two ranks or more, in training mode, each rank passes its part of one batch, of any size
    and with any classes, or empty (0, d). Value, diagnostics and checks are those of the whole batch on every rank:
    all raise the same error or none does. The gradient at a rank's own features is that of the whole batch times the
    number of ranks, so that DistributedDataParallel, which averages over the ranks, ends up with the whole batch's.
    Three exchanges a call carry class ids, C + C d and d d numbers, never features; one more each with "dorfer", with
    more than 256 classes on a rank, and where a product is made again in float64. Backward has none. In eval mode, or
    with one rank, the batch is the local one.

    Shape: features (n, d) floating point, labels (n,) non-negative integers; returns a 0-d tensor of the features'
    precision, at least float32. Any device; under autocast the loss is computed in full precision all the same.

    The gradient is a closed form and cannot be differentiated again: `create_graph=True` raises RuntimeError.
    Raises ValueError or TypeError for options or batches that make no sense; a batch needs two classes or more.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        lam: float = 1e-3,
        epsilon: float = 1.0,
        statistic: StatisticName = "wilks",
        scatter: Scatter = "pooled",
        class_weight: ClassWeight = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        check_regularisation(alpha, lam, scatter, class_weight)
        check_word("statistic", statistic, get_args(StatisticName))
        if not epsilon >= 0:
            raise ValueError(got(f"epsilon is {epsilon}", need="a number of 0 or more", do="the paper has 1"))
        if scatter == "dorfer" and statistic in ("wilks", "pillai"):
            raise ValueError(
                got(
                    f'scatter="dorfer" came with statistic="{statistic}"',
                    need='"smallest" or "hotelling", as this S_B can be indefinite',
                    do='use scatter="pooled" for this statistic',
                )
            )
        self.alpha, self.lam, self.epsilon = float(alpha), float(lam), float(epsilon)
        self.statistic, self.scatter, self.class_weight = statistic, scatter, class_weight
        self.process_group = process_group
        self._diagnostics: Diagnostics | None = None
        self._warned: set[str] = set()

    @_untraced  # type: ignore[untyped-decorator]  # not typed in torch
    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """The loss of `features` (n, d) with `labels` (n,)."""
        ranks = Ranks.of(self.process_group) if self.training else None
        shared = None if ranks is None else CentredBatch.across(features, labels, ranks, options=self.extra_repr())
        if shared is None:
            check_batch(features, labels)
        differentiable = features.requires_grad and torch.is_grad_enabled()
        with full_precision(features):
            batch = shared or CentredBatch.of(features, labels)
            problem = DiscriminantProblem.of(batch, self.alpha, self.lam, self.scatter, self.class_weight)
            value, factor = statistics.evaluate(self.statistic, problem.matrix, problem.valid, self.epsilon)
            value = value.to(features.device, torch.promote_types(features.dtype, torch.float32))
            gradient = _gradient(batch, problem, factor, self.alpha) if differentiable else None
        self._diagnostics = Diagnostics(
            matrix=problem.matrix,
            valid=problem.valid,
            epsilon=self.epsilon if self.statistic == "smallest" else None,
            counts=batch.counts,
            means=batch.means,
            variances=problem.variances,
        )
        if ranks is None or ranks.is_first:
            self._warn(batch, problem)
        if gradient is None:
            return value
        # Averaged over the ranks, as DistributedDataParallel does, the gradient then is the whole batch's.
        sharing = 1 if ranks is None else ranks.size
        return _attach(features, value, batch.scale * sharing, *gradient)

    @property
    def diagnostics(self) -> Diagnostics:
        """What the last batch looked like; its figures are computed when read."""
        if self._diagnostics is None:
            raise RuntimeError("there are no diagnostics before the first batch: call the loss first")
        return self._diagnostics

    def extra_repr(self) -> str:
        names = ("alpha", "lam", "epsilon", "statistic", "scatter", "class_weight")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def _warn(self, batch: CentredBatch, problem: DiscriminantProblem) -> None:
        n, d, c = batch.shape
        if d < c - 1:
            self._warn_once(
                f"{c} classes can differ in {c - 1} directions and the features have {d}: "
                "a wider output would let all of them count"
            )
        if n - c < d and (1 - self.alpha) * float(problem.variances.mean()) < problem.ridge:
            self._warn_once(
                f"a batch of {n} samples in {c} classes cannot fill the within-class scatter of {d} dimensions, "
                f"so the ridge lam={self.lam:g} rather than the data decides the eigenvalues: "
                f"use batches of more than {d + c}, fewer dimensions, or a smaller alpha",
                "ridge",
            )

    def _warn_once(self, message: str, key: str = "width") -> None:
        if key not in self._warned:
            self._warned.add(key)
            warnings.warn(message, UserWarning, stacklevel=_callers_level())


def _callers_level() -> int:
    """The `stacklevel` at which a warning points at the line that called the loss, whatever torch puts between."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("deeplda", "torch"):
        level, frame = level + 1, frame.f_back
    return level


class _Gradient(NamedTuple):
    """The gradient in factored form; its equation is in the docstring of this module.

    rows (n, d): the centred features; class_of (n,): the class of each.
    left, right (r, d); left holds 2 alpha and is None where alpha = 0.
    centre (C, r): the part through the class means.
    diagonal (d,): of left' right, with 2 (1 - alpha); None where alpha = 1.
    within (C,): the weights of the classes in S_W; None where all are alike, and then in left and diagonal.
    residual (C,): the weights of the classes' own scatter in S_B; None where it has no part in it.
    """

    rows: Tensor
    class_of: Tensor
    left: Tensor | None
    right: Tensor
    centre: Tensor
    diagonal: Tensor | None
    within: Tensor | None
    residual: Tensor | None

    def at_features(self) -> Tensor:
        """d loss / d features, (n, d)."""
        rows = self.rows if self.within is None else self.rows * self.within[self.class_of, None]
        coefficients = self.centre.index_select(0, self.class_of)
        if self.left is not None:
            coefficients.addmm_(rows, self.left.T)
        if self.residual is not None:
            coefficients.addmm_(self.rows * self.residual[self.class_of, None], self.right.T, alpha=-2)
        gradient = coefficients @ self.right
        if self.diagonal is not None:
            gradient.addcmul_(rows, self.diagonal)
        return gradient


def _gradient(batch: CentredBatch, problem: DiscriminantProblem, factor: Tensor, alpha: float) -> _Gradient:
    """The gradient of the statistic whose derivative at `problem.matrix` is factor factor'."""
    weights, root, between, roots = problem.weights, problem.root, problem.between, problem.roots
    if problem.by_class:
        # The rows of B, weighted by their roots, add up to zero. Kept exact, as elsewhere f' may be 1e-16 of it there.
        factor = factor - torch.outer(roots, roots @ factor) / weights.total
        right = right_solve(factor.T @ right_solve(between, root), root, transpose=False)
        left, centre = right, factor
    else:
        right = right_solve(factor.T, root, transpose=False)
        left = right_solve(factor.T @ problem.matrix, root, transpose=False)
        centre = between @ right.T
    dtype = batch.rows.dtype
    largest = torch.finfo(dtype).max
    twice = 2.0 if weights.uniform is None else 2.0 * weights.uniform
    diagonal = None if alpha == 1.0 else (left * right).sum(0).mul_(twice * (1 - alpha)).clamp_(max=largest).to(dtype)
    return _Gradient(
        rows=batch.rows,
        class_of=batch.index,
        left=None if alpha == 0.0 else (twice * alpha * left).to(dtype),
        right=right.to(dtype),
        centre=(centre * (-2 * roots / batch.counts)[:, None]).to(dtype),
        diagonal=diagonal,
        within=None if weights.uniform is not None else weights.within.to(dtype),
        residual=None if weights.residual is None else weights.residual.to(dtype),
    )


class _ClosedForm(torch.autograd.Function):
    """The value of the loss, with its gradient at the features attached."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, value: Tensor, scale: float, *gradient: Tensor | None) -> Tensor:
        ctx.save_for_backward(*gradient)
        ctx.scale, ctx.device, ctx.dtype = scale, features.device, features.dtype
        return value.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("RDLDALoss can be differentiated once only: leave create_graph=True out")
        gradient = _Gradient(*ctx.saved_tensors)
        with full_precision(gradient.rows):
            at_features = gradient.at_features().mul_(upstream.to(gradient.rows.device) * ctx.scale)
        return at_features.to(ctx.device, ctx.dtype), None, None, *(None for _ in gradient)


def _attach(features: Tensor, value: Tensor, scale: float, *gradient: Tensor | None) -> Tensor:
    loss: Tensor = _ClosedForm.apply(features, value, scale, *gradient)  # type: ignore[no-untyped-call]  # not typed in torch
    return loss
