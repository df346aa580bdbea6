"""The statistics that predictors are fitted from, accumulated batch by batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeplda.core.moments import ClassMoments, check_batch, class_moments
from deeplda.core.options import ClassWeight, Scatter, check_regularisation
from deeplda.core.scatter import ScatterWeights

# After each dimension is scaled to variance 1, directions with less variance than this are dropped.
_LEAST_VARIANCE = 1e-8

Numbers = Tensor | NDArray[Any]


class FeatureStatistics:
    """Counts, means and scatters of a set of features whose class sizes are known in advance.

    Features and labels may be tensors or NumPy arrays. After `update` has seen every batch, all results describe the
    complete set exactly, as float64 tensors on the CPU.

    Args:
        classes: (C,), the class ids, ascending.
        counts: (C,), the number of samples of each class in the complete set; they determine the class weights.
            `for_labels` computes `classes` and `counts` from labels.
        scatter: the definition of S_W and S_B, as in `DeepLDALoss`.
        class_weight: the class weights, as in `DeepLDALoss`.
    """

    def __init__(
        self, classes: Tensor, counts: Tensor, *, scatter: Scatter = "pooled", class_weight: ClassWeight = None
    ) -> None:
        check_regularisation(1.0, 0.0, scatter, class_weight)
        self.classes, self.scatter, self.class_weight = classes, scatter, class_weight
        self._announced = counts.double()
        self._weights = ScatterWeights.of(counts.double(), int(counts.sum()), scatter, class_weight)
        self._plain: ClassMoments | None = None
        # The scatter of sqrt(w) h is w times the scatter of h, so weighted scatters merge as exactly as plain ones.
        self._weighted: ClassMoments | None = None

    @classmethod
    def for_labels(
        cls, labels: Numbers, *, scatter: Scatter = "pooled", class_weight: ClassWeight = None
    ) -> FeatureStatistics:
        """Create empty statistics for a set with these labels (n,)."""
        classes, counts = torch.unique(as_tensor(labels, "labels").cpu().long(), return_counts=True)
        return cls(classes, counts, scatter=scatter, class_weight=class_weight)

    def update(self, features: Numbers, labels: Numbers) -> None:
        """Add a batch of features (n, d) with labels (n,). Raises ValueError if a label is not among `classes`."""
        features = as_tensor(features, "features").detach().cpu().double()
        labels = as_tensor(labels, "labels").cpu().long()
        if not (known := torch.isin(labels, self.classes)).all():
            raise ValueError(
                f"labels contains {int(labels[~known][0])}, need one of the {len(self.classes)} classes of these "
                "statistics: create the statistics for the labels of all samples"
            )
        self._plain = _merged(self._plain, class_moments(features, labels))
        if self._weights.uniform is None:
            roots = self._weights.within.sqrt()[torch.searchsorted(self.classes, labels)]
            self._weighted = _merged(self._weighted, class_moments(features * roots[:, None], labels))

    def merge(self, other: FeatureStatistics) -> None:
        """Add the batches seen by `other`, which was created for the same set."""
        if other._plain is not None:
            self._plain = _merged(self._plain, other._plain)
        if other._weighted is not None:
            self._weighted = _merged(self._weighted, other._weighted)

    @property
    def counts(self) -> Tensor:
        """The number of samples of each class, (C,) float64."""
        return self._moments.counts

    @property
    def means(self) -> Tensor:
        """The mean of each class, (C, d) float64."""
        return self._moments.means

    def pooled(self) -> Tensor:
        """Return the pooled covariance W / n, (d, d), regardless of how the scatters are defined."""
        return self._moments.within / self.counts.sum()

    def whitening(self) -> Tensor:
        """Return A, (d, r), where A A' is the pseudo-inverse of the pooled covariance; dead dimensions are ignored."""
        covariance = self.pooled()
        deviations = covariance.diagonal().sqrt()
        # A constant dimension can have this much deviation from the rounding of its means.
        rounding = self.means.abs().amax(0) * self.counts.max() * torch.finfo(torch.float64).eps
        deviations = torch.where(deviations > rounding, deviations, torch.inf)
        values, vectors = torch.linalg.eigh(covariance / torch.outer(deviations, deviations))
        kept = values > _LEAST_VARIANCE
        directions: Tensor = vectors[:, kept] / values[kept].sqrt() / deviations[:, None]
        return directions

    def within(self) -> Tensor:
        """Return S_W, (d, d)."""
        if self._weights.uniform is not None:
            return self._moments.within * self._weights.uniform
        assert self._weighted is not None
        return self._weighted.within

    def between_rows(self) -> Tensor:
        """Return B, (C, d), with the rows sqrt(between_c) (mu_c - mu)."""
        mean = self._weights.between @ self.means / self._weights.total
        return self._weights.between.sqrt()[:, None] * (self.means - mean)

    def between(self) -> Tensor:
        """Return S_B, (d, d)."""
        rows = self.between_rows()
        between = rows.T @ rows
        if self._weights.residual is not None:
            between += self._moments.within / (self.counts.sum() - 1) - self.within()
        return between

    def with_class(self, features: Numbers, label: int) -> FeatureStatistics:
        """Return new statistics with one more class, given the features (k, d) of that class.

        Raises ValueError if the class already exists.
        """
        if label in self.classes:
            raise ValueError(f"class {label} already exists: choose another id")
        features = as_tensor(features, "features").detach().cpu()
        labels = torch.full((len(features),), label)
        check_batch(features, labels)
        classes, order = torch.cat([self.classes, labels[:1]]).sort()
        counts = torch.cat([self.counts, torch.tensor([len(labels)])])[order]
        larger = FeatureStatistics(classes, counts, scatter=self.scatter, class_weight=self.class_weight)
        larger._plain, larger._weighted = self._moments, self._rescaled(larger._weights.within[order.argsort()][:-1])
        larger.update(features, labels)
        return larger

    def _rescaled(self, weights: Tensor) -> ClassMoments | None:
        """Return the weighted moments for different class weights (C,), which are ours times one common factor."""
        if self._weighted is None:
            return None
        factor = weights.max() / self._weights.within.max() if self._weights.within.max() > 0 else torch.tensor(1.0)
        moments = self._weighted
        return ClassMoments(moments.classes, moments.counts, moments.means * factor.sqrt(), moments.within * factor)

    def state(self) -> dict[str, Tensor]:
        """Return the tensors from which `from_state` restores these statistics."""
        within = torch.empty(0) if self._weighted is None else self._weighted.within
        return {
            "classes": self.classes,
            "counts": self.counts,
            "means": self.means,
            "within": self._moments.within,
            "weighted": within.double(),
        }

    @classmethod
    def from_state(
        cls, state: dict[str, Tensor], *, scatter: Scatter = "pooled", class_weight: ClassWeight = None
    ) -> FeatureStatistics:
        """Restore the statistics that `state` returned."""
        classes, counts, means = state["classes"], state["counts"], state["means"]
        statistics = cls(classes, counts, scatter=scatter, class_weight=class_weight)
        statistics._plain = ClassMoments(classes, counts, means, state["within"])
        if statistics._weights.uniform is None:
            statistics._weighted = ClassMoments(classes, counts, means, state["weighted"])
        return statistics

    @property
    def _moments(self) -> ClassMoments:
        if self._plain is None or not torch.equal(self._plain.counts, self._announced):
            seen, all_ = 0 if self._plain is None else int(self._plain.counts.sum()), int(self._announced.sum())
            reason = f"the samples seen are not the expected {all_:,}: create new statistics and add each sample once"
            if seen < all_:
                reason = f"only {seen:,} of {all_:,} samples have been seen: call update with all batches first"
            raise RuntimeError(reason)
        return self._plain


def as_tensor(values: object, name: str) -> Tensor:
    """Return a tensor unchanged, or convert an array of numbers to one. Raises TypeError for any other value."""
    if isinstance(values, Tensor):
        return values
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf":
        dtype = f" of dtype {values.dtype}" if isinstance(values, np.ndarray) else ""
        raise TypeError(
            f"{name} is of type {type(values).__name__}{dtype}, need a tensor or an array of numbers: "
            f"pass numpy.asarray({name}), with integers as class ids"
        )
    # torch rejects read-only arrays, negative strides and foreign byte orders.
    return torch.from_numpy(np.require(values, values.dtype.newbyteorder("="), ["C", "W"]))


def _merged(before: ClassMoments | None, new: ClassMoments) -> ClassMoments:
    return new if before is None else before.merge(new)
