"""Names from earlier versions that still work."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from torch import nn

from deeplda.core.options import Scatter, StatisticName
from deeplda.estimators import DeepLDAClassifier, NetworkFactory
from deeplda.model_card import PredictorName
from deeplda.training.config import Objective


def subclass_classifier(stacklevel: int) -> type[DeepLDAClassifier]:
    """Return `SubclassDeepLDAClassifier`, and warn at the line that imports it, `stacklevel` frames up."""
    warnings.warn(
        "SubclassDeepLDAClassifier is deprecated: use DeepLDAClassifier(subclasses=2)",
        DeprecationWarning,
        stacklevel=stacklevel + 1,
    )
    return SubclassDeepLDAClassifier


class SubclassDeepLDAClassifier(DeepLDAClassifier):
    """`DeepLDAClassifier` with two subclasses per class by default.

    Deprecated: use `DeepLDAClassifier(subclasses=2)`.
    """

    # scikit-learn reads the parameters from the signature, so the base class's parameters are repeated here.
    def __init__(
        self,
        *,
        subclasses: int | Literal["auto"] = 2,
        cluster_on: Literal["inputs", "autoencoder"] | None = None,
        cluster_starts: int = 10,
        smallest_cluster: int = 10,
        subclass_decision: Literal["argmax", "sum"] = "argmax",
        autoencoder_epochs: int = 20,
        network: str | nn.Module | NetworkFactory | None = None,
        objective: Objective = "lda",
        alpha: float | None = None,
        statistic: StatisticName | None = None,
        lam: float = 1e-3,
        epsilon: float = 1.0,
        scatter: Scatter = "pooled",
        lda_weight: float = 1.0,
        gce_q: float = 0.7,
        predictor: PredictorName | None = None,
        embedding_dim: int | None = None,
        max_epochs: int = 100,
        batch_size: int = 200,
        learning_rate: float = 0.1,
        weight_decay: float = 0.01,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        calibrate: bool = True,
        device: str = "cpu",
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__(
            network=network,
            objective=objective,
            alpha=alpha,
            statistic=statistic,
            lam=lam,
            epsilon=epsilon,
            scatter=scatter,
            lda_weight=lda_weight,
            gce_q=gce_q,
            predictor=predictor,
            embedding_dim=embedding_dim,
            subclasses=subclasses,
            cluster_on=cluster_on,
            cluster_starts=cluster_starts,
            smallest_cluster=smallest_cluster,
            subclass_decision=subclass_decision,
            autoencoder_epochs=autoencoder_epochs,
            max_epochs=max_epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            class_weight=class_weight,
            calibrate=calibrate,
            device=device,
            verbose=verbose,
            random_state=random_state,
        )
