"""Find labels that are likely to be wrong, near-duplicates with different labels, and outliers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from deeplda.data.dataset import Inputs
from deeplda.predictors.calibration import share_quantiles

__all__ = ["Audit"]

# The search for near-duplicates looks at this many samples, each with this many neighbours, and at this many distances
# at once.
_MOST_QUERIES, _NEIGHBOURS, _DISTANCES = 5_000, 5, 2**24
# Two images are near-duplicates if the mean square of their difference is below this fraction of that of two random
# samples. Rows of numbers must be equal, because many different rows are as close as that.
_CLOSE = 0.01
_SPREAD_SAMPLES = 500
# The number of wrong labels is estimated from at most this many samples, and its interval covers 95 %.
_MOST_JUDGED = 10_000
_LEVELS = (0.025, 0.5, 0.975)


@dataclass(frozen=True, eq=False)
class Audit:
    """Samples and how well their labels fit, in the order in which they were passed.

    Attributes:
        given: (n,), the label of each sample.
        suggested: (n,), the best class other than `given`.
        margins: (n,), from about -1 to 1: how much better the given label fits than any other class. Only their order
            among samples with the same `from_training` matters: they are lower the shorter and the harder the training.
        from_training: (n,) bool, whether a margin is the mean over the epochs of the training, which finds wrong labels
            even if the network has memorised them. The others come from the scores of the finished model.
        distances: (n,), the distance to the nearest class; None if the model has no statistics for it.
        duplicates: pairs of samples with (nearly) the same content and different labels, as indices (i, j).
        mistakes: the estimated number of wrong labels, by `wrong_share` of the samples that were not trained on.
        mistakes_range: the ends of its 95 % interval.
    """

    given: NDArray[Any]
    suggested: NDArray[Any]
    margins: NDArray[np.float64]
    from_training: NDArray[np.bool_]
    distances: NDArray[np.float64] | None
    duplicates: tuple[tuple[int, int], ...]
    mistakes: int
    mistakes_range: tuple[int, int]

    @property
    def order(self) -> NDArray[np.intp]:
        """The indices of all samples, the one whose label is most likely to be wrong first, (n,).

        Margins from the training cannot be compared with margins from scores. Samples with either kind are therefore
        ranked among themselves, and the two lists are merged as if they had the same fraction of wrong labels.
        """
        places = np.empty(len(self.margins))
        for kind in (self.from_training, ~self.from_training):
            order = np.argsort(self.margins[kind], kind="stable")
            places[np.flatnonzero(kind)[order]] = (np.arange(len(order)) + 0.5) / max(1, len(order))
        return np.lexsort((self.margins, places))

    @property
    def suspects(self) -> NDArray[np.intp]:
        """The indices of the first samples of `order`, as many as labels are estimated to be wrong."""
        return self.order[: self.mistakes]

    @property
    def outliers(self) -> NDArray[np.intp]:
        """The indices of samples far from every class, by `far_samples`, the most unusual one first.

        Samples with margins from training are those that the network was trained on. Without distances, there are none.
        """
        if self.distances is None:
            return np.empty(0, dtype=np.intp)
        return far_samples(self.distances, self.from_training)

    def _named(self, names: NDArray[Any]) -> Audit:
        """Return the same audit with names (C,) for the labels, which are indices."""
        return replace(self, given=names[self.given], suggested=names[self.suggested])


def far_samples(distances: NDArray[np.float64], trained: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the indices of samples that are unusually far from every class, the most unusual one first.

    Their distance exceeds the third quartile by more than three times the interquartile range. The network brings the
    samples that it was `trained` on, (n,), closer to their classes, so these and all others have quartiles of their
    own.
    """
    beyond = np.empty(len(distances))
    for kind in (trained, ~trained):
        if kind.any():
            low, high = np.quantile(distances[kind], [0.25, 0.75])
            beyond[kind] = distances[kind] - (high + 3 * (high - low))
    return np.argsort(-beyond, kind="stable")[: int((beyond > 0).sum())]


