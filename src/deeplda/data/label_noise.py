"""Label noise of a known rate and kind, to study objectives on training sets with wrong labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from deeplda.data.dataset import Data, Labels, Part
from deeplda.data.known_sets import KNOWN_SETS

NoiseKind = Literal["symmetric", "pairs"]

# The confusions that are usual for CIFAR-10 (Patrini et al., 2017; Zhang and Sabuncu, 2018); other classes have none.
_CIFAR10 = KNOWN_SETS["cifar10"].class_names
_CIFAR10_PAIRS = {"truck": "automobile", "bird": "airplane", "deer": "horse", "cat": "dog", "dog": "cat"}


def with_label_noise(data: Data, rate: float, kind: NoiseKind, seed: int) -> Data:
    """Return the data with wrong labels in the training and validation sets; the test set keeps its labels.

    Args:
        rate: the fraction of wrong labels, from 0 to 1, in each class that the noise affects and in each of the two
            sets. It is exact up to rounding, except that every class keeps at least one right label.
        kind: "symmetric" replaces labels of all classes by one of the other classes, drawn uniformly. "pairs" replaces
            each label by one fixed class: the next class, and the first class for the last one. On data with the
            classes of CIFAR-10, it is a class that looks similar: truck becomes automobile, bird airplane, deer horse,
            cat dog and dog cat; the other five classes are not affected, so half as many labels are wrong in all.
        seed: determines, with the labels, which labels are wrong and what they become.
    """
    if rate == 0:
        return data
    partners = None if kind == "symmetric" else _partners(data.class_names)
    parts = [
        # Each set has a generator of its own, so that its noise does not depend on the other set.
        _with_noise(part, rate, partners, len(data.class_names), np.random.default_rng([seed, number]))
        for number, part in enumerate((data.train, data.val))
    ]
    return replace(data, train=parts[0], val=parts[1])


def _partners(class_names: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the class that a wrong label of each class becomes, (C,); the class itself if it has no wrong labels."""
    if class_names == _CIFAR10:
        return np.array([_CIFAR10.index(_CIFAR10_PAIRS.get(name, name)) for name in _CIFAR10])
    return (np.arange(len(class_names)) + 1) % len(class_names)


def _with_noise(
    part: Part, rate: float, partners: NDArray[np.int64] | None, classes: int, rng: np.random.Generator
) -> Part:
    # Imported here because it imports torch, which is not needed to list data sets.
    from deeplda.sampling import stratified_split

    labels: Labels = part.labels.copy()
    affected = np.arange(len(part)) if partners is None else np.flatnonzero(partners[labels] != labels)
    if len(affected) == 0:
        return part
    wrong = affected[stratified_split(labels[affected], round(rate * len(affected)), rng)[1]]
    if partners is None:
        labels[wrong] = (labels[wrong] + rng.integers(1, classes, len(wrong))) % classes
    else:
        labels[wrong] = partners[labels[wrong]]
    return replace(part, labels=labels)
