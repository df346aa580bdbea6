"""LDA solved from moments: the linear rule and the discriminant directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from deeplda.core.moments import ClassMoments, gram
from deeplda.core.options import check_integer
from deeplda.errors import InputError
from deeplda.predictors.feature_statistics import FeatureStatistics
from deeplda.predictors.linear import linear_rule, log_priors

# With v the ratio of between-class to within-class variance, directions whose v / (1 + v) is this much smaller than
# that of the best are rounding. scikit-learn's SVD solver has the same limit, 1e-4 in standard deviations.
LEAST_SHARE = 1e-8


@dataclass(frozen=True, slots=True)
class LinearDiscriminant:
    """The linear rule h coef' + intercept and the coordinates (h - xbar) scalings, all float64.

    Attributes:
        coef: (C, d).
        intercept: (C,).
        priors: (C,), which sum to 1.
        xbar: (d,), the mean of the class means, weighted by the priors.
        scalings: (d, m), the discriminant directions, strongest first; the covariance along each is 1.
        explained: (m,), the share of each direction in the between-class variance.
    """

    coef: Tensor
    intercept: Tensor
    priors: Tensor
    xbar: Tensor
    scalings: Tensor
    explained: Tensor

    @classmethod
    def of(
        cls,
        moments: ClassMoments,
        *,
        priors: ArrayLike | None = None,
        n_components: int | None = None,
        shrinkage: float = 0.0,
        lam: float = 0.0,
        least_variance: float = 1e-8,
    ) -> LinearDiscriminant:
        """Solve LDA with the covariance (1 - shrinkage) S + shrinkage tr(S)/d I + lam I, where S = W / n.

        Directions with less than `least_variance` are ignored, as in `FeatureStatistics.whitening`.

        Raises InputError if there is only one class, if all samples equal their class means, or if `priors` or
        `n_components` do not fit.
        """
        statistics = FeatureStatistics.of(moments)
        means = statistics.means
        if len(means) < 2:
            raise InputError("the samples have only one class, need at least two: add samples of another class")
        components = component_count(n_components, len(means), means.shape[1])
        whitening = statistics.whitening(shrinkage=shrinkage, lam=lam, least_variance=least_variance)
        if not whitening.shape[1]:
            what = "all samples equal the mean of their class"
            raise InputError(what, need="variation within the classes", do="add samples, more than there are classes")
        logs = log_priors(check_priors(priors, len(means)), statistics.counts)
        weights = logs.exp()
        # Relative to the first mean, so that an offset of the features costs no precision.
        xbar = means[0] + weights @ (means - means[0])
        coef, intercept = linear_rule(means, xbar, whitening)
        directions, explained = _directions(weights.sqrt()[:, None] * ((means - xbar) @ whitening), components)
        scalings = whitening @ directions
        return cls(coef, intercept + logs, weights, xbar, scalings * column_signs(scalings), explained)


def component_count(n_components: Any, classes: int, dimensions: int) -> int:
    """Return the number of discriminant coordinates, by default all min(d, C - 1). Raises InputError if it is wrong."""
    most = min(classes - 1, dimensions)
    if n_components is None:
        return most
    if check_integer("n_components", n_components) > most:
        raise InputError(f"n_components is {n_components}, need None or 1 to min(n_features, n_classes - 1) = {most}")
    return int(n_components)


def check_priors(priors: ArrayLike | None, classes: int) -> Any:
    """Return the priors in the form that predictors need: "empirical" for None, else a list of numbers."""
    if priors is None:
        return "empirical"
    try:
        values = torch.as_tensor(priors, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"priors is {priors!r}, need None or {classes} positive numbers, one per class") from None
    return values.reshape(-1).tolist()


def column_signs(columns: Tensor) -> Tensor:
    """Return the signs (m,) that make the largest element of each column positive; eigenvectors have either sign."""
    largest = columns.gather(0, columns.abs().argmax(0, keepdim=True))[0]
    return torch.where(largest < 0, -1.0, 1.0).double()


def _directions(between: Tensor, components: int) -> tuple[Tensor, Tensor]:
    """Return the top right singular vectors of B (C, r), as columns, and the share of each in the sum of squares.

    The covariance within the classes is the identity, so the squares are the eigenvalues v of LDA.
    """
    if len(between) <= between.shape[1]:
        _, values, rows = torch.linalg.svd(between, full_matrices=False)
        squares, vectors = values.square(), rows.T
    else:
        # With many classes, the r x r product is far smaller than B.
        squares, vectors = (result.flip(-1) for result in torch.linalg.eigh(gram(between)))
    squares = squares.clamp(min=0)
    shares = squares / (1 + squares)
    kept = min(components, int((shares > LEAST_SHARE * shares[0]).sum()))
    return vectors[:, :kept], (squares / squares.sum())[:kept]
