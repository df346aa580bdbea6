"""Splitting classes by k-means with the settings of a run, before training and during it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplda.data.dataset import Labels
from deeplda.subclasses import Clusters, split_classes
from deeplda.training.config import FitConfig


def split_by_settings(config: FitConfig, points: NDArray[Any], labels: Labels, class_names: Sequence[str]) -> Clusters:
    """Split the classes `labels` (n,) of `points` (n, d) into subclasses according to the settings."""
    return split_classes(
        points,
        labels,
        config.subclasses,
        seed=config.seed,
        n_init=config.cluster_starts,
        smallest=config.smallest_cluster,
        class_names=class_names,
    )


def standardised(points: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return points (n, d) with mean 0 and, unless a dimension is constant, deviation 1 in every dimension."""
    deviation = points.std(0)
    scaled: NDArray[np.float32] = (points - points.mean(0)) / np.where(deviation > 0, deviation, 1)
    return scaled
