"""K-means of one class's points, with no cluster too small."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
