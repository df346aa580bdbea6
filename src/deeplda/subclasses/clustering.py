"""Classes split into subclasses: k-means for each class in an embedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from deeplda.errors import got
from deeplda.subclasses.kmeans import Labels, Points, centres, kmeans, merge_small
from deeplda.subclasses.silhouette import choose_k
from deeplda.subclasses.subclass_map import SubclassMap


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
