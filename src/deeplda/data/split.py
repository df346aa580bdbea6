"""Stratified splits: exact totals, every class kept in train, the same for the same seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeplda.data.dataset import Data, Labels, Part, Source
from deeplda.errors import InputError, got

TEST_SHARE = 0.15
VAL_SHARE = 0.15


def complete(source: Source, seed: int) -> Data:
    """Split off the parts that the source does not have.

    No test part: `TEST_SHARE` of the whole becomes test and, if validation is missing too, `VAL_SHARE` of the whole
    becomes validation (70/15/15). A test part but no validation part: `source.val_share` of train becomes validation.

    Raises InputError for fewer than two classes and where no sample can be spared for a part.
    """
    train, val, test = source.train, source.val, source.test
    classes = len(np.unique(train.labels))
    if classes < 2:
        found = source.class_names[train.labels[0]] if len(train) else "none"
        raise InputError(
            got(f"{source.name} has training samples of one class only ({found})", need="two or more", do="add a class")
        )
    rng = np.random.Generator(np.random.PCG64(seed))
    # Both sizes are shares of the whole, so they are fixed before anything is taken.
    test_size = _size(len(train), TEST_SHARE)
    val_size = _size(len(train), source.val_share if test is not None else VAL_SHARE)
    if test is None:
        train, test = _split_off(train, test_size, rng, source.name, "test")
    if val is None:
        train, val = _split_off(train, val_size, rng, source.name, "validation")
    return Data(source.name, train, val, test, source.class_names, source.left_out)


def stratified(labels: Labels, size: int, rng: np.random.Generator) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
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


def _size(n: int, share: float) -> int:
    return max(1, int(n * share + 0.5))


def _split_off(part: Part, size: int, rng: np.random.Generator, name: str, what: str) -> tuple[Part, Part]:
    rest, taken = stratified(part.labels, size, rng)
    if not len(taken):
        raise InputError(
            got(
                f"{name} has {len(part)} training samples of {len(np.unique(part.labels))} classes, none to spare",
                need=f"more than one of some class for a {what} part",
                do=f"add samples, or give a {what} part",
            )
        )
    return part.take(rest), part.take(taken)
