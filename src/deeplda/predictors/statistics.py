"""What the predictors are fitted from, gathered batch by batch: never more than a batch of features in memory."""

from __future__ import annotations

import torch
from torch import Tensor

from deeplda.objective.discriminant import ClassWeight, Scatter, ScatterWeights, check_regularisation
from deeplda.objective.moments import ClassMoments, class_moments


class FeatureStatistics:
    """Counts, means and scatters of a set of features whose labels are known beforehand.

    Args:
        labels: (n,) the labels of the whole set, which fix the weights of the classes.
        scatter, class_weight: the reading of S_W and S_B, as in `RDLDALoss`.

    After `update` has seen every batch, the attributes are those of the whole set, exactly:
        classes (C,), counts (C,), means (C, d), and the methods `within` (S_W), `between` (S_B), `pooled`.
    """

    def __init__(self, labels: Tensor, *, scatter: Scatter = "pooled", class_weight: ClassWeight = None) -> None:
        check_regularisation(1.0, 0.0, scatter, class_weight)
        self.classes, counts = torch.unique(labels.cpu().long(), return_counts=True)
        self.weights = ScatterWeights.of(counts.double(), len(labels), scatter, class_weight)
        self._plain: ClassMoments | None = None
        self._weighted: ClassMoments | None = None

    def update(self, features: Tensor, labels: Tensor) -> None:
        """Take in a batch: features (n, d), labels (n,)."""
        features, labels = features.detach().cpu().double(), labels.cpu().long()
        self._plain = _merged(self._plain, class_moments(features, labels))
        if self.weights.uniform is None:
            # The scatter of sqrt(w) h is w times that of h, so weighted scatters merge as exactly as plain ones.
            roots = self.weights.within.sqrt()[torch.searchsorted(self.classes, labels)]
            self._weighted = _merged(self._weighted, class_moments(features * roots[:, None], labels))

    @property
    def counts(self) -> Tensor:
        """(C,) float64, samples of each class seen."""
        return self._moments.counts

    @property
    def means(self) -> Tensor:
        """(C, d) float64."""
        return self._moments.means

    def pooled(self) -> Tensor:
        """The pooled covariance W / n, (d, d), whatever the reading."""
        return self._moments.within / self.counts.sum()

    def within(self) -> Tensor:
        """S_W of the reading, (d, d)."""
        if self.weights.uniform is not None:
            return self._moments.within * self.weights.uniform
        assert self._weighted is not None
        return self._weighted.within

    def between_rows(self) -> Tensor:
        """B, (C, d): the rows sqrt(between_c) (mu_c - mu)."""
        mean = self.weights.between @ self.means / self.weights.total
        return self.weights.between.sqrt()[:, None] * (self.means - mean)

    def between(self) -> Tensor:
        """S_B of the reading, (d, d)."""
        rows = self.between_rows()
        between = rows.T @ rows
        if self.weights.residual is not None:
            between += self._moments.within / (self.counts.sum() - 1) - self.within()
        return between

    @property
    def _moments(self) -> ClassMoments:
        if self._plain is None or len(self._plain.classes) != len(self.classes):
            raise RuntimeError("not every class has been seen: call update with all batches first")
        return self._plain


def _merged(before: ClassMoments | None, new: ClassMoments) -> ClassMoments:
    return new if before is None else before.merge(new)
