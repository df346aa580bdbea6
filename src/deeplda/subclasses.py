"""Subclasses: classes split by k-means in an embedding, and the way back to classes."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral
from typing import Any, Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from deeplda.errors import got

__all__ = ["Clusters", "SubclassMap", "choose_k", "split_classes"]


@dataclass(frozen=True)
class SubclassMap:
    """Which class each subclass belongs to.

    Subclasses are 0..S-1 and classes 0..C-1. The subclasses of a class stand side by side, and classes in their order,
    so that a tie between the highest scores goes to the same class before and after the way back.

    Args:
        parents: the class of each subclass, such as (0, 0, 1, 2, 2): ascending from 0, no class left out.

    Raises ValueError for other parents.
    """

    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        ascending = all(0 <= later - earlier <= 1 for earlier, later in pairwise(self.parents))
        if not self.parents or self.parents[0] != 0 or not ascending:
            raise ValueError(
                got(
                    f"parents {self.parents}",
                    need="the class of each subclass, ascending from 0, with no class left out",
                    do="number subclasses class by class, as in (0, 0, 1)",
                )
            )

    @classmethod
    def of_sizes(cls, sizes: Sequence[int]) -> SubclassMap:
        """The map for classes of so many subclasses each: [2, 1] gives parents (0, 0, 1)."""
        return cls(tuple(parent for parent, size in enumerate(sizes) for _ in range(size)))

    def __len__(self) -> int:
        """The number of subclasses, S."""
        return len(self.parents)

    @property
    def classes(self) -> int:
        """The number of classes, C."""
        return self.parents[-1] + 1

    @property
    def sizes(self) -> list[int]:
        """The number of subclasses of each class."""
        counts = Counter(self.parents)
        return [counts[parent] for parent in range(self.classes)]

    def names(self, class_names: Sequence[str]) -> tuple[str, ...]:
        """A name for each subclass: "cat/0", "cat/1", and plain "cat" where it is the only one of its class."""
        if len(class_names) != self.classes:
            raise ValueError(
                got(f"{len(class_names)} class names", need=f"{self.classes}", do="name every class of the map")
            )
        return tuple(
            f"{name}/{place}" if size > 1 else name
            for name, size in zip(class_names, self.sizes, strict=True)
            for place in range(size)
        )

    @overload
    def to_classes(self, subclasses: Tensor) -> Tensor: ...
    @overload
    def to_classes(self, subclasses: NDArray[Any]) -> NDArray[np.int64]: ...
    def to_classes(self, subclasses: Tensor | NDArray[Any]) -> Tensor | NDArray[np.int64]:
        """The class of each subclass label, of any shape: tensor to tensor on its device, array to array, int64.

        The highest of subclass scores (n, S), brought to its class, is the paper's prediction.
        Raises ValueError for a label that is no subclass.
        """
        labels = np.asarray(subclasses) if not isinstance(subclasses, Tensor) else subclasses
        outside = labels[(labels < 0) | (labels >= len(self))]
        if len(outside):
            raise ValueError(
                got(f"subclass {int(outside[0])}", need=f"0 to {len(self) - 1}", do="use the map of these labels")
            )
        if isinstance(labels, Tensor):
            return torch.tensor(self.parents, device=labels.device)[labels.long()]
        parents: NDArray[np.int64] = np.array(self.parents, dtype=np.int64)[labels.astype(np.int64)]
        return parents

    def class_scores(self, scores: Tensor) -> Tensor:
        """The best score among the subclasses of each class: (n, S) -> (n, C).

        Its `argmax` is the class of the best subclass, the paper's prediction, also where scores tie.
        """
        return torch.stack([siblings.amax(1) for siblings in self._by_class(scores)], dim=1)

    def class_log_sums(self, scores: Tensor) -> Tensor:
        """log of the sum of exp(score) over the subclasses of each class: (n, S) -> (n, C).

        Its softmax is the probability of each class: the sum of those of its subclasses by the softmax of `scores`.
        """
        return torch.stack([siblings.logsumexp(1) for siblings in self._by_class(scores)], dim=1)

    def _by_class(self, values: Tensor) -> tuple[Tensor, ...]:
        """The columns of the subclasses of each class. ValueError if there is not one for each subclass."""
        if values.ndim != 2 or values.shape[1] != len(self):
            raise ValueError(
                got(
                    f"values of shape {tuple(values.shape)}",
                    need=f"(n, {len(self)}), one for each subclass",
                    do="pass what a predictor of these subclasses gave",
                )
            )
        return torch.split(values, self.sizes, dim=1)


Points = NDArray[np.floating[Any]]
Labels = NDArray[np.int64]


def kmeans(points: Points, k: int, *, seed: int, n_init: int) -> Labels:
    """The best of `n_init` runs of k-means: points (n, d) -> labels (n,), 0 for the largest cluster.

    There are fewer than k labels where points are too alike to be told apart. Clusters of equal size come in the
    order of their centres.
    """
    # Imported when used: it takes seconds, and a model that only predicts does without.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # "Number of distinct clusters found smaller than n_clusters": said by the labels.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = KMeans(k, n_init=n_init, random_state=seed).fit_predict(points)
    return by_size(points, labels.astype(np.int64))


def merge_small(points: Points, labels: Labels, smallest: int) -> tuple[Labels, list[int]]:
    """Merge each cluster of fewer than `smallest` points, the smallest first, into the one with the nearest centre.

    Returns:
        The labels, numbered as those of `kmeans`, and the size of each cluster that was merged.
    """
    merged: list[int] = []
    while labels.max() > 0 and (size := int(np.bincount(labels)[-1])) < smallest:
        *others, last = centres(points, labels)
        nearest = np.linalg.norm(np.array(others) - last, axis=1).argmin()
        labels = by_size(points, np.where(labels == labels.max(), nearest, labels))
        merged.append(size)
    return labels, merged


def centres(points: Points, labels: Labels) -> NDArray[np.float64]:
    """The mean of the points of each label 0..k-1, (k, d)."""
    return np.array([points[labels == label].mean(0, dtype=np.float64) for label in range(labels.max() + 1)])


def by_size(points: Points, labels: Labels) -> Labels:
    """The labels numbered anew: 0 for the largest cluster; clusters of equal size in the order of their centres."""
    _, labels, counts = np.unique(labels, return_inverse=True, return_counts=True)
    middle = centres(points, labels)
    order = sorted(range(len(counts)), key=lambda label: (-counts[label], *middle[label]))
    return np.argsort(order)[labels]


MOST = 4
TIMES_GAUSSIAN = 1.35
# Of the Gaussian's points, and of k-means on each: more change the choice too seldom for the time they take.
_DRAWS = 3
_RUNS = 3


def choose_k(points: Points, *, seed: int, smallest: int, sample: int) -> tuple[int, str]:
    """The number of groups of points (n, d), 1 to 4, and the reason in words.

    It is the k of the highest silhouette, among those that find groups: the silhouette is 1.35 times, or more, that
    of the same k on points of one Gaussian with the mean and covariance of these. 1 where no k does.

    A threshold on the silhouette itself cannot tell one group from two: k-means cuts one round Gaussian with 0.31 in 2
    dimensions and 0.08 in 10, and two groups 10 standard deviations apart have 0.085 in 256 dimensions. Against
    a Gaussian of their own covariance, neither the dimension nor the elongation of the points counts. One Gaussian
    group then stays near 1 or below, and points spread evenly over a square, cut into its four quarters, reach 1.3.
    Two groups of the same size reach 1.4 when they are 5 deviations apart, and 1.6 at most; three and four reach more.

    Args:
        smallest: a k with a cluster of fewer points does not count.
        sample: of more points than this, so many are taken at random.
    """
    rng = np.random.default_rng(seed)
    points = points[rng.permutation(len(points))[:sample]].astype(np.float64)
    gaussians = [_gaussian_like(points, rng) for _ in range(_DRAWS)]
    best, best_silhouette, its_gaussian = 1, 0.0, 0.0
    for k in range(2, min(MOST, len(points) - 1) + 1):
        silhouette = _silhouette(points, k, seed=seed, smallest=smallest)
        if silhouette <= best_silhouette:
            continue
        gaussian = float(np.mean([_silhouette(drawn, k, seed=seed, smallest=1) for drawn in gaussians]))
        if silhouette >= TIMES_GAUSSIAN * gaussian:
            best, best_silhouette, its_gaussian = k, silhouette, gaussian
    if best == 1:
        return 1, f"one group, as no k up to {MOST} has {TIMES_GAUSSIAN} times the silhouette of a Gaussian"
    return best, f"{best} groups, with a silhouette of {best_silhouette:.2g} against {its_gaussian:.2g} of a Gaussian"


def _silhouette(points: Points, k: int, *, seed: int, smallest: int) -> float:
    """The mean silhouette of k-means; -1, the lowest there is, where a cluster is below `smallest` or missing."""
    from sklearn.metrics import silhouette_score

    labels = kmeans(points, k, seed=seed, n_init=_RUNS)
    counts = np.bincount(labels)
    if len(counts) < k or counts.min() < smallest:
        return -1.0
    return float(silhouette_score(points, labels))


def _gaussian_like(points: Points, rng: np.random.Generator) -> Points:
    """As many points from the Gaussian with the covariance of these, and mean 0.

    Sums of the centred points with normal weights have their covariance, also where it is singular.
    """
    n = len(points)
    weights = rng.standard_normal((n, n)) / np.sqrt(n)
    drawn: Points = weights @ (points - points.mean(0))
    return drawn


@dataclass(frozen=True)
class Clusters:
    """Classes split into subclasses. Within a class they come by size, the largest first."""

    labels: Labels
    """(n,) the subclass of each sample."""
    map: SubclassMap
    centres: NDArray[np.float64]
    """(S, d) the mean embedding of each subclass."""
    notes: list[str]
    """What the user should know, a plain sentence each: clusters merged, classes not split, k chosen."""


def split_classes(
    embeddings: NDArray[Any],
    labels: NDArray[Any],
    k: int | Literal["auto"],
    *,
    seed: int,
    n_init: int = 10,
    smallest: int = 10,
    sample: int = 2000,
    class_names: Sequence[str] | None = None,
) -> Clusters:
    """Split every class into k subclasses by k-means; the fourth step of the paper's Algorithm 1.

    A cluster of fewer than `smallest` samples joins its nearest sibling. A class stays whole if it has fewer than
    2 * smallest samples or fewer than k distinct ones. The split of a class depends on its own samples, its number
    and the seed, on no other class and not on the number of processors.

    Args:
        embeddings: (n, d), one row a sample.
        labels: (n,), classes 0..C-1, each there at least once.
        k: subclasses of each class, or "auto" for 1 to 4, chosen for each class as `choose_k` says.
        n_init: runs of k-means, of which the best is kept.
        sample: "auto" compares so many samples of a class at most.
        class_names: for the notes; "class 0" and so on where not given.

    Raises ValueError for arguments that do not fit.
    """
    points, labels = _checked(embeddings, labels)
    _check_settings(k, n_init=n_init, smallest=smallest)
    classes = int(labels.max()) + 1
    names = [f"class {c}" for c in range(classes)] if class_names is None else class_names
    if len(names) != classes:
        raise ValueError(
            got(f"{len(names)} class names and labels of {classes} classes", need="a sample of each", do="check both")
        )
    subclasses = np.empty_like(labels)
    sizes: list[int] = []
    notes: list[str] = []
    # Sums over several threads can differ in their last digit from one run to the next.
    with threadpool_limits(1):
        for c, name in enumerate(names):
            here = labels == c
            class_seed = int(np.random.SeedSequence([seed, c]).generate_state(1)[0])
            groups, said = _split_class(
                points[here], k, seed=class_seed, n_init=n_init, smallest=smallest, sample=sample
            )
            subclasses[here] = sum(sizes) + groups
            sizes.append(int(groups.max()) + 1)
            notes += [f"{name}: {note}" for note in said]
    return Clusters(subclasses, SubclassMap.of_sizes(sizes), centres(points, subclasses), notes)


def _split_class(
    points: Points, k: int | Literal["auto"], *, seed: int, n_init: int, smallest: int, sample: int
) -> tuple[Labels, list[str]]:
    """Labels (n,) of the groups of one class, 0 for the largest, and what to say about them."""
    whole = np.zeros(len(points), dtype=np.int64)
    if k == 1:
        return whole, []
    if len(points) < 2 * smallest:
        return whole, [f"not split, as {_count(len(points), 'sample')} cannot make two clusters of {smallest}"]
    notes = []
    if k == "auto":
        k, reason = choose_k(points, seed=seed, smallest=smallest, sample=sample)
        notes.append(reason)
    distinct = len(np.unique(points, axis=0))
    if distinct < k:
        return whole, [*notes, f"not split into {k}, as it has {_count(distinct, 'distinct sample')}"]
    if k == 1:
        return whole, notes
    found = kmeans(points, k, seed=seed, n_init=n_init)
    left = int(found.max()) + 1
    if left < k:
        notes.append(f"{_count(left, 'cluster')} instead of {k}, as its samples are too alike")
    groups, merged = merge_small(points, found, smallest)
    for size in merged:
        left -= 1
        remain = "1 subclass remains" if left == 1 else f"{left} subclasses remain"
        notes.append(f"cluster of {_count(size, 'sample')} merged into its nearest sibling, {remain}")
    return groups, notes


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _checked(embeddings: NDArray[Any], labels: NDArray[Any]) -> tuple[Points, Labels]:
    """Embeddings as float32 or float64 and labels as int64. ValueError if they do not fit each other."""
    points, labels = np.asarray(embeddings), np.asarray(labels)
    if points.ndim != 2 or labels.shape != (len(points),) or not points.size:
        raise ValueError(
            got(
                f"embeddings of shape {points.shape} and labels of shape {labels.shape}",
                need="(n, d) and (n,), n and d at least 1",
                do="pass one row and one label a sample",
            )
        )
    present = np.unique(labels)
    if labels.dtype.kind not in "iu" or not np.array_equal(present, np.arange(len(present))):
        raise ValueError(got(f"labels {present}", need="integers 0..C-1, each there", do="number the classes from 0"))
    if points.dtype not in (np.float32, np.float64):
        points = points.astype(np.float64)
    if not np.isfinite(points).all():
        raise ValueError(got("embeddings with NaN or infinity", need="finite numbers", do="look at the autoencoder"))
    return points, labels.astype(np.int64)


def _check_settings(k: object, *, n_init: int, smallest: int) -> None:
    if k != "auto" and (not isinstance(k, Integral) or k < 1):
        raise ValueError(got(f"k={k!r}", need='at least 1, or "auto"', do="2 is the paper's best"))
    for name, value in (("n_init", n_init), ("smallest", smallest)):
        if value < 1:
            raise ValueError(got(f"{name}={value}", need="at least 1", do="10 is the default"))
