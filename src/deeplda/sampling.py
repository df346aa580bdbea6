"""Which samples make up a batch, a subsample or a held-out part."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


def epoch_batches(
    labels: NDArray[np.int64], batch_size: int, *, kind: Literal["shuffle", "stratified"], seed: int, epoch: int
) -> list[Indices]:
    """Places of the samples of each batch; a function of seed and epoch alone, so that any epoch can be had again.

    "shuffle": all samples in random order; a last short batch is completed from the start of the epoch, as the
    original DLDA code does. "stratified": the samples of each class are dealt out to the batches in turn, so that
    every batch holds every class that has at least as many samples as there are batches; batches differ by one
    sample at most. Either way there are ceil(n / batch_size) batches and every sample is in one.
    """
    rng = np.random.default_rng([seed, epoch])
    n = len(labels)
    batches = -(-n // batch_size)
    if kind == "stratified":
        order = np.concatenate(
            [rng.permutation(np.flatnonzero(labels == c)) for c in rng.permutation(np.unique(labels))]
        )
        return [order[start::batches] for start in range(batches)]
    order = rng.permutation(n)
    if batches > 1:
        order = np.concatenate([order, order[: batches * batch_size - n]])
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def stratified_sample(labels: NDArray[np.int64], size: int, seed: int) -> Indices:
    """Places of at most about `size` samples, classes in their proportions and at least one of each."""
    if len(labels) <= size:
        return np.arange(len(labels))
    rng = np.random.default_rng(seed)
    share = size / len(labels)
    places = [np.flatnonzero(labels == c) for c in np.unique(labels)]
    return np.sort(np.concatenate([rng.permutation(p)[: max(1, round(share * len(p)))] for p in places]))


def sufficient_batch_size(wanted: int, labels: NDArray[np.int64], objective: str) -> int:
    """`wanted`, or more where batches would come out with one class (or, for cross-entropy, one sample) alone.

    Classes are what the loop trains on: `labels` are subclasses where it trains on those.

    The stratified sampler deals a class of k samples out to k batches, so two classes are in every batch as long as
    there are no more batches than the second largest class has samples.
    """
    counts = np.sort(np.bincount(labels))
    most = len(labels) // 2 if objective == "cce" else int(counts[-2])
    batches = min(-(-len(labels) // wanted), most)
    return -(-len(labels) // batches)


def stratified(
    labels: NDArray[np.int64], size: int, rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Choose `size` samples, each class by its share; fewer only where a class would lose its last sample.

    Args:
        labels: (n,) the labels.

    Returns:
        The places of the rest and of the chosen, both ascending.
    """
    _, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
    taken = np.zeros(len(labels), dtype=bool)
    for c, share in enumerate(allocate(counts, size)):
        taken[rng.permutation(np.flatnonzero(place == c))[:share]] = True
    return np.flatnonzero(~taken), np.flatnonzero(taken)


def allocate(counts: NDArray[np.intp], size: int) -> NDArray[np.intp]:
    """How many of each class to take, by largest remainder: `size` in all, at most all but one of each class.

    Each class gets its quota counts * size / n rounded down or up, up for the largest remainders; ties go to the
    first class. Only where classes of few samples cannot give theirs does another class give more.
    """
    total = int(counts.sum())
    size = min(size, total - len(counts))
    share = counts * size // total
    order = np.argsort(-(counts * size % total), kind="stable")
    while (short := size - int(share.sum())) > 0:
        able = order[share[order] < counts[order] - 1]
        share[able[:short]] += 1
    return share
