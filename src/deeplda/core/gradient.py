"""The gradient of the discriminant objective with respect to the features, in closed form.

It does not differentiate eigenvectors, so it is exact at repeated eigenvalues, which occur at the optimum. The
derivatives with respect to the scatters have a factored form,

    d loss / d S'_W = left' diag(signs) right    and    d loss / d S_B = -right' diag(signs) right,

from which the gradient with respect to row i of class c follows:

    2 within_c (h_i - mu_c) [alpha left' diag(signs) right + (1 - alpha) diag(left' diag(signs) right)]
    - 2 between_c / n_c (mu_c - mu) right' diag(signs) right.

It is computed as (n x r) (r x d) products: neither an (n, d, d) array nor a (d, d) derivative is formed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from deeplda.core.moments import CentredBatch, full_precision
from deeplda.core.scatter import DiscriminantProblem, right_solve
from deeplda.core.statistics import Evaluation


class FactoredGradient(NamedTuple):
    """The factors of the gradient; the equation is in the module docstring.

    Attributes:
        rows: (n, d), the centred features.
        class_of: (n,), the class of each row.
        left: (r, d), including the factor 2 alpha; None if alpha = 0.
        right: (r, d).
        signs: (r,); None if all are 1.
        centre: (C, r), the contribution of the class means.
        diagonal: (d,), the diagonal of left' diag(signs) right times 2 (1 - alpha); None if alpha = 1.
        within: (C,), the class weights in S_W; None if they are equal and included in left and diagonal.
        residual: (C,), the weight of each class's own scatter in S_B; None if S_B does not contain it.
    """

    rows: Tensor
    class_of: Tensor
    left: Tensor | None
    right: Tensor
    signs: Tensor | None
    centre: Tensor
    diagonal: Tensor | None
    within: Tensor | None
    residual: Tensor | None

    def at_features(self) -> Tensor:
        """Multiply the factors and return d loss / d features, (n, d)."""
        rows = self.rows if self.within is None else self.rows * self.within[self.class_of, None]
        coefficients = self.centre.index_select(0, self.class_of)
        if self.left is not None:
            coefficients.addmm_(rows, self.left.T)
        if self.residual is not None:
            coefficients.addmm_(self.rows * self.residual[self.class_of, None], self.right.T, alpha=-2)
        if self.signs is not None:
            coefficients.mul_(self.signs)
        gradient = coefficients @ self.right
        if self.diagonal is not None:
            gradient.addcmul_(rows, self.diagonal)
        return gradient


def factored_gradient(
    batch: CentredBatch, problem: DiscriminantProblem, evaluation: Evaluation, alpha: float
) -> FactoredGradient:
    """Derive the gradient with respect to the features from the statistic's derivative at `problem.matrix`."""
    weights, root, between, roots = problem.weights, problem.root, problem.between, problem.roots
    factor, signs = evaluation.factor, evaluation.signs
    if problem.by_class:
        # The rows of B, weighted by their roots, sum to zero. Project that direction out exactly, because the
        # derivative along it can be 1e16 times as large as elsewhere.
        factor = factor - torch.outer(roots, roots @ factor) / weights.total
        product = factor.T @ right_solve(between, root) if evaluation.product is None else evaluation.product
        right = right_solve(product, root, transpose=False)
        left, centre = right, factor
    elif evaluation.eigenvalues is not None and evaluation.product is not None:
        right = right_solve(factor.T, root, transpose=False)
        left, centre = right * evaluation.eigenvalues[:, None], evaluation.product.T
    else:
        right = right_solve(factor.T, root, transpose=False)
        left = right_solve(factor.T @ problem.matrix, root, transpose=False)
        centre = between @ right.T
    dtype = batch.rows.dtype
    twice = 2.0 if weights.uniform is None else 2.0 * weights.uniform
    diagonal = None
    if alpha != 1.0:
        most = torch.finfo(dtype).max
        products = left * right if signs is None else left * right * signs[:, None]
        diagonal = products.sum(0).mul_(twice * (1 - alpha)).clamp_(-most, most).to(dtype)
    return FactoredGradient(
        rows=batch.rows,
        class_of=batch.index,
        left=None if alpha == 0.0 else (twice * alpha * left).to(dtype),
        right=right.to(dtype),
        signs=None if signs is None else signs.to(dtype),
        centre=(centre * (-2 * roots / batch.counts)[:, None]).to(dtype),
        diagonal=diagonal,
        within=None if weights.uniform is not None else weights.within.to(dtype),
        residual=None if weights.residual is None else weights.residual.to(dtype),
    )


def attach_gradient(features: Tensor, value: Tensor, scale: float, gradient: FactoredGradient) -> Tensor:
    """Return `value` (0-d) with `gradient` times `scale` as its gradient with respect to `features`."""
    loss: Tensor = _ClosedForm.apply(features, value, scale, *gradient)  # type: ignore[no-untyped-call]  # not typed in torch
    return loss


class _ClosedForm(torch.autograd.Function):
    """An autograd function that returns a precomputed value and, in the backward pass, a precomputed gradient."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, value: Tensor, scale: float, *gradient: Tensor | None) -> Tensor:
        ctx.save_for_backward(*gradient)
        ctx.scale, ctx.device, ctx.dtype = scale, features.device, features.dtype
        return value.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("the discriminant loss can be differentiated only once: omit create_graph=True")
        gradient = FactoredGradient(*ctx.saved_tensors)
        with full_precision(gradient.rows):
            at_features = gradient.at_features().mul_(upstream.to(gradient.rows.device) * ctx.scale)
        return at_features.to(ctx.device, ctx.dtype), None, None, *(None for _ in gradient)
