"""How many groups a class has, by the silhouettes of k-means."""

from __future__ import annotations

import numpy as np

from deeplda.subclasses.kmeans import Points, kmeans

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
