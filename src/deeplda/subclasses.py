"""Subclasses: split classes by k-means in an embedding, and map subclasses back to classes."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from deeplda.formatting import counted

Points = NDArray[np.floating[Any]]
Labels = NDArray[np.int64]

# "auto" tries up to this many subclasses and accepts a split whose silhouette exceeds a Gaussian's by this factor.
_MAX_K = 4
_TIMES_GAUSSIAN = 1.35
# It examines a random sample of this size if a class has more samples.
_MOST_EXAMINED = 2_000
# Number of samples drawn from the Gaussian, and of k-means runs on each; larger numbers rarely change the choice.
_DRAWS = 3
_RUNS = 3

__all__ = ["Clusters", "SubclassMap", "choose_k", "split_classes"]


@dataclass(frozen=True)
class SubclassMap:
    """The map from subclasses to the classes that they belong to.

    Subclasses are 0..S-1 and classes 0..C-1. Subclasses are numbered class by class, so that a tie between the highest
    scores goes to the same class before and after mapping subclasses to classes.

    Args:
        parents: the class of each subclass, ascending from 0 without gaps, such as (0, 0, 1, 2, 2).

    Raises ValueError if `parents` has any other form.
    """

    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        ascending = all(0 <= later - earlier <= 1 for earlier, later in pairwise(self.parents))
        if not self.parents or self.parents[0] != 0 or not ascending:
            raise ValueError(
                f"parents is {self.parents}, need the class of each subclass, ascending from 0 without gaps: "
                "number subclasses class by class, as in (0, 0, 1)"
            )

    @classmethod
    def of_sizes(cls, sizes: Sequence[int]) -> SubclassMap:
        """Create the map from the number of subclasses of each class; [2, 1] gives parents (0, 0, 1)."""
        return cls(tuple(parent for parent, size in enumerate(sizes) for _ in range(size)))

    def __len__(self) -> int:
        """Return the number of subclasses, S."""
        return len(self.parents)

    @property
    def classes(self) -> int:
        """The number of classes, C."""
        return self.parents[-1] + 1

    @property
    def sizes(self) -> list[int]:
        """The number of subclasses of each class."""
        # Parents ascend, and a Counter keeps their order.
        return list(Counter(self.parents).values())

    def names(self, class_names: Sequence[str]) -> tuple[str, ...]:
        """Return a name for each subclass: "cat/0" and "cat/1", or just "cat" for the only subclass of a class."""
        if len(class_names) != self.classes:
            raise ValueError(f"there are {len(class_names)} class names, need {self.classes}, one for each class")
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
        """Map subclass labels of any shape to classes, as int64: a tensor on the same device, or an array.

        The class of the subclass with the highest score is the paper's prediction.
        Raises ValueError if a label is not a subclass.
        """
        labels = subclasses if isinstance(subclasses, Tensor) else np.asarray(subclasses)
        outside = labels[(labels < 0) | (labels >= len(self))]
        if len(outside):
            what = f"a subclass label is {int(outside[0])}, need 0 to {len(self) - 1}"
            raise ValueError(f"{what}: use the map that belongs to these labels")
        if isinstance(labels, Tensor):
            return torch.tensor(self.parents, device=labels.device)[labels.long()]
        parents: NDArray[np.int64] = np.array(self.parents, dtype=np.int64)[labels.astype(np.int64)]
        return parents

    def class_scores(self, scores: Tensor) -> Tensor:
        """Return the best score among the subclasses of each class: (n, S) -> (n, C).

        Its `argmax` is the class of the best subclass, the paper's prediction, even if scores tie.
        """
        return torch.stack([siblings.amax(1) for siblings in self._by_class(scores)], dim=1)

    def class_log_sums(self, scores: Tensor) -> Tensor:
        """Return log(sum(exp(score))) over the subclasses of each class: (n, S) -> (n, C).

        Its softmax is the probability of each class, which is the sum of its subclasses' probabilities softmax(scores).
        """
        return torch.stack([siblings.logsumexp(1) for siblings in self._by_class(scores)], dim=1)

    def _by_class(self, values: Tensor) -> tuple[Tensor, ...]:
        """Split columns (n, S) by class. Raises ValueError unless there is exactly one column per subclass."""
        if values.ndim != 2 or values.shape[1] != len(self):
            raise ValueError(
                f"the scores have shape {tuple(values.shape)}, need (n, {len(self)}), one column for each subclass: "
                "pass scores from a predictor fitted on these subclasses"
            )
        return torch.split(values, self.sizes, dim=1)


@dataclass(frozen=True)
class Clusters:
    """Classes split into subclasses. Within a class, subclasses are numbered by size, the largest first.

    Attributes:
        labels: (n,) the subclass of each sample.
        map: the class of each subclass.
        centres: (S, d) the mean embedding of each subclass.
        notes: remarks for the user: clusters that were merged, classes that were not split, and each choice of k.
    """

    labels: Labels
    map: SubclassMap
    centres: NDArray[np.float64]
    notes: list[str]


def split_classes(
    embeddings: NDArray[Any],
    labels: NDArray[Any],
    k: int | Literal["auto"],
    *,
    seed: int,
    n_init: int = 10,
    smallest: int = 10,
    class_names: Sequence[str] | None = None,
) -> Clusters:
    """Split every class into k subclasses by k-means, the fourth step of the paper's Algorithm 1.

    A cluster of fewer than `smallest` samples is merged into its nearest sibling. A class is not split if it has fewer
    than 2 * smallest samples or fewer than k distinct ones. The split of a class depends only on its samples, its class
    number and the seed, not on other classes or the number of processors.

    Args:
        embeddings: (n, d), one row per sample.
        labels: (n,), the classes 0..C-1, all of which must occur.
        k: the number of subclasses per class, or "auto" for 1 to 4, chosen by `choose_k` for each class.
        n_init: the number of k-means runs, of which the best is used.
        smallest: clusters with fewer samples than this are merged.
        class_names: the class names in the notes; by default "class 0" and so on.

    Raises ValueError if an argument is invalid.
    """
    points, labels = _checked(embeddings, labels)
    if k != "auto" and (not isinstance(k, int | np.integer) or k < 1):
        raise ValueError(f'k is {k!r}, need an integer >= 1 or "auto": the paper\'s best is 2')
    for setting, value in (("n_init", n_init), ("smallest", smallest)):
        if value < 1:
            raise ValueError(f"{setting} is {value}, need at least 1: the default is 10")
    classes = int(labels.max()) + 1
    names = [f"class {c}" for c in range(classes)] if class_names is None else class_names
    if len(names) != classes:
        raise ValueError(f"there are {len(names)} class names, but the labels have {classes} classes: check both")
    subclasses = np.empty_like(labels)
    sizes: list[int] = []
    notes: list[str] = []
    # With several threads, sums can differ in their last digit from run to run.
    with threadpool_limits(1):
        for c, name in enumerate(names):
            here = labels == c
            class_seed = int(np.random.SeedSequence([seed, c]).generate_state(1)[0])
            groups, said = _split_class(points[here], k, seed=class_seed, n_init=n_init, smallest=smallest)
            subclasses[here] = sum(sizes) + groups
            sizes.append(int(groups.max()) + 1)
            notes += [f"{name}: {note}" for note in said]
    return Clusters(subclasses, SubclassMap.of_sizes(sizes), _centres(points, subclasses), notes)


def choose_k(points: Points, *, seed: int, smallest: int) -> tuple[int, str]:
    """Choose how many groups, 1 to 4, the points (n, d) form; return the number and the reason as text.

    It is the k with the highest silhouette among those that find real groups: the silhouette must be at least 1.35
    times as high as for the same k on points from one Gaussian with the same covariance. If no k qualifies, the number
    is 1.

    A threshold on the silhouette itself cannot distinguish one group from two. If k-means splits one round Gaussian,
    the silhouette is 0.31 in 2 dimensions and 0.08 in 10, while two groups 10 standard deviations apart have 0.085 in
    256 dimensions. Relative to a Gaussian with the same covariance, neither the dimension nor the elongation of the
    points matters. The ratio stays near 1 or below for one Gaussian group, and reaches 1.3 for points spread evenly
    over a square and split into its quarters. Two groups of equal size reach 1.4 at a distance of 5 standard deviations
    and 1.6 at most; three or four groups reach more.

    A k that gives a cluster with fewer than `smallest` points is rejected. Of more than 2,000 points, a random sample
    of this size is examined.
    """
    rng = np.random.default_rng(seed)
    points = points[rng.permutation(len(points))[:_MOST_EXAMINED]].astype(np.float64)
    gaussians = [_gaussian_like(points, rng) for _ in range(_DRAWS)]
    best, best_silhouette, its_gaussian = 1, 0.0, 0.0
    for k in range(2, min(_MAX_K, len(points) - 1) + 1):
        silhouette = _silhouette(points, k, seed=seed, smallest=smallest)
        if silhouette <= best_silhouette:
            continue
        gaussian = float(np.mean([_silhouette(drawn, k, seed=seed, smallest=1) for drawn in gaussians]))
        if silhouette >= _TIMES_GAUSSIAN * gaussian:
            best, best_silhouette, its_gaussian = k, silhouette, gaussian
    if best == 1:
        return 1, f"one group, because no k up to {_MAX_K} has {_TIMES_GAUSSIAN} times the silhouette of a Gaussian"
    return best, f"{best} groups, with a silhouette of {best_silhouette:.2g} against {its_gaussian:.2g} for a Gaussian"


def _split_class(
    points: Points, k: int | Literal["auto"], *, seed: int, n_init: int, smallest: int
) -> tuple[Labels, list[str]]:
    """Return the group labels (n,) of one class, 0 for the largest group, and notes about the groups."""
    unsplit = np.zeros(len(points), dtype=np.int64)
    if k == 1:
        return unsplit, []
    if len(points) < 2 * smallest:
        return unsplit, [f"not split, because {counted(len(points), 'sample')} cannot form two clusters of {smallest}"]
    notes = []
    if k == "auto":
        k, reason = choose_k(points, seed=seed, smallest=smallest)
        notes.append(reason)
    distinct = len(np.unique(points, axis=0))
    if distinct < k:
        return unsplit, [*notes, f"not split into {k}, because it has only {counted(distinct, 'distinct sample')}"]
    if k == 1:
        return unsplit, notes
    found = _kmeans(points, k, seed=seed, n_init=n_init)
    left = int(found.max()) + 1
    if left < k:
        notes.append(f"{counted(left, 'cluster')} instead of {k}, because its samples are too similar")
    groups, merged = _merge_small(points, found, smallest)
    for size in merged:
        left -= 1
        remain = "1 subclass remains" if left == 1 else f"{left} subclasses remain"
        notes.append(f"cluster of {counted(size, 'sample')} merged into its nearest sibling, {remain}")
    return groups, notes


def _checked(embeddings: NDArray[Any], labels: NDArray[Any]) -> tuple[Points, Labels]:
    """Return embeddings as float32 or float64 and labels as int64. Raises ValueError if they do not match."""
    points, labels = np.asarray(embeddings), np.asarray(labels)
    if points.ndim != 2 or labels.shape != (len(points),) or not points.size:
        raise ValueError(
            f"embeddings has shape {points.shape} and labels {labels.shape}, need (n, d) and (n,) with n and d at "
            "least 1: pass one row and one label per sample"
        )
    present = np.unique(labels)
    if labels.dtype.kind not in "iu" or not np.array_equal(present, np.arange(len(present))):
        raise ValueError(f"the labels are {present}, need all of the integers 0..C-1: number the classes from 0")
    if points.dtype not in (np.float32, np.float64):
        points = points.astype(np.float64)
    if not np.isfinite(points).all():
        raise ValueError("embeddings contains NaN or infinity, need finite numbers: check the autoencoder")
    return points, labels.astype(np.int64)


def _kmeans(points: Points, k: int, *, seed: int, n_init: int) -> Labels:
    """Return the best of `n_init` k-means runs as labels (n,) of the points (n, d), 0 for the largest cluster.

    There are fewer than k labels if too few points are distinct. Clusters of equal size are ordered by their centres.
    """
    # Imported here because the import takes seconds and a model that only predicts does not need it.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # "Number of distinct clusters found smaller than n_clusters": the caller sees that from the labels.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = KMeans(k, n_init=n_init, random_state=seed).fit_predict(points)
    return _by_size(points, labels.astype(np.int64))


def _merge_small(points: Points, labels: Labels, smallest: int) -> tuple[Labels, list[int]]:
    """Merge each cluster of fewer than `smallest` points, the smallest first, into the one with the nearest centre.

    Returns the labels, numbered as in `_kmeans`, and the size of each cluster that was merged.
    """
    merged: list[int] = []
    while labels.max() > 0 and (size := int(np.bincount(labels)[-1])) < smallest:
        *others, last = _centres(points, labels)
        nearest = np.linalg.norm(np.array(others) - last, axis=1).argmin()
        labels = _by_size(points, np.where(labels == labels.max(), nearest, labels))
        merged.append(size)
    return labels, merged


def _centres(points: Points, labels: Labels) -> NDArray[np.float64]:
    """Return the mean of the points with each label 0..k-1, (k, d)."""
    return np.array([points[labels == label].mean(0, dtype=np.float64) for label in range(labels.max() + 1)])


def _by_size(points: Points, labels: Labels) -> Labels:
    """Renumber the labels by cluster size, 0 for the largest; clusters of equal size are ordered by their centres."""
    _, labels, counts = np.unique(labels, return_inverse=True, return_counts=True)
    middle = _centres(points, labels)
    order = sorted(range(len(counts)), key=lambda label: (-counts[label], *middle[label]))
    return np.argsort(order)[labels]


def _silhouette(points: Points, k: int, *, seed: int, smallest: int) -> float:
    """Return the mean silhouette of k-means, or the minimum of -1 if a cluster is missing or below `smallest`."""
    from sklearn.metrics import silhouette_score

    labels = _kmeans(points, k, seed=seed, n_init=_RUNS)
    counts = np.bincount(labels)
    return float(silhouette_score(points, labels)) if len(counts) == k and counts.min() >= smallest else -1.0


def _gaussian_like(points: Points, rng: np.random.Generator) -> Points:
    """Draw the same number of points from a Gaussian with the same covariance and mean 0.

    Sums of the centred points with normal weights have that covariance, even if it is singular.
    """
    weights = rng.standard_normal((len(points), len(points))) / np.sqrt(len(points))
    drawn: Points = weights @ (points - points.mean(0))
    return drawn
