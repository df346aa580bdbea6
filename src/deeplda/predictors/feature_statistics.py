"""The statistics that predictors are fitted from, accumulated batch by batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeplda.core.moments import ClassMoments, check_batch, class_moments, weighted_samples
from deeplda.core.options import (
    ClassWeight,
    Scatter,
    check_integer,
    check_number,
    check_regularisation,
    check_unweighted,
)
from deeplda.core.scatter import ScatterWeights

# After each dimension is scaled to variance 1, directions with less variance than this count as constant.
_LEAST_VARIANCE = 1e-8
_LEAST_COUNT = 64
# A Cholesky factorisation is used if its pivots exceed the least variance by this factor: directions have little less
# variance than the smallest pivot.
_SAFE_PIVOT = 8

Numbers = Tensor | NDArray[Any]


class FeatureStatistics:
    """Counts, means and scatters of a set of features that arrives in batches.

    Features and labels may be tensors or NumPy arrays. All results are float64 tensors on the CPU.

    If the class sizes are known in advance, pass them, most easily with `for_labels`. Results then describe the
    complete set exactly, and raise RuntimeError until `update` has seen every sample once. Without class sizes,
    `update` may add samples and classes at any time, and results describe the samples seen so far.

    Args:
        classes: (C,), the class ids, ascending.
        counts: (C,), the number of samples of each class in the complete set, or the sum of their weights.
            `class_weight="balanced"` and `scatter="dorfer"` weight each sample by the size of its class, so they need
            it.
        scatter: the definition of S_W and S_B, as in `DeepLDALoss`.
        class_weight: the class weights, as in `DeepLDALoss`.

    Raises ValueError or TypeError if an option is invalid or needs class sizes that are not given.
    """

    def __init__(
        self,
        classes: Numbers | None = None,
        counts: Numbers | None = None,
        *,
        scatter: Scatter = "pooled",
        class_weight: ClassWeight = None,
    ) -> None:
        check_regularisation(1.0, 0.0, scatter, class_weight)
        self.scatter, self.class_weight = scatter, class_weight
        self._announced: tuple[Tensor, Tensor] | None = None
        # The weight of a sample of each class in S_W, (C,); None if all classes have the weight 1.
        self._within_weights: Tensor | None = None
        if classes is not None and counts is not None:
            classes, counts = _checked_sizes(classes, counts)
            self._announced = classes, counts
            weights = ScatterWeights.of(counts, float(counts.sum()), scatter, class_weight)
            self._within_weights = weights.within
        elif classes is not None or counts is not None:
            raise ValueError("only one of classes and counts is given, need both or neither: pass both")
        elif scatter == "dorfer" or class_weight is not None:
            raise ValueError(
                f"the class sizes are not given, but scatter {scatter!r} with class_weight {class_weight!r} needs "
                "those of the complete set: use FeatureStatistics.for_labels(labels)"
            )
        self._plain: ClassMoments | None = None
        # The scatter of sqrt(w) h is w times the scatter of h, so weighted scatters merge as exactly as plain ones.
        self._weighted: ClassMoments | None = None

    @classmethod
    def for_labels(
        cls,
        labels: Numbers,
        sample_weight: Numbers | None = None,
        *,
        scatter: Scatter = "pooled",
        class_weight: ClassWeight = None,
    ) -> FeatureStatistics:
        """Create empty statistics for a set with these labels (n,) and, if samples have weights, these weights (n,)."""
        labels = as_tensor(labels, "labels").cpu().long()
        if sample_weight is None:
            return cls(*torch.unique(labels, return_counts=True), scatter=scatter, class_weight=class_weight)
        check_unweighted(scatter)
        weights = as_tensor(sample_weight, "sample_weight").cpu().double()
        classes, index = torch.unique(labels[weights > 0], return_inverse=True)
        counts = torch.zeros(len(classes), dtype=torch.float64).index_add_(0, index, weights[weights > 0])
        return cls(classes, counts, scatter=scatter, class_weight=class_weight)

    @classmethod
    def of(cls, moments: ClassMoments) -> FeatureStatistics:
        """Create statistics of the samples that `moments` describe; further samples and classes may be added."""
        statistics = cls()
        statistics._plain = moments
        return statistics

    def update(self, features: Numbers, labels: Numbers, sample_weight: Numbers | None = None) -> None:
        """Add a batch of features (n, d) with labels (n,) and weights (n,), by default 1.

        A sample with weight 2 counts as two samples, and one with weight 0 not at all.
        Raises ValueError or TypeError unless it is a labelled batch of finite numbers, with classes that were announced
        if any were.
        """
        features, labels = as_tensor(features, "features").detach().cpu(), as_tensor(labels, "labels").cpu()
        check_batch(features, labels)
        features, labels = features.double(), labels.long()
        weights, weighted = None, None
        if sample_weight is not None:
            check_unweighted(self.scatter)
            weights = as_tensor(sample_weight, "sample_weight").cpu()
            features, labels, weights = weighted_samples(features, labels, weights)
        if self._announced is not None and not (known := torch.isin(labels, self.classes)).all():
            raise ValueError(
                f"labels contains {int(labels[~known][0])}, need one of the {len(self.classes)} classes of these "
                "statistics: create the statistics for the labels of all samples"
            )
        if self._within_weights is not None:
            roots = self._within_weights.sqrt()[torch.searchsorted(self.classes, labels)]
            weighted = class_moments(features * roots[:, None], labels, weights)
        self._add(class_moments(features, labels, weights), weighted)

    def merge(self, other: FeatureStatistics) -> None:
        """Add the samples seen by `other`, which has the same options and the same class sizes, or also none.

        Raises ValueError if the options, class sizes or numbers of dimensions differ.
        """
        if (other.scatter, other.class_weight) != (self.scatter, self.class_weight):
            raise ValueError(
                f"the other statistics have scatter {other.scatter!r} and class_weight {other.class_weight!r}, need "
                f"{self.scatter!r} and {self.class_weight!r}: create both with the same options"
            )
        ours, theirs = self._announced, other._announced
        if (ours is None) != (theirs is None) or (
            ours is not None and theirs is not None and not all(map(torch.equal, ours, theirs))
        ):
            raise ValueError(
                "the other statistics were created for a set with different classes or class sizes, need the same: "
                "create both for the labels of the complete set, or both without labels"
            )
        if other._plain is not None:
            self._add(other._plain, other._weighted)

    @property
    def classes(self) -> Tensor:
        """The class ids, ascending, (C,) int64: those announced, or else those seen so far."""
        if self._announced is not None:
            return self._announced[0]
        return torch.empty(0, dtype=torch.long) if self._plain is None else self._plain.classes

    @property
    def counts(self) -> Tensor:
        """The number of samples of each class, or the sum of their weights, (C,) float64."""
        return self._moments.counts

    @property
    def means(self) -> Tensor:
        """The mean of each class, (C, d) float64."""
        return self._moments.means

    def pooled(self) -> Tensor:
        """Return the pooled covariance W / n, (d, d), regardless of how the scatters are defined."""
        return self._moments.within / self.counts.sum()

    def shrunk(self, shrinkage: float) -> Tensor:
        """Return the pooled covariance S shrunk towards a sphere, (1 - shrinkage) S + shrinkage tr(S) / d I, (d, d)."""
        check_number("shrinkage", shrinkage)
        covariance = self.pooled()
        sphere = float(covariance.diagonal().mean()) * shrinkage
        covariance *= 1 - shrinkage
        covariance.diagonal().add_(sphere)
        return covariance

    def whitening(self, *, shrinkage: float = 0.0, lam: float = 0.0, least_variance: float = _LEAST_VARIANCE) -> Tensor:
        """Return A, (d, r), where A A' is the pseudo-inverse of the pooled covariance; dead dimensions are ignored.

        The covariance is `shrunk(shrinkage)` + lam I. After each dimension is scaled to variance 1, directions with
        less variance than `least_variance` are dropped.
        """
        check_number("lam", lam)
        covariance = self.shrunk(shrinkage)
        covariance.diagonal().add_(lam)
        scaled, scales = self._scaled(covariance)
        root, failed = torch.linalg.cholesky_ex(scaled)
        if not failed and root.diagonal().square().min() > _SAFE_PIVOT * least_variance:
            # Nothing is dropped. This is faster than the eigenvectors, and more precise.
            identity = torch.eye(len(root), dtype=root.dtype)
            inverse: Tensor = torch.linalg.solve_triangular(root.T, identity, upper=True)
            return inverse / scales[:, None]
        values, axes = _principal_axes(scaled, scales)
        kept = values > least_variance
        return axes[:, kept] / values[kept].sqrt()

    def distance_map(self) -> Tensor:
        """Return M, (d, d), so that |M'(h - mu)| is the Mahalanobis distance of h from mu with the pooled covariance.

        After each dimension is divided by its scale, no direction has a standard deviation below 1e-4, so directions
        without variance count as well, and heavily. The scale is the standard deviation within the classes; if that is
        zero, it is the one of the class means. A constant dimension has the median scale of the others, or 1 % of its
        value if that is larger.
        """
        values, axes = _principal_axes(*self._scaled(self.pooled()))
        return axes / values.clamp(min=_LEAST_VARIANCE).sqrt()

    def _scaled(self, covariance: Tensor) -> tuple[Tensor, Tensor]:
        """Return D^-1 S D^-1, (d, d), and the diagonal D, (d,), of scales of the dimensions, for a covariance S (d, d).

        Dimensions that vary have variance 1 afterwards; those that do not have only zeros.
        """
        sizes = self.means.abs().amax(0)
        # A constant dimension can have this much deviation from the rounding of its means. Counts are sums of weights,
        # which can be small.
        rounding = sizes * self.counts.max().clamp(min=_LEAST_COUNT) * torch.finfo(torch.float64).eps
        deviations = covariance.diagonal().sqrt()
        alive = deviations > rounding
        scales = torch.where(alive, deviations, self.means.std(0, correction=0))
        constant = scales <= rounding
        typical = 1.0 if constant.all() else float(scales[~constant].median())
        scales = torch.where(constant, (sizes / 100).clamp(min=typical), scales)
        scaled = torch.where(torch.outer(alive, alive), covariance / torch.outer(scales, scales), 0.0)
        return scaled, scales

    def within(self) -> Tensor:
        """Return S_W, (d, d)."""
        if (weights := self._weights).within is None:
            return self._moments.within * weights.unit
        assert self._weighted is not None
        return self._weighted.within

    def between_rows(self) -> Tensor:
        """Return B, (C, d), with the rows sqrt(between_c) (mu_c - mu)."""
        weights = self._weights
        # Means are relative to the first one, so that an offset of the features costs no precision.
        means = self.means - self.means[0]
        return weights.between.sqrt()[:, None] * (means - weights.between @ means / weights.total)

    def between(self) -> Tensor:
        """Return S_B, (d, d)."""
        rows = self.between_rows()
        between = rows.T @ rows
        if self._weights.residual is not None:
            between += self._moments.within / (self.counts.sum() - 1) - self.within()
        return between

    def with_class(self, features: Numbers, label: int) -> FeatureStatistics:
        """Return new statistics with one more class, given the features (k, d) of that class.

        Raises ValueError if the class already exists, or if `label` is not a class id.
        """
        if check_integer("label", label, least=0) in self.classes:
            raise ValueError(f"class {label} already exists: choose another id")
        features = as_tensor(features, "features").detach().cpu()
        labels = torch.full((len(features),), label)
        check_batch(features, labels)
        classes, counts = None, None
        if self._announced is not None:
            classes, order = torch.cat([self.classes, labels[:1]]).sort()
            counts = torch.cat([self.counts, torch.tensor([len(labels)])])[order]
        larger = FeatureStatistics(classes, counts, scatter=self.scatter, class_weight=self.class_weight)
        larger._plain, larger._weighted = self._moments, self._reweighted(larger)
        larger.update(features, labels)
        return larger

    def _reweighted(self, larger: FeatureStatistics) -> ClassMoments | None:
        """Return the weighted moments with the class weights of `larger`, which are ours times one common factor."""
        if self._weighted is None or self._within_weights is None or larger._within_weights is None:
            return None
        ours, theirs = self._within_weights, larger._within_weights[torch.searchsorted(larger.classes, self.classes)]
        factor = theirs.max() / ours.max() if ours.max() > 0 else torch.tensor(1.0)
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
            "announced": torch.tensor(self._announced is not None),
        }

    @classmethod
    def from_state(
        cls, state: dict[str, Tensor], *, scatter: Scatter = "pooled", class_weight: ClassWeight = None
    ) -> FeatureStatistics:
        """Restore the statistics that `state` returned, with class sizes if they had them.

        A state from version 0.2 or earlier does not say whether it had class sizes; it is restored with them. Raises
        ValueError if these options need class sizes or a weighted scatter that the state does not have.
        """
        classes, counts, means = state["classes"], state["counts"], state["means"]
        announced = (classes, counts) if state.get("announced", True) else (None, None)
        statistics = cls(*announced, scatter=scatter, class_weight=class_weight)
        if statistics._within_weights is not None and state["weighted"].shape != state["within"].shape:
            raise ValueError(
                f"the state has no weighted scatter, which scatter {scatter!r} with class_weight {class_weight!r} "
                "needs: restore it with the options of the statistics that were saved"
            )
        statistics._plain = ClassMoments(classes, counts, means, state["within"])
        if statistics._within_weights is not None:
            roots = statistics._within_weights.sqrt()
            statistics._weighted = ClassMoments(classes, counts, means * roots[:, None], state["weighted"])
        return statistics

    def _add(self, plain: ClassMoments, weighted: ClassMoments | None) -> None:
        """Add moments of further samples; if that fails, these statistics stay as they are."""
        merged = plain if self._plain is None else self._plain.merge(plain)
        if weighted is not None:
            self._weighted = weighted if self._weighted is None else self._weighted.merge(weighted)
        self._plain = merged

    @property
    def _weights(self) -> ScatterWeights:
        return ScatterWeights.of(self.counts, float(self.counts.sum()), self.scatter, self.class_weight)

    @property
    def _moments(self) -> ClassMoments:
        seen = 0.0 if self._plain is None else float(self._plain.counts.sum())
        # Sums of weights depend on the order in which they are added.
        if self._announced is not None and not (
            self._plain is not None and torch.allclose(self._plain.counts, self._announced[1], rtol=1e-9, atol=0)
        ):
            all_ = float(self._announced[1].sum())
            reason = (
                f"the samples seen are not the expected {all_:,.12g}: create new statistics and add each sample once"
            )
            if seen < all_:
                reason = f"only {seen:,.12g} of {all_:,.12g} samples have been seen: call update with all batches first"
            raise RuntimeError(reason)
        if self._plain is None:
            raise RuntimeError("no samples have been seen: call update first")
        return self._plain


def _checked_sizes(classes: Numbers, counts: Numbers) -> tuple[Tensor, Tensor]:
    """Return class ids (C,) int64 and class sizes (C,) float64. Raises ValueError unless they can be used."""
    classes, counts = as_tensor(classes, "classes"), as_tensor(counts, "counts")
    if classes.ndim != 1 or classes.shape != counts.shape:
        what = f"classes has shape {tuple(classes.shape)} and counts has shape {tuple(counts.shape)}"
        raise ValueError(f"{what}, need (C,) for both: pass one number of samples per class")
    if classes.is_floating_point() or not (classes.diff() > 0).all():
        raise ValueError(f"classes is {classes.tolist()}, need ascending class ids: pass the result of torch.unique")
    if not ((counts > 0) & counts.isfinite()).all():
        raise ValueError(f"counts is {counts.tolist()}, need positive finite numbers: omit classes without samples")
    return classes.long(), counts.double()


def _principal_axes(scaled: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """Return v (d,), ascending, and U (d, d), where U^-T diag(v) U^-1 is the covariance before scaling, up to rounding.

    U = D^-1 V, where D contains the scales of the dimensions and V is orthogonal.
    """
    values, vectors = torch.linalg.eigh(scaled)
    return values, vectors / scales[:, None]


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
