"""Fitting the predictors on a training part, and scoring a model on another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeplda.data import Part
from deeplda.model import Model
from deeplda.predictors import FeatureStatistics

# Sees the batches of a long pass go by: the batches, the number of samples, and what is being done.
Watch = Callable[[Iterator[Tensor], int, str], Iterator[Tensor]]


def unwatched(batches: Iterator[Tensor], _samples: int, _words: str) -> Iterator[Tensor]:
    """Nobody looks."""
    return batches


def gather_statistics(model: Model, part: Part, watch: Watch = unwatched) -> FeatureStatistics:
    """Statistics of the embedding of `part`, in one pass: eval mode, no augmentation, batch by batch."""
    labels = torch.from_numpy(part.labels)
    statistics = FeatureStatistics.for_labels(labels, scatter=model.card.scatter, class_weight=model.card.class_weight)
    start = 0
    for embedding in watch(model.embeddings(part.inputs), len(part), "fitting the predictors"):
        statistics.update(embedding, labels[start : start + len(embedding)])
        start += len(embedding)
    return statistics


def evaluate(model: Model, part: Part, watch: Watch = unwatched) -> dict[str, Any] | None:
    """Accuracy and balanced accuracy by every predictor, and the confusion matrix of the deciding one.

    None for a part without samples, else
    {"n", "accuracy", "predictors": {name: {"accuracy", "balanced_accuracy"}}, "confusion"}; confusion[i][j] counts
    samples of class i that were taken for class j.
    """
    if len(part) == 0:
        return None
    decisions: dict[str, list[NDArray[np.int64]]] = {name: [] for name in model.card.predictors}
    for embedding in watch(model.embeddings(part.inputs), len(part), "scoring"):
        for name, found in decisions.items():
            found.append(model.named_predictor(name).predict(embedding).cpu().numpy())
    classes = len(model.class_names)
    tables = {name: confusion(part.labels, np.concatenate(found), classes) for name, found in decisions.items()}
    deciding = tables[model.card.predictors[0]]
    return {
        "n": len(part),
        "accuracy": _accuracy(deciding),
        "predictors": {
            name: {"accuracy": _accuracy(table), "balanced_accuracy": _balanced_accuracy(table)}
            for name, table in tables.items()
        },
        "confusion": deciding.tolist(),
    }


def confusion(labels: NDArray[np.int64], predicted: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """How often each class (row) was taken for each (column), (C, C)."""
    return np.bincount(labels * classes + predicted, minlength=classes * classes).reshape(classes, classes)


def _accuracy(table: NDArray[np.int64]) -> float:
    return float(table.trace() / table.sum())


def _balanced_accuracy(table: NDArray[np.int64]) -> float:
    """The mean over the classes present of the share that was found."""
    present = table.sum(1) > 0
    return float((table.diagonal()[present] / table.sum(1)[present]).mean())
