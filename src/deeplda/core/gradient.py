"""The gradient of the discriminant objective with respect to the features, in closed form.

It does not differentiate eigenvectors, so it is exact at repeated eigenvalues, which occur at the optimum. The
derivatives have a factored form,

    d loss / d S'_W = weight left' diag(signs) right
    d loss / d mu_c = -2 weight n_c share_c centre_c diag(signs) right,

from which the gradient with respect to row i of class c follows:

    2 weight within_c (h_i - mu_c) [alpha left' diag(signs) right + (1 - alpha) diag(left' diag(signs) right)]
    - 2 weight share_c centre_c diag(signs) right.

With subclasses that have parents, mu_c in the first line is the mean of the row's subclass, and c its class elsewhere.
If samples have weights, share_c is relative to the sum of those of class c, and the gradient of a row is multiplied by
its weight.

It is computed as (n x r) (r x d) products: neither an (n, d, d) array nor a (d, d) derivative is formed. The forward
pass computes it, so that only the gradient itself has to be kept for the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deeplda.core.moments import CentredBatch
from deeplda.core.scatter import DiscriminantProblem, right_solve
from deeplda.core.statistics import Evaluation
from deeplda.core.transforms import transforms_active

_ONLY_ONCE = "the discriminant loss can be differentiated only once"


def gradient_at_features(
    batch: CentredBatch, problem: DiscriminantProblem, evaluation: Evaluation, alpha: float
) -> Tensor:
    """Return the gradient with respect to the features of this rank, (n, d), in the precision of the batch's rows.

    It is multiplied by the number of ranks, because DistributedDataParallel averages over them.
    """
    weights, signs, dtype = problem.weights, evaluation.signs, batch.rows.dtype
    left, right, centre = _factors(problem, evaluation)
    twice, share = 2.0 * evaluation.weight, weights.share
    rows = batch.rows if weights.within is None else batch.rows * batch.by_row(weights.within, dtype)
    class_of = batch.class_of if problem.parent_of is None else problem.parent_of[batch.class_of]
    centre, share = (centre, share) if isinstance(share, float) else (centre * share, 1.0)
    narrow, thin = right, left
    if dtype != torch.float64:
        narrow, thin, centre = right.to(dtype), left.to(dtype), centre.to(dtype)
    coefficients = centre.index_select(0, class_of)
    coefficients.addmm_(rows, thin.t(), beta=-twice * share, alpha=twice * alpha)
    if weights.residual is not None:
        coefficients.addmm_(batch.rows * batch.by_row(weights.residual, dtype), narrow.T, alpha=-twice)
    if signs is not None:
        coefficients.mul_(signs.to(dtype))
    gradient = coefficients.mm(narrow)
    if alpha != 1.0:
        most = torch.finfo(dtype).max
        products = left * right if signs is None else left * right * signs[:, None]
        diagonal = products.sum(0).mul_(twice * (1 - alpha)).clamp_(-most, most)
        gradient.addcmul_(rows, diagonal.to(dtype))
    if batch.weights is not None:
        gradient.mul_(batch.weights.to(dtype)[:, None])
    scale = batch.scale * (1 if batch.ranks is None else batch.ranks.size)
    return gradient if scale == 1 else gradient.mul_(scale)


def _factors(problem: DiscriminantProblem, evaluation: Evaluation) -> tuple[Tensor, Tensor, Tensor]:
    """Return `left` (r, d), `right` (r, d) and `centre` (C, r) of the module docstring."""
    root, roots, factor = problem.root, problem.roots, evaluation.factor
    if problem.by_class:
        assert problem.whitened is not None
        # The rows of B, weighted by their roots, sum to zero. Project that direction out exactly, because the
        # derivative along it can be 1e16 times as large as elsewhere.
        factor = torch.addmm(factor, factor @ roots, roots.T, alpha=-1 / problem.weights.total)
        product = factor @ problem.whitened if evaluation.product is None else evaluation.product
        right = right_solve(product, root, transpose=False)
        # Its rows are gathered next, which takes longer if they are not contiguous.
        return right, right, factor.T.contiguous() / roots
    right = right_solve(factor, root, transpose=False)
    if evaluation.eigenvalues is not None and evaluation.product is not None:
        return right * evaluation.eigenvalues[:, None], right, evaluation.product.T / roots
    left = right_solve(factor.mm(problem.matrix), root, transpose=False)
    return left, right, problem.deviations.mm(right.t())


def with_gradient(features: Tensor, value: Tensor, gradient: Tensor | None) -> Tensor:
    """Return `value` (0-d) with `gradient` (n, d) as its gradient with respect to `features`.

    The result is in the precision of the features, at least float32, and on their device. The arguments may be tensors
    of inference mode.
    """
    loss: Tensor
    if gradient is None:
        loss = _like(features, value)
    elif transforms_active():
        # An empty part of the features, on which the gradient depends, so that a second derivative raises an error.
        anchor = features[:0]
        loss = _TransformedClosedForm.apply(features, value, gradient, anchor)  # type: ignore[no-untyped-call]  # not typed in torch
    else:
        loss = _ClosedForm.apply(features, value, gradient)  # type: ignore[no-untyped-call]  # not typed in torch
    return loss


def _like(features: Tensor, value: Tensor) -> Tensor:
    """Copy `value` to the device of the features, in their precision, at least float32."""
    # `to` with several arguments takes twice as long as `float`.
    copy = value.double() if features.dtype == torch.float64 else value.float()
    if copy.is_cpu != features.is_cpu:
        return copy.to(features.device)
    return copy.clone() if copy is value else copy


class _ClosedForm(torch.autograd.Function):
    """An autograd function that returns a precomputed value and, in the backward pass, a precomputed gradient."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(_like(features, gradient))
        return _like(features, value)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(f"{_ONLY_ONCE}: omit create_graph=True")
        (gradient,) = ctx.saved_tensors
        # PyTorch converts it to the precision of the features.
        return gradient * upstream, None, None


class _TransformedClosedForm(torch.autograd.Function):
    """`_ClosedForm` inside of torch.func's transforms.

    They need `setup_context`, whose signature is inspected in each call, and they always ask for a gradient that can be
    differentiated again.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(features: Tensor, value: Tensor, _gradient: Tensor, _anchor: Tensor) -> Tensor:
        return _like(features, value)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004  # torch passes it
        features, _, gradient, anchor = inputs
        ctx.save_for_backward(_like(features, gradient), anchor)
        ctx.dtype = features.dtype

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradient, anchor = ctx.saved_tensors
        with torch.no_grad():
            at_features = (gradient * upstream).to(ctx.dtype)
        once: Tensor = _OnlyOnce.apply(at_features, anchor)  # type: ignore[no-untyped-call]  # not typed in torch
        return once, None, None, None

    @staticmethod
    def jvp(_ctx: Any, *_tangents: Any) -> Tensor:
        # A forward derivative of the loss itself is rejected before, so this is one of its gradient.
        raise RuntimeError(_ONLY_ONCE)


class _OnlyOnce(torch.autograd.Function):
    """The identity of its first argument; its derivative raises RuntimeError."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gradient: Tensor, _anchor: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(_ctx: Any, _upstream: Tensor) -> tuple[Tensor | None, ...]:
        raise RuntimeError(_ONLY_ONCE)
