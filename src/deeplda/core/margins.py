"""How well the label of each sample of a batch fits, judged by the other samples of the batch."""

from __future__ import annotations

import torch
from torch import Tensor

# The smallest fraction of a sample's fit that must come from other samples; at 0, there would be nothing to divide by.
_LEAST_REST = 1e-3


@torch.inference_mode()
def leave_one_out_margins(features: Tensor, labels: Tensor, lam: float) -> Tensor:
    """Return how much better each sample fits its own class than the best other one, (n,) float64.

    Ridge regression of the class indicators on the features, which is what Pillai's statistic measures, gives each
    sample a score for every class, near 1 for its own class and near 0 for the others if the classes are separated.
    Every class has the same total weight. The score of a sample comes from the regression on all others: with the hat
    matrix h, it is (f - h y) / (1 - h) for the score f of the complete regression and the indicator y, so one d x d
    system is solved for all of them. The margin is the score of the sample's own class minus the highest score of the
    others, about 1 at most. It does not depend on the scale of the features, up to the ridge, so margins of different
    epochs can be averaged.

    Args:
        features: (n, d).
        labels: (n,), any integers.
        lam: the ridge, >= 0, as in the loss.

    A sample that is the only one of its class has no margin, which is NaN. All are NaN if there is only one class or
    the system cannot be solved.
    """
    classes, own, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    n, size = features.shape[0], counts.double()
    nothing = torch.full((n,), torch.nan, dtype=torch.float64, device=features.device)
    if len(classes) < 2:
        return nothing
    weights = (n / (len(classes) * size))[own][:, None]
    rows, is_own = features.double(), labels[:, None] == classes
    indicators = is_own.double()
    rows, targets = rows - (weights * rows).sum(0) / n, indicators - 1 / len(classes)
    scatter = rows.T @ (weights * rows)
    scatter.diagonal().add_(n * max(lam, 1e-12 * float(scatter.diagonal().mean())))
    root, failed = torch.linalg.cholesky_ex(scatter)
    if failed:
        return nothing
    rows = torch.linalg.solve_triangular(root, rows.T, upper=False).T
    hat = weights * (rows.square().sum(1, keepdim=True) + 1 / n)
    scores = rows @ (rows.T @ (weights * targets)) + 1 / len(classes)
    scores = (scores - hat * indicators) / (1 - hat).clamp(min=_LEAST_REST)
    of_own = scores.gather(1, own[:, None])[:, 0]
    best_other = scores.masked_fill_(is_own, -torch.inf).amax(1)
    return torch.where(counts[own] > 1, of_own - best_other, nothing)