def audit_samples(
    inputs: Inputs,
    embedding: NDArray[np.floating[Any]],
    scores: NDArray[np.float64],
    labels: NDArray[np.int64],
    distances: NDArray[np.float64] | None,
    margins: NDArray[np.floating[Any]] | None = None,
) -> Audit:
    """Audit the labels (n,) of samples with this embedding (n, d) and class scores (n, C).

    `margins` (n,) are those of the training; for a sample without one, which is NaN, the scores decide. Scores are
    unbounded and depend on the network, so their margins are divided by the root mean square and squashed by tanh.
    """
    rows = np.arange(len(labels))
    others = scores.copy()
    others[rows, labels] = -np.inf
    suggested = others.argmax(1)
    final = scores[rows, labels] - others[rows, suggested]
    scale = np.sqrt(np.square(final).mean()) if len(final) else 1.0
    found = np.tanh(final / (scale or 1.0))
    known = np.zeros(len(labels), dtype=bool) if margins is None else np.isfinite(margins)
    if margins is not None:
        found[known] = margins[known]
    # Of two equal samples with different labels, the model gives one a negative margin.
    order = np.argsort(final, kind="stable")
    queries = order[: min(_MOST_QUERIES, int((final < 0).sum()))]
    mistakes, mistakes_range = wrong_counts((wrong_share(scores[~known], labels[~known]), len(labels)))
    return Audit(
        given=labels,
        suggested=suggested,
        margins=found,
        from_training=known,
        distances=distances,
        duplicates=_conflicts(inputs, embedding, labels, queries),
        mistakes=mistakes,
        mistakes_range=mistakes_range,
    )


class WrongShare(NamedTuple):
    """The estimated fraction of wrong labels, and its 95 % interval."""

    low: float
    middle: float
    high: float


def wrong_counts(*sets: tuple[WrongShare, int]) -> tuple[int, tuple[int, int]]:
    """Return the number of wrong labels in sets of samples, given their shares and sizes, and its interval."""
    low, middle, high = (round(sum(share[place] * size for share, size in sets)) for place in range(3))
    return middle, (low, high)


def wrong_share(scores: NDArray[np.float64], labels: NDArray[np.int64]) -> WrongShare:
    """Estimate the fraction of wrong labels (n,) from the scores (n, C) of a model not trained on these samples.

    A weak model disagrees with many labels, but where it is unsure, its calibrated probabilities say so. Wrong labels
    are as common where it is sure. So the fraction is that of labels that no sharpness of the scores explains, the
    share u of a `Calibration`, as far as these labels are not right by chance: u (C - 1) / C.
    """
    if len(labels) == 0:
        return WrongShare(0.0, 0.0, 1.0)
    some = np.unique(np.linspace(0, len(labels) - 1, min(len(labels), _MOST_JUDGED)).astype(int))
    low, middle, high = share_quantiles(scores[some], labels[some], _LEVELS) * (1 - 1 / scores.shape[1])
    return WrongShare(float(low), float(middle), float(high))


def _conflicts(
    inputs: Inputs, embedding: NDArray[np.floating[Any]], labels: NDArray[np.int64], queries: NDArray[np.intp]
) -> tuple[tuple[int, int], ...]:
    """Return the pairs of a query and a sample with another label whose inputs are nearly the same.

    Nearly equal inputs have nearly equal embeddings, so only the nearest neighbours in the embedding are compared.
    """
    points, pairs = torch.from_numpy(np.ascontiguousarray(embedding, dtype=np.float32)), set[tuple[int, int]]()
    if not len(queries):
        return ()
    limit = _CLOSE * _spread(inputs) if inputs.ndim == 4 else 0.0
    step, count = max(1, _DISTANCES // len(points)), min(len(points), _NEIGHBOURS + 1)
    for start in range(0, len(queries), step):
        block = queries[start : start + step]
        near = torch.cdist(points[block], points).topk(count, largest=False).indices.numpy()
        for query, neighbours in zip(block.tolist(), near, strict=True):
            other = neighbours[labels[neighbours] != labels[query]]
            if len(other):
                both = np.asarray(inputs[np.append(other, query)], dtype=np.float64).reshape(len(other) + 1, -1)
                difference = np.square(both[:-1] - both[-1]).mean(1)
                pairs |= {(min(query, i), max(query, i)) for i in other[difference <= limit].tolist()}
    return tuple(sorted(pairs))


def _spread(inputs: Inputs) -> float:
    """Return the mean square of the difference of two random samples, from evenly spaced ones."""
    some = np.unique(np.linspace(0, len(inputs) - 1, _SPREAD_SAMPLES).astype(int))
    return float(2 * np.asarray(inputs[some], dtype=np.float64).reshape(len(some), -1).var(0).mean())


def class_indices(labels: Sequence[Any] | NDArray[Any], classes: Sequence[Any] | NDArray[Any]) -> NDArray[np.int64]:
    """Return the index in `classes` of each label, (n,); -1 for a label that is not among them."""
    number = {name: place for place, name in enumerate(np.asarray(classes).tolist())}
    return np.array([number.get(label, -1) for label in np.asarray(labels).tolist()], dtype=np.int64)
