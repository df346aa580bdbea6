"""One fit of the estimator: the networks that it trains, and the calibration of their probabilities."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from deeplda.data.dataset import Data, Part
from deeplda.data.table_encoding import TableEncoder
from deeplda.device import pick_device, seeded
from deeplda.errors import InputError
from deeplda.estimator_inputs import Standardisation, build_own, calibration_folds, loop_part
from deeplda.estimator_row_space import RowSpace, spans_fewer_dimensions
from deeplda.model import Model
from deeplda.networks.inspection import output_width
from deeplda.normalisation import Normalisation
from deeplda.sampling import sufficient_batch_size
from deeplda.subclasses import Clusters
from deeplda.training.config import LDA_OBJECTIVES, FitConfig
from deeplda.training.evaluation import ScoredSamples, calibrate_model, gather_scores
from deeplda.training.loop import run_epochs
from deeplda.training.metrics import EpochRow
from deeplda.training.progress import Progress, TerminalProgress
from deeplda.training.run_folder import MemoryRun
from deeplda.training.subclass_stage import find_subclasses, on_subclasses
from deeplda.training.trainee import Classifier, build_trainee, default_embedding_dim


class Fitted(NamedTuple):
    """A trained model, and how it was trained.

    Attributes:
        labels: (n,), the labels that it was trained on, of classes or subclasses.
        clusters: the subclasses, if there are any.
        space: the space that the model was trained in, if there are fewer samples than features.
    """

    model: Model
    labels: NDArray[np.int64]
    clusters: Clusters | None
    space: RowSpace | None
    epochs: list[EpochRow]


@dataclass(frozen=True, eq=False)
class EstimatorTraining:
    """The settings that the networks of one fit share.

    Attributes:
        class_names: the names of the classes, in the order of the labels.
        network: the user's module or callable, or None if the network is built by name.
        embedding_dim: the width of the embedding that the user asked for.
        table: the encoding of the samples, if they are the rows of a data frame.
        standardised: whether feature vectors are standardised already.
        start: the model whose weights and normalisation training starts from; by default, weights are new.
        statistic: the user's function of the eigenvalues, whose name is in `config`.
    """

    config: FitConfig
    class_names: tuple[str, ...]
    network: object | None
    embedding_dim: int | None
    table: TableEncoder | None
    standardised: bool = False
    start: Model | None = None
    statistic: Callable[[Tensor], Tensor] | None = None

    def fit(self, train: Part, validation: Part, progress: Progress, clusters: Clusters | None = None) -> Fitted:
        """Train a model; `validation` is for early stopping, and `clusters` are subclasses that are already known.

        For feature vectors, the predictors are fitted in float64.
        """
        config, are_rows = self.config, train.inputs.ndim == 2
        standardisation = self._standardisation(train)
        prepared, nothing = loop_part(train, standardisation), np.arange(0)
        data = Data(
            name="arrays",
            train=prepared,
            val=loop_part(validation, standardisation),
            test=prepared.take(nothing),
            class_names=self.class_names,
            table=self.table,
        )
        run = MemoryRun()
        if config.subclasses != 1:
            clusters = clusters or find_subclasses(config, data, progress)
            data = on_subclasses(data, clusters)
        space = self._row_space(train, standardisation)
        if space is not None:
            own, others = (rows.astype(np.float32) for rows in (space.own, space.coordinates(validation.inputs)))
            data = replace(data, train=replace(data.train, inputs=own), val=replace(data.val, inputs=others))
        trainee = self._trainee(data, clusters)
        trainee.spectra = isinstance(progress, TerminalProgress)
        run_epochs(trainee.config, data, trainee, run, progress)
        if are_rows:
            trainee.model.cpu().double()
        if space is None and standardisation is not None:
            trainee.model.normalisation.set(standardisation.mean, standardisation.scale)
        whole = train if space is None else replace(train, inputs=space.own)
        trainee.fit_predictors(replace(whole, labels=data.train.labels))
        if space is not None:
            trainee.model = space.extended(trainee.model)
        if are_rows:
            trainee.model.cpu()
        epochs = [row for row in run.rows if isinstance(row, EpochRow)]
        return Fitted(trainee.model, data.train.labels, clusters, space, epochs)

    def calibrate(self, fitted: Fitted, train: Part, held_out: Part, progress: Progress) -> None:
        """Calibrate the model on the held-out samples, or else on those of a few folds, with a network for each.

        The networks of the folds always start with new weights, which no held-out sample has influenced. If the model
        was trained in the space that all samples span, the folds start from their coordinates in it, which depend on no
        label. Each fold is then trained in the space that its own samples span.
        """
        if len(held_out):
            calibrate_model(fitted.model, gather_scores(fitted.model, held_out, to_calibrate=True))
            return
        found, anew = [], replace(self, start=None)
        if fitted.space is not None:
            train = replace(train, inputs=fitted.space.own)
            anew = replace(anew, standardised=True, table=None)
        with progress.status("calibrating the probabilities"), warnings.catch_warnings():
            # Training the model has already warned.
            warnings.simplefilter("ignore")
            for rest, held in calibration_folds(fitted.labels, self.config.seed):
                clusters = fitted.clusters and replace(fitted.clusters, labels=fitted.clusters.labels[rest])
                of_fold = anew.fit(train.take(rest), train.take(np.arange(0)), Progress(), clusters)
                found.append(gather_scores(of_fold.model, train.take(held), to_calibrate=True))
        if found:
            calibrate_model(fitted.model, ScoredSamples.joined(found))

    def _standardisation(self, train: Part) -> Standardisation | None:
        if train.inputs.ndim != 2 or self.standardised:
            return None
        return Standardisation.of(train) if self.start is None else Standardisation.in_model(self.start)

    def _row_space(self, train: Part, standardisation: Standardisation | None) -> RowSpace | None:
        """Return the space to train in; None for images, other networks than MLPs, or if it would save nothing."""
        mlp = self.network is None and self.config.network in (None, "mlp")
        if train.inputs.ndim != 2 or not mlp or self.start is not None or not spans_fewer_dimensions(train.inputs):
            return None
        return RowSpace.of(train.inputs, standardisation or Standardisation.none(train.inputs.shape[1]))

    def _trainee(self, data: Data, clusters: Clusters | None) -> Classifier:
        subclasses = clusters.map if clusters else None
        groups = len(subclasses or data.class_names)
        network, width = self._own_network(data.sample_shape, groups)
        lda = self.config.objective in LDA_OBJECTIVES
        batch_size = sufficient_batch_size(self.config.batch_size, data.train.labels, two_classes=lda)
        width_of_own = {"embedding_dim": width} if network else {}
        config = self.config.model_copy(update={"batch_size": batch_size} | width_of_own)
        # Feature vectors are already standardised.
        normalisation = None if data.images else Normalisation(data.sample_shape)
        if data.images and self.start is not None:
            normalisation = copy.deepcopy(self.start.normalisation)
        trainee = build_trainee(
            config, data, network, subclasses, normalisation=normalisation, statistic=self.statistic
        )
        # They take a noticeable part of a step on a small table, and an estimator does not keep them.
        trainee.margins = None
        if self.start is not None:
            trainee.start_from(self.start)
        return trainee

    def _own_network(self, sample_shape: tuple[int, ...], groups: int) -> tuple[nn.Module | None, int]:
        """Return the user's network and its output width, or None and 0 if the network is built by name.

        The user's own object is never returned. A callable has to build `embedding_dim` outputs; the default depends on
        `groups`, the number of classes or subclasses.
        """
        if self.network is None:
            return None, 0
        for option in ("hidden_layer_sizes", "dropout"):
            if (given := getattr(self.config, option)) is not None:
                raise InputError(
                    f"{option} is {given}, but the network is your own and has its own layers: omit {option}"
                )
        with seeded(self.config.seed, pick_device(self.config.device)):
            default = default_embedding_dim(self.config, groups)
            built = build_own(self.network, sample_shape, self.embedding_dim or default)
            width = output_width(built, sample_shape)
        if self.embedding_dim is not None and width != self.embedding_dim:
            what = f"the network has {width} outputs, but embedding_dim is {self.embedding_dim}"
            raise InputError(f"{what}: omit embedding_dim, or change the last layer")
        return built, width
