"""The scikit-learn estimator, trained by the same loop as the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from deeplda.audit import Audit, audit_samples, class_indices
from deeplda.classical.class_labels import checked_weights, encode_labels
from deeplda.classical.discriminant_classifier import DiscriminantClassifier
from deeplda.core.options import Scatter, Statistic, check_integer, check_unweighted
from deeplda.data.dataset import Inputs, Part
from deeplda.data.mapped_rows import MappedRows, is_mapped
from deeplda.data.sparse_rows import SparseRows
from deeplda.errors import InputError, code_not_run
from deeplda.estimator_files import (
    ClassifierFile,
    labels_as_json,
    labels_from_json,
    parameters_as_json,
    parameters_from_json,
    plain,
    read_classifier_file,
    read_model,
    weights_as_json,
    write_classifier,
)
from deeplda.estimator_inputs import (
    Split,
    build_own,
    code_name,
    hold_out,
    hold_out_few,
    layer_text,
    prior_factors,
    samples_like_training,
    training_samples,
    weighted_part,
)
from deeplda.estimator_training import EstimatorTraining, Fitted
from deeplda.io import expanded
from deeplda.model import Model
from deeplda.model_card import LDA_PREDICTORS, ModelCard, PredictorName, read_card
from deeplda.output_folder import unchanged
from deeplda.predictors import discriminant_directions
from deeplda.training.config import FitConfig, Objective, SubclassBetween
from deeplda.training.evaluation import gather_statistics
from deeplda.training.metrics import Scores
from deeplda.training.progress import Progress, TerminalProgress
from deeplda.training.table_settings import DECAY, layer_settings, weight_decay
from deeplda.training.trainee import predictors_of
from deeplda.user_code import is_code

NetworkFactory = Callable[[tuple[int, ...], int], nn.Module]

# Parameters that have the same names as training settings; None leaves a setting at its default.
_SETTINGS = (
    "objective", "alpha", "lam", "epsilon", "statistic", "scatter", "lda_weight", "gce_q", "embedding_dim",
    "dropout", "learning_rate", "weight_decay", "subclasses", "cluster_on", "cluster_starts", "smallest_cluster",
    "subclass_between", "subclass_decision", "autoencoder_epochs", "device",
)  # fmt: skip
# Tabular samples are predicted in blocks of exactly this size, padded if necessary, because products of different
# shapes round differently.
_BLOCK = 128


class DeepLDAClassifier(DiscriminantClassifier):
    """Deep linear discriminant analysis.

    A network is trained with a discriminant objective, so that its outputs, the embeddings, form compact, linearly
    separable classes; a linear predictor on the embedding makes the decisions. `deeplda train` uses the same training
    loop.

    Samples are feature vectors (n, features), also as a sparse matrix, images (n, channels, height, width), or data
    frames of pandas and other libraries whose frames export Arrow streams. Each feature or channel is standardised
    internally. If there are fewer samples than features, the default network is trained in the space that the samples
    span. A data frame with categories, strings, dates or missing values is encoded as numbers inside the model, which
    needs the extra `table`; columns that are constant or look like identifiers are left out, with a warning.

    Predictions for feature vectors are computed in float64 and in blocks of a fixed size, so the result for a sample is
    the same, to the last bit, whichever samples are predicted with it.

    Parameters
    ----------
    network : None, str, nn.Module or callable, default=None
        None selects an MLP for feature vectors and a convolutional network for images. A string names a network, as in
        `deeplda train --network`. If a module is passed, a copy of it is trained in float32, starting from its current
        weights. A callable is called as `network(sample_shape, embedding_dim)` and returns the module to train.
    hidden_layer_sizes : tuple of int, default=None
        Number of units in each hidden layer of the MLP; `()` leaves a linear map. None means (128, 128), or (256, 256)
        from 5,000 samples on.
    dropout : float, default=None
        Fraction of the values of each hidden layer of the MLP that is dropped during training. None means 0.2, or 0.1
        from 5,000 samples on.
    objective : {"lda", "rdlda", "dlda", "cce", "gce", "joint"}, default="lda"
        "lda" is the general discriminant objective, "rdlda" and "dlda" are the paper's two objectives with the paper's
        defaults, "cce" is cross-entropy, "gce" is generalised cross-entropy, which is more robust to wrong labels, and
        "joint" is cross-entropy plus `lda_weight` times the general objective on the same outputs.
    alpha : float, default=None
        As in `DeepLDALoss`. None means 1, or 0.6 for objective "rdlda".
    statistic : {"wilks", "smallest", "pillai", "hotelling"} or callable, default=None
        As in `DeepLDALoss`: a callable maps the ascending eigenvalues (m,) to a 0-d tensor, which is maximised. None
        means "wilks", or "smallest" for the paper's objectives. "smallest" overfits tabular data with only a few
        hundred samples.
    lam, epsilon, scatter
        As in `DeepLDALoss`.
    lda_weight : float, default=1.0
        Weight of the discriminant objective in "joint".
    gce_q : float, default=0.7
        Exponent of generalised cross-entropy, (1 - p^q) / q, from 0 (exclusive; near 0 it is cross-entropy) to 1.
    predictor : {"hyperplanes", "nearest_mean", "classic_lda", "softmax"}, default=None
        The predictor that makes decisions on the embedding. None means softmax for objective "joint", otherwise
        hyperplanes. Objectives "cce" and "gce" always use softmax, and only "joint" has all four.
    embedding_dim : int, default=None
        Width of the embedding. None means the number of subclasses if there are any, otherwise the number of classes,
        for a discriminant objective at most half of `batch_size`; if `network` is a module, its output width.
        Objective "joint" needs one output per class or subclass.
    subclasses : int or "auto", default=1
        Split each class into this many subclasses by k-means and train the network to separate all of them; "auto"
        chooses 1 to 4 for each class by the silhouette. Useful if classes consist of several groups.
    cluster_on : {"inputs", "autoencoder"}, default=None
        The data that k-means clusters: standardised inputs, or the embeddings of an autoencoder that is trained first.
        None means inputs for feature vectors and the autoencoder for images.
    cluster_starts : int, default=10
        Number of k-means runs, of which the best is used.
    smallest_cluster : int, default=10
        Merge clusters smaller than this into their nearest sibling; classes with fewer than twice as many samples are
        not split.
    subclass_between : {"all", "classes"}, default="all"
        "all" separates all subclasses from each other, as in the paper; "classes" separates only the classes, so that
        the parts of a class may lie anywhere.
    subclass_decision : {"argmax", "sum"}, default="argmax"
        Predict the class of the best subclass, as in the paper, or the class with the highest summed probability.
    autoencoder_epochs : int, default=20
        Number of epochs for which the autoencoder is trained.
    max_epochs : int, default=100
        Number of training epochs; `early_stopping` can end training earlier.
    batch_size : int, default=200
        Number of samples per step. It is raised if a batch could otherwise contain only one class. If it is too small
        for all classes, a discriminant objective is trained on batches of a subset of the classes.
    learning_rate : float, default=0.1
        The highest learning rate; it is reached after the first quarter of the steps and then falls to 0.
    weight_decay : float, default=None
        Weight decay, applied to all parameters of the network. None means 0.01 or, for n > 1,000 feature vectors, 10/n.
    early_stopping : bool, default=False
        Hold out samples, stop when the accuracy on them has not improved for `n_iter_no_change` epochs, and use the
        best epoch. Training takes at least 5/8 of `max_epochs` plus `n_iter_no_change`, because much of the accuracy
        is gained while the learning rate falls.
    validation_fraction : float, default=0.1
        Fraction of the samples to hold out for early stopping, stratified by class.
    n_iter_no_change : int, default=10
        Number of epochs to wait for an improvement in accuracy, counted after the learning rate has fallen to half
        its peak.
    class_weight : None, "balanced" or dict, default=None
        Weights of the classes, by which the weights of their samples are multiplied; labels that are not in the dict
        have weight 1. "balanced" means n / (n_classes * n_c) for a class with n_c of the n samples, so that all classes
        have the same weight. Weights change what is learned; to change only the decisions, pass `priors`.
    priors : array-like of shape (n_classes,), default=None
        The class probabilities where the classifier is used, in the order of `classes_`; they are divided by their sum.
        None means the class frequencies of the training samples, counted with all weights. The odds of each class are
        multiplied by its prior and divided by its frequency, which changes the decisions and the probabilities, but
        not the training or the calibration.
    calibrate : bool, default=True
        Calibrate the probabilities on samples that the network was not trained on: the samples held out for early
        stopping; otherwise, from 10,000 samples on, 1,000 samples that are held out for this; otherwise, samples that
        up to five further networks are not trained on. Each of these trains on four fifths of the samples and scores
        the others, until there are 500 scores. A fit takes up to five times as long with fewer than 625 samples, and
        1.8 times as long from 2,500 samples on. Decisions are the same without it, unless `priors` are given.
    warm_start : bool, default=False
        Start from the weights of the previous fit, with its standardisation of the samples, instead of new ones; each
        fit has its own learning-rate schedule. Classes, features and network must be the same. The further networks
        for calibration always start with new weights. If samples are held out, pass an integer as `random_state`, so
        that it is always the same ones.
    device : str, default="cpu"
        The device to train on: "cpu", "cuda", ..., or "auto" for CUDA if available. Predictions for feature vectors are
        always computed on the CPU.
    verbose : int, default=0
        If positive, report progress on stderr; this needs the extra `cli`.
    random_state : int, RandomState or None, default=None
        Determines the initial weights, the order of the samples, and the samples held out for early stopping and
        calibration.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    n_features_in_ : int
        Number of features, of columns of a data frame, or of channels of images.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features; defined only if the column names of `X` are all strings.
    model_ : deeplda.model.Model
        The trained model. Its class names are the labels as strings; `model_.card.parents` has the class of each
        subclass, and `model_.card.table` the encoding of a data frame.
    n_iter_ : int
        Number of epochs of the last fit.
    loss_curve_ : list of float, of length n_iter_
        Mean loss of each epoch. Discriminant losses are usually negative.
    validation_scores_ : list of float, of length n_iter_
        Accuracy on the held-out samples after each epoch, measured with hyperplanes, or with softmax for "cce", "gce"
        and "joint". Defined only with `early_stopping`.
    xbar_ : ndarray of shape (embedding_dim,)
        Mean embedding of the training samples.
    scalings_ : ndarray of shape (embedding_dim, n_components)
        The discriminant directions, strongest first; n_components is min(embedding_dim, n_classes - 1) or, with
        subclasses, min(embedding_dim, n_subclasses - 1).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from deeplda import DeepLDAClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = DeepLDAClassifier(random_state=0).fit(X, y)
    >>> classifier.transform(X).shape
    (150, 2)
    """

    def __init__(
        self,
        *,
        network: str | nn.Module | NetworkFactory | None = None,
        hidden_layer_sizes: Sequence[int] | None = None,
        dropout: float | None = None,
        objective: Objective = "lda",
        alpha: float | None = None,
        statistic: Statistic | None = None,
        lam: float = 1e-3,
        epsilon: float = 1.0,
        scatter: Scatter = "pooled",
        lda_weight: float = 1.0,
        gce_q: float = 0.7,
        predictor: PredictorName | None = None,
        embedding_dim: int | None = None,
        subclasses: int | Literal["auto"] = 1,
        cluster_on: Literal["inputs", "autoencoder"] | None = None,
        cluster_starts: int = 10,
        smallest_cluster: int = 10,
        subclass_between: SubclassBetween = "all",
        subclass_decision: Literal["argmax", "sum"] = "argmax",
        autoencoder_epochs: int = 20,
        max_epochs: int = 100,
        batch_size: int = 200,
        learning_rate: float = 0.1,
        weight_decay: float | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        priors: ArrayLike | None = None,
        calibrate: bool = True,
        warm_start: bool = False,
        device: str = "cpu",
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.network = network
        self.hidden_layer_sizes = hidden_layer_sizes
        self.dropout = dropout
        self.objective = objective
        self.alpha = alpha
        self.statistic = statistic
        self.lam = lam
        self.epsilon = epsilon
        self.scatter = scatter
        self.lda_weight = lda_weight
        self.gce_q = gce_q
        self.predictor = predictor
        self.embedding_dim = embedding_dim
        self.subclasses = subclasses
        self.cluster_on = cluster_on
        self.cluster_starts = cluster_starts
        self.smallest_cluster = smallest_cluster
        self.subclass_between = subclass_between
        self.subclass_decision = subclass_decision
        self.autoencoder_epochs = autoencoder_epochs
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.class_weight = class_weight
        self.priors = priors
        self.calibrate = calibrate
        self.warm_start = warm_start
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train the network and fit the predictor.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), or (n_samples, channels, height, width)
            Samples. A sparse matrix never becomes dense as a whole, unless `subclasses` needs it for k-means.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0. A sample of weight 2 counts as two samples in the objective, in the standardisation of feature
            vectors, in the predictors, in the calibration and in the accuracy for early stopping; a sample of weight 0
            is left out. Batches, subclasses and the fraction held out do not depend on the weights.
        """
        before = self.model_ if self.warm_start and self.__sklearn_is_fitted__() else None
        if before is None:
            self._forget()
        inputs, targets, table = training_samples(self, X, y, before)
        if inputs.ndim not in (2, 4):
            needed = "2 axes for feature vectors or 4 for images"
            raise InputError(f"X has shape {inputs.shape}, need {needed}: reshape the samples")
        weights = None
        if sample_weight is not None:
            weights = checked_weights(sample_weight, inputs)
            inputs, targets, weights = inputs[weights > 0], targets[weights > 0], weights[weights > 0]
        classes, labels = encode_labels(targets)
        if before is not None:
            self._require_same(classes, inputs.shape[1:])
            self._forget(keep=("n_features_in_", "feature_names_in_"))
        self.classes_ = classes
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        config = self._fit_config(seed, inputs.shape, before)
        samples = weighted_part(Part(_unread(inputs), labels, weights=weights), self.class_weight, classes)
        if samples.weights is not None:
            check_unweighted(config.scatter)
        factors = prior_factors(samples, self.priors)
        train, held_out = self._split(samples, seed)
        own = None if isinstance(self.network, str) else self.network
        training = EstimatorTraining(
            config=config,
            class_names=tuple(map(str, classes)),
            network=own,
            embedding_dim=self.embedding_dim,
            table=table,
            standardised=table is not None,
            start=before,
            statistic=self.statistic if callable(self.statistic) else None,
        )
        progress = TerminalProgress() if self.verbose else Progress()
        try:
            fitted = training.fit(train, held_out if self.early_stopping else held_out.take(np.arange(0)), progress)
            if self.calibrate:
                training.calibrate(fitted, train, held_out, progress)
        finally:
            progress.close()
        self._finish(fitted, train, factors)
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each class, (n, n_classes), in the order of `classes_`.

        They are calibrated on samples that the network was not trained on, unless `calibrate` is False or no class has
        three samples.
        """
        return self._apply(X, lambda embedding: self.model_.class_probabilities(embedding))

    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the logarithm of the probability of each class, (n, n_classes), which does not underflow."""
        scores = self._scores(X)
        return self.model_.predictor.calibration.log_probabilities(scores)

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the discriminant coordinates, (n, n_components): the embedding projected onto the directions.

        Along each direction, the within-class variance of the training samples is 1, as measured by S'_W, which
        includes alpha and lam. All differences between class means are preserved.
        """
        check_is_fitted(self)
        mean, directions = torch.from_numpy(self.xbar_), torch.from_numpy(self.scalings_)
        return self._apply(X, lambda embedding: (embedding.cpu().double() - mean) @ directions)

    def mahalanobis(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the Mahalanobis distance from each sample to the nearest class mean, (n,), in the embedding.

        It is measured with the pooled covariance of the training samples, and is large if a sample belongs to none of
        the classes. Raises InputError after a fit with objective "cce" or "gce", which keeps no covariance.
        """
        check_is_fitted(self)
        self.model_._require_statistics()
        return self._apply(X, lambda embedding: self.model_.predictor.mahalanobis(embedding))

    def audit(self, X: ArrayLike, y: ArrayLike) -> Audit:
        """Find samples whose labels are likely to be wrong, near-duplicates with different labels, and outliers.

        The scores of the classifier decide. On its own training samples it has learned the wrong labels as well, so
        audit samples that it was not trained on: with one classifier for each fold, for example. A run of
        `deeplda train` also keeps how well each label fitted during training, which `deeplda audit` uses.

        Raises InputError if a label in `y` (n,) is not among `classes_`.
        """
        check_is_fitted(self)
        inputs = samples_like_training(self, X, self.model_.card.table)
        labels = class_indices(np.asarray(y), self.classes_)
        if len(labels) != len(inputs) or (labels < 0).any():
            what = f"y has {len(labels)} labels for {len(inputs)} samples"
            if len(labels) == len(inputs):
                what = f"y contains {np.asarray(y)[labels < 0][0]!r}"
            raise InputError(what, need="one of `classes_` for each sample", do="check y")
        distances = None if self.model_.statistics is None else self.mahalanobis(X)
        embedding = self._apply(X, lambda embedding: embedding)
        found = audit_samples(inputs, embedding, self._scores(X), labels, distances)
        return found._named(self.classes_)

    def save(self, path: str | Path) -> None:
        """Write the classifier to a folder, without pickle; `load` and `deeplda.load` read it.

        A classifier that is already there is replaced; a folder with any other content is rejected. Of a callable
        `statistic`, only the name is stored: predictions do not need it, but pass it again before another fit.
        """
        check_is_fitted(self)
        dtype, classes = labels_as_json(self.classes_)
        parameters = self.get_params(deep=False)
        if callable(self.statistic):
            parameters["statistic"] = code_name(self.statistic)
        weights = parameters.pop("class_weight")
        if isinstance(weights, str):
            parameters["class_weight"] = weights
        names = getattr(self, "feature_names_in_", None)
        file = ClassifierFile(
            estimator=type(self).__name__,
            parameters=parameters_as_json(parameters),
            class_weight=weights_as_json(weights) if isinstance(weights, Mapping) else None,
            dtype=dtype,
            classes=classes,
            n_features=self.n_features_in_,
            feature_names=None if names is None else names.tolist(),
            losses=self.loss_curve_,
            validation_scores=getattr(self, "validation_scores_", None),
        )
        write_classifier(expanded(path), file, self.model_, {"xbar": self.xbar_, "scalings": self.scalings_})

    @classmethod
    def load(
        cls, path: str | Path, *, network: str | nn.Module | NetworkFactory | None = None, device: str = "cpu"
    ) -> Self:
        """Load a classifier written by `save`. If its network is your own code, pass `network` as in training."""
        folder = expanded(path)
        # Another process may replace the folder while its files are read.
        with unchanged(folder):
            return cls._read(folder, network, device)

    @classmethod
    def _read(cls, folder: Path, network: str | nn.Module | NetworkFactory | None, device: str) -> Self:
        file = read_classifier_file(folder, cls._get_param_names())
        parameters = parameters_from_json(file.parameters)
        named = parameters.get("network")
        if network is None and is_code(named):
            raise code_not_run(folder, named, f"pass network={named!r}")
        if network is None and "network" not in parameters:
            code = read_card(folder / "model.json").network
            raise code_not_run(folder, code, "pass network=..., the module or callable used in training")
        if network is not None:
            parameters["network"] = network
        if file.class_weight is not None:
            parameters["class_weight"] = dict(file.class_weight)
        classifier = cls(**parameters)
        if network is not None and not isinstance(network, str):
            card = read_card(folder / "model.json")
            network = build_own(network, card.sample_shape, card.embedding_dim)
        classifier.model_, classifier.xbar_, classifier.scalings_ = read_model(folder, file, network, device)
        classifier.classes_ = labels_from_json(file.dtype, file.classes)
        classifier.n_features_in_ = file.n_features
        if file.feature_names is not None:
            classifier.feature_names_in_ = np.array(file.feature_names, dtype=object)
        classifier.loss_curve_, classifier.n_iter_ = file.losses, len(file.losses)
        if file.validation_scores is not None:
            classifier.validation_scores_ = file.validation_scores
        return classifier

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether a fit has completed; `scalings_` is set last."""
        return hasattr(self, "scalings_")

    def _forget(self, keep: tuple[str, ...] = ()) -> None:
        """Delete the results of an earlier fit, so that a failing fit does not leave a mixture of the two."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            if name not in keep:
                delattr(self, name)

    def _require_same(self, classes: NDArray[Any], sample_shape: tuple[int, ...]) -> None:
        """Raise InputError unless samples and classes are like those of the fit that `warm_start` continues."""
        for what, now, before in (
            ("classes", classes.tolist(), self.classes_.tolist()),
            ("samples of shape", sample_shape, self.model_.card.sample_shape),
        ):
            if now != before:
                found = f"warm_start continues a fit with {what} {before}, but there are now {now}"
                raise InputError(f"{found}: set warm_start=False to start again")

    @property
    def _n_features_out(self) -> int:
        return int(self.scalings_.shape[1])

    def _fit_config(self, seed: int, shape: tuple[int, ...], before: Model | None) -> FitConfig:
        """Return the settings for training on samples of this shape, after the model `before` if it is a warm start.

        Raises InputError if a parameter is out of range.
        """
        for name, least in (("max_epochs", 1), ("n_iter_no_change", 1), ("batch_size", 2)):
            check_integer(name, getattr(self, name), least)
        if is_code(self.objective):
            do = "use a built-in one, or deeplda train, which takes your own code"
            raise InputError(f"objective is {self.objective!r}: {do}")
        if is_code(self.statistic):
            raise InputError(f"statistic is the name {self.statistic!r}: pass the function itself")
        settings = {name: plain(getattr(self, name)) for name in _SETTINGS}
        if callable(self.statistic):
            settings["statistic"] = code_name(self.statistic)
        if self.subclasses != 1 and self.embedding_dim is None:
            settings["embedding_dim"] = "subclasses"
        settings |= {
            "network": self.network if isinstance(self.network, str) else None,
            "hidden_layer_sizes": layer_text(self.hidden_layer_sizes),
            "epochs": int(self.max_epochs),
            "patience": int(self.n_iter_no_change) if self.early_stopping else None,
            "batch_size": int(self.batch_size),
            "seed": seed,
        }
        defaults: dict[str, object] = {"weight_decay": DECAY}
        if len(shape) == 2:
            defaults = {"weight_decay": weight_decay(shape[0])}
            if self.network is None or self.network == "mlp":
                defaults |= layer_settings(shape[0]) if before is None else _layers_of(before.card)
        given = {name: value for name, value in settings.items() if value is not None}
        config = FitConfig.parse(defaults | given, type(self).__name__, strict=True)
        choices = predictors_of(config)
        if self.predictor not in (None, *choices, *LDA_PREDICTORS):
            raise InputError(f"predictor must be None or one of {', '.join(choices)}, got {self.predictor!r}")
        return config

    def _split(self, samples: Part, seed: int) -> tuple[Part, Part]:
        """Return the samples to train on, and those that are held out for early stopping or calibration."""
        split: Split | None = None
        if self.early_stopping:
            split = hold_out(samples.labels, self.validation_fraction, seed)
        elif self.calibrate:
            split = hold_out_few(samples.labels, seed)
        if split is None:
            return samples, samples.take(np.arange(0))
        return samples.take(split[0]), samples.take(split[1])

    def _finish(self, fitted: Fitted, train: Part, factors: NDArray[np.float64]) -> None:
        """Store the model and its coordinates, and multiply the odds of each class by its factor, (C,)."""
        model, card = fitted.model, fitted.model.card
        update: dict[str, object] = {}
        if self.network is not None and not isinstance(self.network, str):
            update["network"] = code_name(self.network)
        if self.predictor in card.predictors:
            update["predictors"] = (self.predictor, *(name for name in card.predictors if name != self.predictor))
        model.card = card.model_copy(update=update)
        for name in card.predictors:
            model._named_predictor(name).shift_priors(factors[list(card.subclass_map.parents)].tolist())
        self.model_, self.n_iter_ = model, len(fitted.epochs)
        self.loss_curve_ = [row.loss for row in fitted.epochs]
        if self.early_stopping:
            validations = (row.validation for row in fitted.epochs)
            self.validation_scores_ = [scores.score for scores in validations if isinstance(scores, Scores)]
        statistics = model.statistics or gather_statistics(model, replace(train, labels=fitted.labels))
        self.xbar_ = (statistics.counts @ statistics.means / statistics.counts.sum()).numpy()
        # Turn rows with ascending eigenvalues into columns with the strongest first.
        self.scalings_ = discriminant_directions(statistics, card.alpha, card.lam).flip(0).T.contiguous().numpy()

    def _scores(self, X: ArrayLike) -> NDArray[np.float64]:
        """Compute the scores, (n, n_classes), which calibration does not change, except that `priors` shift them."""
        return self._apply(X, lambda embedding: self.model_.class_scores(embedding))

    def _apply(self, X: ArrayLike, function: Callable[[Tensor], Tensor]) -> NDArray[np.float64]:
        """Apply `function` to the embedding of X."""
        check_is_fitted(self)
        inputs = samples_like_training(self, X, self.model_.card.table)
        if inputs.ndim != 2:
            return self.model_._collect(function, inputs)
        samples = _unread(inputs)
        blocks = (np.asarray(samples[start : start + _BLOCK]) for start in range(0, len(samples), _BLOCK))
        padded = (np.pad(block, ((0, _BLOCK - len(block)), (0, 0)), mode="edge") for block in blocks)
        return np.concatenate([self.model_._collect(function, block) for block in padded])[: len(samples)]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _unread(inputs: NDArray[Any]) -> Inputs | NDArray[Any]:
    """Return samples that are read when they are needed, if they are a sparse matrix, or images in a file.

    Images in float64 are read at once, because the loop needs them in another precision.
    """
    if issparse(inputs):
        return SparseRows(inputs)
    stays = inputs.ndim == 4 and inputs.dtype != np.float64 and is_mapped(inputs)
    return MappedRows(inputs) if stays else inputs


def _layers_of(card: ModelCard) -> dict[str, object]:
    """Return the hidden layers of a trained MLP as settings."""
    return {"hidden_layer_sizes": layer_text(card.hidden_layer_sizes), "dropout": card.dropout}


def __getattr__(name: str) -> type[DeepLDAClassifier]:
    if name == "SubclassDeepLDAClassifier":
        from deeplda._deprecated import subclass_classifier

        return subclass_classifier(stacklevel=2)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
