"""The sum of |h - mean|^4 over a labelled set, for sets that arrive in batches.

The class means change with every batch. If the mean of a class moves by a, then each centred row z becomes z - a, and

    sum |z - a|^4 = sum |z|^4 - 4 a . sum |z|^2 z + 4 a' W a + 2 |a|^2 tr W + n |a|^4,

where W is the scatter of that class alone. The exact value therefore needs a (d, d) scatter for every class; the pooled
scatter is not enough. All sums are taken around the current means, so an offset of the features costs no precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from deeplda.core.moments import CentredBatch, check_batch, full_precision, gram, union_of


@dataclass(frozen=True, slots=True)
class NormMoments:
    """Sums of powers of the norms of centred features, for each class.

    With z the features minus the mean of their class, and sums over the samples of one class:

    Attributes:
        classes: (C,) int64, the class ids present, ascending.
        counts: (C,) float64, the number of samples, or the sum of their weights.
        means: (C, d) float64, the class means.
        scatters: (C, d, d) float64, sum z z'.
        thirds: (C, d) float64, sum |z|^2 z.
        fourths: (C,) float64, sum |z|^4.
    """

    classes: Tensor
    counts: Tensor
    means: Tensor
    scatters: Tensor
    thirds: Tensor
    fourths: Tensor

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, weights: Tensor | None = None) -> NormMoments:
        """Compute the sums for `features` (n, d) with `labels` (n,) and positive `weights` (n,), by default 1.

        Raises ValueError if the largest magnitude of the features is not 0 and not from 1e-72 to 1e72.
        """
        check_batch(features, labels, weights)
        with full_precision(features):
            batch = CentredBatch.of(features.double(), labels, weights)
            batch.check_power(4)
            squares = batch.rows.square().sum(1)
            counted = squares if batch.weights is None else squares * batch.weights
            thirds = torch.zeros_like(batch.means).index_add_(0, batch.class_of, batch.rows * counted[:, None])
            fourths = torch.zeros_like(batch.counts).index_add_(0, batch.class_of, counted * squares)
            rooted = batch.rows if batch.weights is None else batch.rows * batch.weights.sqrt()[:, None]
            rows = torch.split(rooted[batch.class_of.argsort()], batch.class_of.bincount().tolist())
            scatters = torch.stack([gram(part) for part in rows])
            scale = batch.scale
        # The square of the scale is finite, but higher powers need not be.
        means, thirds, fourths = batch.means / scale, thirds / scale**2 / scale, fourths / scale**2 / scale**2
        return cls(batch.classes, batch.counts, means, scatters / scale**2, thirds, fourths)

    def merge(self, other: NormMoments) -> NormMoments:
        """Return the exact sums for the union of both sets, which have the same features."""
        classes, ours, theirs = union_of(self.classes, other.classes)
        counts = self.counts.new_zeros(2, len(classes))
        counts[0, ours], counts[1, theirs] = self.counts, other.counts
        means = self.means.new_zeros(2, len(classes), self.means.shape[1])
        means[0, ours], means[1, theirs] = self.means, other.means
        share = (counts[1] / counts.sum(0))[:, None]
        # A class that only one set has keeps its mean, because its share in the other set is 0.
        difference = means[1] - means[0]
        mean = means[0] + share * difference
        merged = NormMoments(
            classes,
            counts.sum(0),
            mean,
            self.scatters.new_zeros(len(classes), *self.scatters.shape[1:]),
            self.thirds.new_zeros(mean.shape),
            self.fourths.new_zeros(len(classes)),
        )
        merged._add(self, ours, (share * difference)[ours])
        merged._add(other, theirs, ((share - 1) * difference)[theirs])
        return merged

    def relabelled(self, ids: Tensor) -> NormMoments:
        """Return the same sums with the class ids `ids` (C,), which are distinct, in place of `classes`."""
        classes, at = ids.sort()
        sums = (self.counts, self.means, self.scatters, self.thirds, self.fourths)
        return NormMoments(classes, *(values[at] for values in sums))

    def _add(self, other: NormMoments, place: Tensor, shift: Tensor) -> None:
        """Add the sums of `other` to the classes at `place`, whose means are `shift` (C, d) away from its means."""
        squared = shift.square().sum(1)
        product = (other.scatters @ shift[:, :, None])[:, :, 0]
        trace = other.scatters.diagonal(dim1=1, dim2=2).sum(1)
        self.scatters[place] += other.scatters + (other.counts[:, None] * shift)[:, :, None] * shift[:, None, :]
        self.thirds[place] += other.thirds - 2 * product - (trace + other.counts * squared)[:, None] * shift
        self.fourths[place] += (
            other.fourths
            - 4 * (shift * other.thirds).sum(1)
            + 4 * (shift * product).sum(1)
            + 2 * trace * squared
            + other.counts * squared.square()
        )
