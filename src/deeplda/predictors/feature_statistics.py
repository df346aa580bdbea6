"""The statistics that predictors are fitted from, accumulated batch by batch."""

from __future__ import annotations

import torch
from torch import Tensor

from deeplda.core.checks import ClassWeight, Scatter, check_batch, check_regularisation
from deeplda.core.moments import ClassMoments, class_moments
from deeplda.core.scatter import ScatterWeights
from deeplda.errors import got

# Directions with less than this share of variance, after each dimension is brought to variance 1, are left out.
_LEAST_VARIANCE = 1e-8


class FeatureStatistics:
    """Counts, means and scatters of a set of features of which it is known how many each class has.

    Args:
        classes, counts: (C,) the label ids, ascending, and the samples of each in the whole set, which fix the
            weights of the classes. `for_labels` takes them from labels.
        scatter, class_weight: the reading of S_W and S_B, as in `RDLDALoss`.

    After `update` has seen every batch, all figures are those of the whole set, exactly. They are float64, on the CPU.
    """

    def __init__(
        self, classes: Tensor, counts: Tensor, *, scatter: Scatter = "pooled", class_weight: ClassWeight = None
    ) -> None:
        check_regularisation(1.0, 0.0, scatter, class_weight)
        self.classes, self.scatter, self.class_weight = classes, scatter, class_weight
        self._announced = counts.double()
        self.weights = ScatterWeights.of(counts.double(), int(counts.sum()), scatter, class_weight)
        self._plain: ClassMoments | None = None
        # The scatter of sqrt(w) h is w times that of h, so weighted scatters merge as exactly as plain ones.
        self._weighted: ClassMoments | None = None

    @classmethod
    def for_labels(
        cls, labels: Tensor, *, scatter: Scatter = "pooled", class_weight: ClassWeight = None
    ) -> FeatureStatistics:
        """Empty statistics for a set with these labels (n,)."""
        classes, counts = torch.unique(labels.cpu().long(), return_counts=True)
        return cls(classes, counts, scatter=scatter, class_weight=class_weight)

    def update(self, features: Tensor, labels: Tensor) -> None:
        """Take in a batch: features (n, d), labels (n,). Raises ValueError for a label that was not announced."""
        features, labels = features.detach().cpu().double(), labels.cpu().long()
        if not (known := torch.isin(labels, self.classes)).all():
            raise ValueError(
                got(
                    f"label {int(labels[~known][0])}",
                    need=f"one of the {len(self.classes)} classes that the statistics are for",
                    do="make them for the labels of all samples",
                )
            )
        self._plain = _merged(self._plain, class_moments(features, labels))
        if self.weights.uniform is None:
            roots = self.weights.within.sqrt()[torch.searchsorted(self.classes, labels)]
            self._weighted = _merged(self._weighted, class_moments(features * roots[:, None], labels))

    def merge(self, other: FeatureStatistics) -> None:
        """Take in what `other`, made for the same set, has seen."""
        if other._plain is not None:
            self._plain = _merged(self._plain, other._plain)
        if other._weighted is not None:
            self._weighted = _merged(self._weighted, other._weighted)

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

    def whitening(self) -> Tensor:
        """A, (d, r), with A A' the pseudo-inverse of the pooled covariance: dead dimensions are left out."""
        covariance = self.pooled()
        deviations = covariance.diagonal().sqrt()
        # What a dimension that is constant keeps of its value by the rounding of its means.
        rounding = self.means.abs().amax(0) * self.counts.max() * torch.finfo(torch.float64).eps
        deviations = torch.where(deviations > rounding, deviations, torch.inf)
        values, vectors = torch.linalg.eigh(covariance / torch.outer(deviations, deviations))
        kept = values > _LEAST_VARIANCE
        directions: Tensor = vectors[:, kept] / values[kept].sqrt() / deviations[:, None]
        return directions

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

    def with_class(self, features: Tensor, label: int) -> FeatureStatistics:
        """The statistics of this set and one more class, of `features` (k, d). Raises ValueError for a class known."""
        if label in self.classes:
            raise ValueError(got(f"class {label} is there already", need="a new one", do="choose another id"))
        labels = torch.full((len(features),), label)
        check_batch(features, labels)
        order = torch.cat([self.classes, labels[:1]]).argsort()
        classes = torch.cat([self.classes, labels[:1]])[order]
        counts = torch.cat([self.counts, torch.tensor([len(labels)])])[order]
        larger = FeatureStatistics(classes, counts, scatter=self.scatter, class_weight=self.class_weight)
        larger._plain, larger._weighted = self._moments, self._rescaled(larger.weights.within[order.argsort()][:-1])
        larger.update(features, labels)
        return larger

    def _rescaled(self, weights: Tensor) -> ClassMoments | None:
        """The weighted moments for other weights (C,) of the classes, which differ from ours by one common factor."""
        if self._weighted is None:
            return None
        factor = weights.max() / self.weights.within.max() if self.weights.within.max() > 0 else torch.tensor(1.0)
        moments = self._weighted
        return ClassMoments(moments.classes, moments.counts, moments.means * factor.sqrt(), moments.within * factor)

    def state(self) -> dict[str, Tensor]:
        """Tensors that `from_state` makes the same statistics of."""
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
        """The statistics that `state` was taken of."""
        classes, counts, means = state["classes"], state["counts"], state["means"]
        statistics = cls(classes, counts, scatter=scatter, class_weight=class_weight)
        statistics._plain = ClassMoments(classes, counts, means, state["within"])
        if statistics.weights.uniform is None:
            statistics._weighted = ClassMoments(classes, counts, means, state["weighted"])
        return statistics

    @property
    def _moments(self) -> ClassMoments:
        if self._plain is None or not torch.equal(self._plain.counts, self._announced):
            seen, all_ = 0 if self._plain is None else int(self._plain.counts.sum()), int(self._announced.sum())
            if seen < all_:
                raise RuntimeError(f"{seen:,} of {all_:,} samples have been seen: call update with all batches first")
            raise RuntimeError(
                f"other samples have been seen than the {all_:,} announced: make new statistics, update with each once"
            )
        return self._plain


def _merged(before: ClassMoments | None, new: ClassMoments) -> ClassMoments:
    return new if before is None else before.merge(new)
