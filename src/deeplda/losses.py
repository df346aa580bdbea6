"""PyTorch losses: `DeepLDALoss`, the paper's `RDLDALoss` and `DLDALoss`, and the function `deep_lda_loss`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

import torch
from torch import Tensor, nn

from deeplda.batch_rule import SmallBatchWarning, is_too_small, remedies, why_too_small
from deeplda.core.distributed import Ranks
from deeplda.core.gradient import gradient_at_features, with_gradient
from deeplda.core.moments import CentredBatch, check_batch, full_precision, weighted_samples
from deeplda.core.options import (
    ClassWeight,
    Scatter,
    Statistic,
    check_regularisation,
    check_statistic,
    checked_parents,
)
from deeplda.core.scatter import DiscriminantProblem
from deeplda.core.statistics import evaluate, largest_precise, selected_count, valid_eigenvalues
from deeplda.core.transforms import to_list

__all__ = ["DLDALoss", "DeepLDALoss", "Diagnostics", "RDLDALoss", "deep_lda_loss"]

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_Function = TypeVar("_Function", bound=Callable[..., Tensor])


def _untraced(function: _Function) -> _Function:
    """Exclude a function from torch.compile.

    torch.compiler.disable would import torch._dynamo when this module is imported, which takes as long as importing
    torch itself. The private decorator that torch's own optimisers use defers that import to the first call.
    """
    return cast("_Function", getattr(torch, "_disable_dynamo", torch.compiler.disable)(function))


class Diagnostics:
    """Properties of the last batch. They are computed only when read; until then, a few small tensors are stored."""

    def __init__(
        self,
        *,
        matrix: Tensor,
        factor: Tensor | None,
        valid: int,
        epsilon: float | None,
        counts: Tensor,
        means: Tensor,
        variances: Tensor,
        total: float,
    ) -> None:
        self._matrix, self._factor, self._valid, self._epsilon = matrix, factor, valid, epsilon
        self._counts, self._means, self._variances, self._total = counts, means, variances, total

    @property
    def eigenvalues(self) -> Tensor:
        """The valid eigenvalues, ascending, (min(d, C - 1),) float64."""
        return valid_eigenvalues(self._matrix, self._valid, self._factor)

    @property
    def selected(self) -> int:
        """The number of eigenvalues in the loss: all valid ones, or, for "smallest", only those up to its threshold."""
        return self._valid if self._epsilon is None else selected_count(self.eigenvalues, self._epsilon)

    @property
    def classes(self) -> int:
        """The number of labels in the batch, which are classes or, with `parents`, subclasses."""
        return len(self._counts)

    @property
    def smallest_class(self) -> float:
        """The number of samples with the rarest label or, if samples have weights, the sum of their weights."""
        smallest = float(self._counts.min())
        return int(smallest) if smallest.is_integer() else smallest

    @property
    def dead_dims(self) -> int:
        """The number of dimensions that have the same value, up to rounding, for every sample."""
        rounding = 64 * torch.finfo(torch.float64).eps * self._means.abs().amax(0)
        constant = self._means.amax(0) - self._means.amin(0) <= rounding
        return int((constant & ((self._variances / self._total).sqrt() <= rounding)).sum())

    def __repr__(self) -> str:
        low, high = to_list(self.eigenvalues[[0, -1]])
        return (
            f"Diagnostics(eigenvalues {low:.4g} to {high:.4g}, selected={self.selected}, classes={self.classes}, "
            f"smallest_class={self.smallest_class}, dead_dims={self.dead_dims})"
        )


class DeepLDALoss(nn.Module):
    """The deep linear discriminant analysis loss: `loss(features, labels)`, or `loss(features, labels, sample_weight)`.

    It computes S_B and S'_W = alpha S_W + (1 - alpha) diag(S_W) + lam I for a batch of features and returns minus a
    statistic of the eigenvalues v of S_B e = v S'_W e. Each v is the ratio of between-class to within-class variance
    along one discriminant direction. The larger these ratios, the lower the loss, which is usually negative.
    `RDLDALoss` and `DLDALoss` are the same loss with the paper's defaults.

    Args:
        statistic: "wilks", "pillai", "hotelling", "smallest" (the paper's), or a callable f. f maps the valid
            eigenvalues, an ascending 1-D float64 tensor, to a 0-d tensor, and the loss is -f(v). For example,
            `lambda v: torch.log1p(v).mean()` is "wilks". f may decrease in some eigenvalues. If eigenvalues are equal,
            the gradient exists only if f is symmetric in them. Parameters of f receive no gradient.
        alpha: the factor applied to the off-diagonal entries of S_W, from 0 to 1.
        lam: the ridge added to S'_W.
        epsilon: for "smallest", average the eigenvalues up to the smallest one plus this margin.
        scatter: "pooled" divides S_W and S_B by n; "sum" uses the paper's undivided sums; "dorfer" follows the
            original DLDA code, where S_W is the mean of the unbiased class covariances. "dorfer" can have negative
            eigenvalues, so it excludes "wilks" and "pillai"; it also excludes class weights.
        class_weight: "balanced" gives all classes the same weight, regardless of their number of samples.
        parents: the class of each subclass, such as (0, 0, 1, 1, 1), if labels are subclasses 0..S-1. S_W is then
            computed within the subclasses and S_B between the C classes, so that the parts of a class need not be
            separated and may lie anywhere, and min(d, C - 1) eigenvalues are valid. None means that labels are classes,
            all of which are separated. Excludes "dorfer".
        process_group: the ranks among which each batch is split. None means the default group if torch.distributed is
            initialised, as in SyncBatchNorm.

    In training mode, with a process group of two or more ranks, each rank passes its part of one batch. The parts may
    differ in size and classes, and a part may be empty, (0, d). The value, diagnostics and checks describe the complete
    batch and are the same on every rank; either all ranks raise the same error, or none does. The gradient with respect
    to a rank's own features is multiplied by the number of ranks, because DistributedDataParallel averages over the
    ranks. Each call takes three exchanges: the class ids, then C + C d numbers, then d d numbers. Features are never
    exchanged. Each of the following adds one exchange: "dorfer", more than 256 classes on a rank, a product that has
    to be repeated in float64, and float32 features below 1e-12 in a dimension of a large batch. `backward` needs
    none. In eval mode, each rank's batch is a batch of its own.

    A sample with weight 2 counts as two equal samples, in the value and in the gradient, and one with weight 0 not at
    all. Class weights multiply sample weights. Samples with weights exclude "dorfer".

    Shape: features (n, d) floating point, labels (n,) non-negative integers, sample_weight (n,) numbers >= 0; returns a
    0-d tensor in the precision of the features, at least float32. The loss works on any device and computes in full
    precision even under autocast.

    The gradient is computed in closed form and cannot be differentiated again: `create_graph=True` raises RuntimeError.
    `torch.func.grad`, `vjp` and `jacrev` work, but `torch.vmap` over batches raises TypeError.
    Raises ValueError or TypeError if an option or the batch is invalid; a batch needs at least two classes.
    """

    def __init__(
        self,
        statistic: Statistic = "wilks",
        *,
        alpha: float = 1.0,
        lam: float = 1e-3,
        epsilon: float = 1.0,
        scatter: Scatter = "pooled",
        class_weight: ClassWeight = None,
        parents: Sequence[int] | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        check_regularisation(alpha, lam, scatter, class_weight)
        check_statistic(statistic, epsilon, scatter)
        self.statistic = statistic
        self.alpha, self.lam, self.epsilon = float(alpha), float(lam), float(epsilon)
        self.scatter, self.class_weight = scatter, class_weight
        self.parents = checked_parents(parents, scatter)
        self.process_group = process_group
        self._diagnostics: Diagnostics | None = None
        self._checked = False

    @_untraced
    def forward(self, features: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """Compute the loss of `features` (n, d) with `labels` (n,) and weights (n,), by default 1."""
        features, labels, weights = weighted_samples(features, labels, sample_weight)
        ranks, shared = Ranks.of(self.process_group) if self.training else None, None
        if ranks is not None:
            options = f"{self.extra_repr()}, weighted={weights is not None}"
            shared = CentredBatch.across(features, labels, weights, ranks, options)
        else:
            check_batch(features, labels, weights)
        differentiable = features.requires_grad and torch.is_grad_enabled()
        with full_precision(features, temporary=True):
            batch = shared or CentredBatch.of(features, labels, weights)
            problem = DiscriminantProblem.of(batch, self.alpha, self.lam, self.scatter, self.class_weight, self.parents)
            factor = problem.factor(largest_precise(self.statistic))
            evaluation = evaluate(self.statistic, problem.matrix, problem.valid, self.epsilon, factor)
            gradient = gradient_at_features(batch, problem, evaluation, self.alpha) if differentiable else None
        # The assignment of an nn.Module would first look for parameters and modules.
        diagnostics = Diagnostics(
            matrix=problem.matrix,
            factor=problem.factor(),
            valid=problem.valid,
            epsilon=self.epsilon if self.statistic == "smallest" else None,
            counts=batch.counts,
            means=batch.means,
            variances=problem.variances,
            total=problem.weights.total,
        )
        object.__setattr__(self, "_diagnostics", diagnostics)
        if ranks is None or ranks.is_first:
            self._check_size(batch)
        return with_gradient(features, evaluation.loss, gradient)

    @property
    def diagnostics(self) -> Diagnostics:
        """Properties of the last batch, computed when they are read. Raises RuntimeError before the first batch."""
        if self._diagnostics is None:
            raise RuntimeError("there are no diagnostics before the first batch: call the loss first")
        return self._diagnostics

    def extra_repr(self) -> str:
        """Return the options as text that is the same on all ranks; a callable appears by name, not by address."""
        statistic = repr(self.statistic)
        if callable(self.statistic):
            named = self.statistic if hasattr(self.statistic, "__qualname__") else type(self.statistic)
            statistic = f"{named.__module__}.{named.__qualname__}"
        others = ["alpha", "lam", "epsilon", "scatter", "class_weight"]
        others += [] if self.parents is None else ["parents"]
        return ", ".join([f"statistic={statistic}", *(f"{name}={getattr(self, name)!r}" for name in others)])

    def _check_size(self, batch: CentredBatch) -> None:
        """Warn if the first batch is too small for its classes and dimensions; the last one of an epoch may be.

        The rule counts samples, so batches with sample weights are not checked; it was not measured for subclasses
        with parents.
        """
        if self._checked or batch.weights is not None or self.parents is not None:
            return
        self._checked = True
        counts, dims = to_list(batch.counts), batch.shape[1]
        if is_too_small(counts, dims):
            warnings.warn(_small_batch_message(counts, dims), SmallBatchWarning, stacklevel=_callers_level())


class RDLDALoss(DeepLDALoss):
    """The paper's regularised objective, RDLDA: the mean of the smallest eigenvalues, with alpha 0.6 by default.

    It takes the same options as `DeepLDALoss`. The paper uses alpha 0.6 on CIFAR-10 and 0.2 on STL-10.
    """

    def __init__(
        self,
        *,
        alpha: float = 0.6,
        statistic: Statistic = "smallest",
        lam: float = 1e-3,
        epsilon: float = 1.0,
        scatter: Scatter = "pooled",
        class_weight: ClassWeight = None,
        parents: Sequence[int] | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(
            statistic,
            alpha=alpha,
            lam=lam,
            epsilon=epsilon,
            scatter=scatter,
            class_weight=class_weight,
            parents=parents,
            process_group=process_group,
        )


class DLDALoss(DeepLDALoss):
    """The DLDA objective, a baseline in the paper: the mean of the smallest eigenvalues, with alpha 1.

    It takes the same options as `DeepLDALoss`, except alpha.
    """

    def __init__(
        self,
        *,
        statistic: Statistic = "smallest",
        lam: float = 1e-3,
        epsilon: float = 1.0,
        scatter: Scatter = "pooled",
        class_weight: ClassWeight = None,
        parents: Sequence[int] | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(
            statistic,
            alpha=1.0,
            lam=lam,
            epsilon=epsilon,
            scatter=scatter,
            class_weight=class_weight,
            parents=parents,
            process_group=process_group,
        )


@_untraced
def deep_lda_loss(
    features: Tensor,
    labels: Tensor,
    statistic: Statistic = "wilks",
    *,
    alpha: float = 1.0,
    lam: float = 1e-3,
    epsilon: float = 1.0,
    scatter: Scatter = "pooled",
    class_weight: ClassWeight = None,
    parents: Sequence[int] | None = None,
    sample_weight: Tensor | None = None,
    process_group: ProcessGroup | None = None,
) -> Tensor:
    """Compute the loss of `features` (n, d) with `labels` (n,), as `DeepLDALoss` in training mode does.

    In a process group, all ranks must call it. To compute the loss of one rank's batch there, call a `DeepLDALoss` in
    eval mode.
    """
    criterion = DeepLDALoss(
        statistic,
        alpha=alpha,
        lam=lam,
        epsilon=epsilon,
        scatter=scatter,
        class_weight=class_weight,
        parents=parents,
        process_group=process_group,
    )
    return criterion.forward(features, labels, sample_weight)


def _small_batch_message(counts: list[float], dims: int) -> str:
    size, found = round(sum(counts)), remedies(counts, dims)
    sampler = f"StratifiedBatchSampler(labels, {size}, samples_per_class={{}})"
    options = []
    if found.subset is not None:
        options.append(f"batches of fewer classes, {sampler.format(found.subset)}")
    if found.narrow_subset is not None:
        samples, widest = found.narrow_subset
        options.append(f"at most {widest} dimensions with batches of fewer classes, {sampler.format(samples)}")
    if found.dims is not None:
        options.append("{} to {} dimensions".format(*found.dims))
    if found.batch_size is not None:
        larger, width = found.batch_size
        with_width = "" if width == dims else f" with {width} dimensions"
        options.append(f"batches of at least {larger} samples of these classes{with_width}")
    what = f"a batch of {size} samples in {len(counts)} classes does not suit {dims} dimensions"
    return f"{what}, which costs accuracy ({why_too_small(counts, dims)}): use {' or '.join(options)}"


def _callers_level() -> int:
    """Return the `stacklevel` of the line, outside deeplda and torch, that called the loss."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("deeplda", "torch"):
        level, frame = level + 1, frame.f_back
    return level
