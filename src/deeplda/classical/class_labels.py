"""Users' labels, numbers or text, as the class ids that the mathematics needs, and the weights of their samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from deeplda.errors import InputError


def encode_labels(y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the sorted labels, (C,), and the class id of each sample, (n,), which is a position among them.

    Raises InputError if there is only one class, and ValueError if y does not contain classes.
    """
    check_classification_targets(y)
    classes, ids = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        # scikit-learn's own checks look for these words.
        what = "The number of classes has to be greater than one; got 1 class"
        raise InputError(f"{what}: add samples of another class")
    return classes, ids.astype(np.int64)


def extend_labels(
    known: NDArray[Any], y: NDArray[Any], *, fixed: bool = False
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the known labels followed by new ones, and the class id of each sample, a position among them.

    A class keeps its id for ever, whatever classes appear later. With `fixed`, all labels have to be known. Raises
    InputError if they are not, or if text and numbers are mixed.
    """
    check_classification_targets(y)
    found, inverse = np.unique(y, return_inverse=True)
    if len(known) and (known.dtype.kind in "OUS") != (found.dtype.kind in "OUS"):
        what = f"labels are of type {found.dtype}, but those before were of type {known.dtype}"
        raise InputError(what, need="one type", do="convert the labels")
    new = found[~np.isin(found, known)]
    if fixed and len(new):
        what = f"y contains {new[0]!r}, which is not in classes"
        raise InputError(what, need="the labels announced in the first call", do="announce all classes, or none")
    labels = np.concatenate([known, new]) if len(known) else new
    order = np.argsort(labels, kind="stable")
    ids = order[np.searchsorted(labels[order], found)]
    return labels, ids[inverse].astype(np.int64)


def checked_weights(sample_weight: ArrayLike, inputs: Any) -> NDArray[np.float64]:
    """Return the weights of samples, (n,).

    Raises ValueError if they are negative or not finite, if all are 0, or if there are not n.
    """
    weights: NDArray[np.float64] = _check_sample_weight(
        sample_weight, inputs, dtype=np.float64, ensure_non_negative=True
    )
    if not weights.any():
        # The words of scikit-learn, which checks this itself since 1.9.
        raise InputError("Sample weights must contain at least one non-zero number: all are 0")
    return weights
