"""Which samples make up each batch of an epoch."""

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
