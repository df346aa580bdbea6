"""SubclassDeepLDAClassifier: Algorithm 1 of the paper as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from torch import nn

from deeplda.estimators.classifier import DeepLDAClassifier
from deeplda.estimators.preparation import NetworkFactory


class SubclassDeepLDAClassifier(DeepLDAClassifier):
    """Deep linear discriminant analysis on subclasses (Subclass RDLDA).

    Each class is split by k-means, the network is trained to separate all subclasses, and a decision for a subclass
    is one for its class. For classes that are made of several groups.

    Parameters
    ----------
    subclasses : int or "auto", default=2
        Subclasses of each class; "auto" chooses 1 to 4 for each by the silhouette.
    cluster_on : {"inputs", "autoencoder"}, default=None
        Where k-means runs: on standardised inputs, or in the embedding of an autoencoder that is trained first.
        None: inputs for rows, the autoencoder for images.
    cluster_starts : int, default=10
        Starts of k-means, of which the best is kept.
    smallest_cluster : int, default=10
        Smaller clusters join their nearest sibling; a class of fewer than twice as many samples is not split.
    subclass_decision : {"argmax", "sum"}, default="argmax"
        The class of the best subclass, as in the paper, or the one whose subclasses sum to the highest probability.
    autoencoder_epochs : int, default=20
        Passes over the samples by the autoencoder.
    embedding_dim : int, default=None
        Width of the embedding; None: the number of subclasses, or what a network of your own gives.

    All other parameters are those of `DeepLDAClassifier`.

    Attributes
    ----------
    model_ : deeplda.model.Model
        The trained model; `model_.card.parents` has the class of each subclass.

    Others as `DeepLDAClassifier` has them. `transform` has up to n_subclasses - 1 coordinates.
    """

    # scikit-learn reads the parameters off the signature, so those of the base class stand here again.
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
        objective: Literal["rdlda", "dlda", "cce"] = "rdlda",
        alpha: float = 1.0,
        lam: float = 1e-3,
        epsilon: float = 1.0,
        statistic: Literal["smallest", "wilks", "pillai", "hotelling"] = "wilks",
        scatter: Literal["pooled", "sum", "dorfer"] = "pooled",
        predictor: Literal["hyperplanes", "nearest_mean", "classic_lda"] = "hyperplanes",
        embedding_dim: int | None = None,
        max_epochs: int = 100,
        batch_size: int = 200,
        learning_rate: float = 0.1,
        weight_decay: float = 0.01,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        device: str = "cpu",
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__(
            network=network,
            objective=objective,
            alpha=alpha,
            lam=lam,
            epsilon=epsilon,
            statistic=statistic,
            scatter=scatter,
            predictor=predictor,
            embedding_dim=embedding_dim,
            max_epochs=max_epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            class_weight=class_weight,
            device=device,
            verbose=verbose,
            random_state=random_state,
        )
        self.subclasses = subclasses
        self.cluster_on = cluster_on
        self.cluster_starts = cluster_starts
        self.smallest_cluster = smallest_cluster
        self.subclass_decision = subclass_decision
        self.autoencoder_epochs = autoencoder_epochs
