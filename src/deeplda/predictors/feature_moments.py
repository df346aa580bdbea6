"""Everything that a model without layers needs to know about its training features, from one pass over them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeplda.core.moments import ClassMoments
from deeplda.core.options import Scatter
from deeplda.predictors.feature_statistics import FeatureStatistics


class LayerStatistics(NamedTuple):
    """Statistics of a model's embedding and of its last hidden layer, which without layers are the same.

    Attributes:
        outputs: those of the embedding, with the class sizes of the complete set.
        features: those of the last hidden layer; None if there is no such layer, or if it is too wide. They have no
            fixed class sizes, so that samples and classes can be added later.
        some: the last hidden layer of up to 2,000 samples, (m, d), with the classes in their proportions.
    """

    outputs: FeatureStatistics
    features: FeatureStatistics | None
    some: Tensor | None


class FeatureMoments:
    """Moments of features (n, d) that arrive in blocks, in their order, as they are before they are standardised.

    The moments of the standardised features follow from them, so the features need not be read again once their mean
    and deviation are known.

    Args:
        labels: (n,), the classes of all samples.
        weights: (n,), their weights; None if all samples count once. The mean and the deviation disregard them.
        kept: (m,), ascending, the indices of samples to keep.
    """

    def __init__(self, labels: NDArray[np.int64], weights: NDArray[np.float64] | None, kept: NDArray[np.intp]) -> None:
        self._labels, self._weights, self._kept = labels, weights, kept
        self._classes = FeatureStatistics()
        self._seen = 0
        # Relative to the first sample, so that a constant feature has a deviation of exactly zero.
        self._first = self._mean = self._squares = np.empty(0)
        # Filled in place: small arrays that outlive a block would keep the allocator from using its memory again.
        self._some = np.empty((0, 0), dtype=np.float32)

    def update(self, rows: NDArray[np.float32]) -> None:
        """Add the next samples (b, d)."""
        here = slice(self._seen, self._seen + len(rows))
        self._classes.update(rows, self._labels[here], None if self._weights is None else self._weights[here])
        if self._seen == 0:
            self._some = np.empty((len(self._kept), rows.shape[1]), dtype=np.float32)
            self._first = rows[0].astype(np.float64)
            self._mean, self._squares = np.zeros_like(self._first), np.zeros_like(self._first)
        first, end = np.searchsorted(self._kept, (here.start, here.stop))
        self._some[first:end] = rows[self._kept[first:end] - here.start]
        shifted = rows - self._first
        mean = shifted.mean(0)
        difference, share = mean - self._mean, len(rows) / here.stop
        shifted -= mean
        # Both sums of squares, and that of the two means about the common one.
        self._squares += np.einsum("bd,bd->d", shifted, shifted) + self._seen * share * np.square(difference)
        self._mean = self._mean + share * difference
        self._seen = here.stop

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean of each feature, (d,)."""
        return self._first + self._mean

    @property
    def deviation(self) -> NDArray[np.float64]:
        """The standard deviation of each feature, (d,); exactly 0 if it is constant."""
        found: NDArray[np.float64] = np.sqrt(self._squares / self._seen)
        return found

    def standardised(self, mean: Tensor, deviation: Tensor, scatter: Scatter = "pooled") -> LayerStatistics:
        """Return the statistics of (h - mean) / deviation, given both (d,). Raises ValueError if `scatter` is "dorfer".

        Those scatters weight the classes, which the moments of all classes together do not allow.
        """
        if scatter == "dorfer":
            raise ValueError("scatter is 'dorfer', need 'pooled' or 'sum': gather FeatureStatistics instead")
        centre, scale, raw = mean.cpu().double(), deviation.cpu().double(), self._classes._moments
        within = raw.within / scale[:, None] / scale
        plain = ClassMoments(raw.classes, raw.counts, (raw.means - centre) / scale, within)
        outputs = FeatureStatistics.for_labels(self._labels, self._weights, scatter=scatter)
        outputs._plain = plain
        some = (torch.from_numpy(self._some) - mean.cpu()) / deviation.cpu()
        return LayerStatistics(outputs, FeatureStatistics.of(plain), some)
