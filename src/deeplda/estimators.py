"""The scikit-learn estimators, trained by the same loop as the command line."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from deeplda import estimator_files as saving
from deeplda.data import Data, Part
from deeplda.device import kept_generators
from deeplda.errors import InputError, code_not_run, got
from deeplda.estimator_files import plain
from deeplda.io import expanded, read_folder
from deeplda.model import Model, read_card
from deeplda.networks.inspection import output_width
from deeplda.predictors import discriminant_directions
from deeplda.sampling import stratified, sufficient_batch_size
from deeplda.training.config import RunConfig
from deeplda.training.evaluation import gather_statistics
from deeplda.training.loop import train
from deeplda.training.metrics import EpochRow, Scores
from deeplda.training.progress import Progress, TerminalProgress
from deeplda.training.run import MemoryRun
from deeplda.training.subclass_stage import find_subclasses, on_subclasses
from deeplda.training.trainee import assemble

NetworkFactory = Callable[[tuple[int, ...], int], nn.Module]
PREDICTORS = ("hyperplanes", "nearest_mean", "classic_lda")

# Parameters that the settings of a run know by the same name.
_SETTINGS = (
    "objective", "alpha", "lam", "epsilon", "statistic", "scatter",
    "embedding_dim", "learning_rate", "weight_decay", "device",
)  # fmt: skip
# Those of SubclassDeepLDAClassifier.
SUBCLASS_SETTINGS = (
    "subclasses", "cluster_on", "cluster_starts", "smallest_cluster", "subclass_decision", "autoencoder_epochs",
)  # fmt: skip


def run_settings(parameters: Mapping[str, Any], seed: int) -> RunConfig:
    """The settings of the loop from the parameters of an estimator. Raises InputError for one out of its range."""
    for name in ("max_epochs", "n_iter_no_change", "batch_size"):
        _check_count(name, parameters[name], least=2 if name == "batch_size" else 1)
    if parameters["predictor"] not in PREDICTORS:
        raise InputError(
            got(f"predictor is {parameters['predictor']!r}", need=f"one of {PREDICTORS}", do="check the spelling")
        )
    settings = {name: plain(parameters[name]) for name in _SETTINGS}
    network = parameters["network"]
    if "subclasses" in parameters and settings["embedding_dim"] is None:
        settings["embedding_dim"] = "subclasses"
    return RunConfig.parse(
        {
            **settings,
            "network": network if isinstance(network, str) else None,
            "class_weight": "balanced" if _is_balanced(parameters["class_weight"]) else None,
            "epochs": int(parameters["max_epochs"]),
            "patience": int(parameters["n_iter_no_change"]) if parameters["early_stopping"] else None,
            "batch_size": int(parameters["batch_size"]),
            **{name: plain(parameters[name]) for name in SUBCLASS_SETTINGS if name in parameters},
            "seed": seed,
            "data": "arrays",
        },
        "DeepLDAClassifier",
    )


def held_out(labels: NDArray[np.int64], fraction: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Places to train on and to validate on, stratified; training keeps a sample of every class."""
    if isinstance(fraction, bool | str) or not 0 < fraction < 1:
        raise InputError(
            got(f"validation_fraction is {fraction!r}", need="a number between 0 and 1", do="0.1 is the default")
        )
    size = max(1, round(fraction * len(labels)))
    train, validation = stratified(labels, size, np.random.Generator(np.random.PCG64(seed)))
    if not len(validation):
        raise InputError(
            got(
                f"early_stopping with {len(labels)} samples of {len(np.unique(labels))} classes, none to spare",
                need="more than one sample of some class",
                do="use early_stopping=False",
            )
        )
    return train, validation


def arrays_as_data(train: Part, validation: Part, class_names: tuple[str, ...]) -> tuple[Data, StandardScaler | None]:
    """The parts as the loop takes them, and the standardisation that rows went through on the way.

    The loop computes in float32. Rows are standardised in float64 before, so that features of any size or offset
    arrive whole; images are handed on as uint8 or float32, in the range they have.
    """
    scaler = None
    if train.inputs.ndim == 2:
        scaler = StandardScaler().fit(train.inputs.astype(np.float64, copy=False))
    ours, theirs = _for_the_loop(train, scaler), _for_the_loop(validation, scaler)
    return Data("arrays", ours, theirs, ours.take(np.arange(0)), class_names), scaler


def own_network(
    network: object, sample_shape: tuple[int, ...], embedding_dim: int | None, groups: int, seed: int
) -> tuple[nn.Module | None, int | None]:
    """The network to train where the user gave one, never that one itself, and the width of its output.

    None, and `embedding_dim` as it is, where the network has a name or none was given: the loop builds it.
    A callable is asked for `embedding_dim` outputs, or as many as there are classes or subclasses, `groups`.
    """
    if network is None or isinstance(network, str):
        return None, embedding_dim
    with kept_generators():
        torch.manual_seed(seed)
        built = build_own(network, sample_shape, embedding_dim or groups)
        width = output_width(built, sample_shape)
    if embedding_dim is not None and width != embedding_dim:
        raise InputError(
            got(
                f"the network gives {width} numbers for a sample and embedding_dim is {embedding_dim}",
                need="both the same",
                do="leave embedding_dim out, or change the last layer",
            )
        )
    return built, width


def build_own(network: object, sample_shape: tuple[int, ...], embedding_dim: int) -> nn.Module:
    """A copy of a module, or what a callable of (sample_shape, embedding_dim) makes; in float32, as it is trained."""
    built = copy.deepcopy(network) if isinstance(network, nn.Module) else None
    if built is None and callable(network):
        built = network(sample_shape, embedding_dim)
    if not isinstance(built, nn.Module):
        raise InputError(
            got(
                f"network is {network!r}",
                need="None, a name, an nn.Module or a callable of (sample_shape, embedding_dim) that makes one",
                do="pass one of these",
            )
        )
    return built.float()


def log_class_weights(
    class_weight: Mapping[Any, float] | str | None,
    classes: NDArray[Any],
    labels: NDArray[np.int64],
    predictor: str,
) -> NDArray[np.float64]:
    """What class weights add to the scores, (C,).

    A mapping multiplies the priors with which a predictor decides, so its logarithm joins the scores: ones change
    nothing. "balanced" is in the loss already; only classic LDA, whose priors are the shares of the classes, has to
    be brought to equal ones.
    """
    if class_weight is None or _is_balanced(class_weight):
        if class_weight is None or predictor != "classic_lda":
            return np.zeros(len(classes))
        return -np.log(np.bincount(labels, minlength=len(classes)))
    if not isinstance(class_weight, Mapping):
        raise InputError(
            got(f"class_weight is {class_weight!r}", need='None, "balanced" or a dict', do="write {label: weight}")
        )
    weights = compute_class_weight(dict(class_weight), classes=classes, y=classes[labels])
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise InputError(
            got(f"class_weight is {dict(class_weight)!r}", need="positive finite numbers", do="leave classes out at 1")
        )
    return np.asarray(np.log(weights), dtype=np.float64)


def _check_count(name: str, value: object, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(got(f"{name} is {value!r}", need=f"a whole number of at least {least}", do="raise it"))


def _is_balanced(class_weight: object) -> bool:
    return isinstance(class_weight, str) and class_weight == "balanced"


def _for_the_loop(part: Part, scaler: StandardScaler | None) -> Part:
    inputs: NDArray[Any] = part.inputs
    if scaler is not None and len(part):
        inputs = scaler.transform(inputs.astype(np.float64, copy=False))
    if inputs.dtype != np.uint8:
        inputs = inputs.astype(np.float32, copy=False)
    return Part(np.ascontiguousarray(inputs), part.labels)


# Others are turned into the first: rows are computed with in float64, images stay as small as they come.
_DTYPES = [np.float64, np.float32, np.uint8]
# Rows are predicted in blocks of this size, filled up where there are fewer: products of other shapes round otherwise.
_BLOCK = 128


class DeepLDAClassifier(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is not typed
    """Deep linear discriminant analysis.

    A network is trained on the discriminant objective, so that its output, the embedding, is compact within classes
    and linearly separable between them; a linear predictor on the embedding decides. The training is that of
    `deeplda train`.

    Samples are rows of numbers (n, features), standardised inside, or images (n, channels, height, width), whose
    channels are. Rows are predicted in float64 and in blocks of one size: the answer for a row is the same, to the
    last bit, whatever rows come with it.

    Parameters
    ----------
    network : None, str, nn.Module or callable, default=None
        None: an MLP for rows and a convolutional network for images. A name: as `deeplda train --network` takes it.
        A module: a copy of it is trained, in float32, from the weights it has. A callable: called as
        `network(sample_shape, embedding_dim)`, returns the module to train.
    objective : {"rdlda", "dlda", "cce"}, default="rdlda"
        The regularised discriminant objective, the one with alpha 1, or cross-entropy.
    alpha, lam, epsilon, scatter
        Of the objective, as in `RDLDALoss`.
    statistic : {"wilks", "smallest", "pillai", "hotelling"}, default="wilks"
        As in `RDLDALoss`. The paper's, "smallest", fits tables of a few hundred rows too closely.
    predictor : {"hyperplanes", "nearest_mean", "classic_lda"}, default="hyperplanes"
        What decides on the embedding. With objective "cce" it is softmax and this is not looked at.
    embedding_dim : int, default=None
        Width of the embedding; None: the number of classes, or what the module given as `network` has.
    max_epochs : int, default=100
        Passes over the training samples, unless `early_stopping` ends before.
    batch_size : int, default=200
        Samples in a step. More are taken where batches would come out with one class alone.
    learning_rate : float, default=0.1
        The highest learning rate; it rises in the first quarter of the steps and falls to 0 in the rest.
    weight_decay : float, default=0.01
        On all parameters of the network.
    early_stopping : bool, default=False
        Hold samples out, stop when their accuracy has not risen for `n_iter_no_change` epochs, and keep the best.
    validation_fraction : float, default=0.1
        Share of the samples held out for that, stratified.
    n_iter_no_change : int, default=10
        Epochs to wait for a better accuracy.
    class_weight : None, "balanced" or dict, default=None
        "balanced": classes count alike in the objective, and in the decisions. A dict {label: weight}, weight 1 for
        labels left out: the priors with which the predictor decides are multiplied by the weights (equal priors for
        hyperplanes and nearest mean, the shares of the classes for classic LDA and softmax), as if costs or class
        shares were to differ by these factors; the training is the same.
    device : str, default="cpu"
        Where to train: "cpu", "cuda", ..., "auto" for CUDA where there is one. Rows are predicted on the CPU.
    verbose : int, default=0
        More than 0: report on stderr.
    random_state : int, RandomState or None, default=None
        Fixes weights, order of the samples, and the split for early stopping.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    n_features_in_ : int
        Number of features; of channels for images.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Where `X` had columns with names that are strings.
    model_ : deeplda.model.Model
        The trained model; class names are the labels as strings.
    n_iter_ : int
        Epochs that were run.
    loss_curve_ : list of float, of length n_iter_
        Mean loss of each epoch. The discriminant losses are negative by nature.
    validation_scores_ : list of float, of length n_iter_
        Accuracy on the held-out samples (by the hyperplanes, or softmax); only with `early_stopping`.
    xbar_ : ndarray of shape (embedding_dim,)
        Mean embedding of the training samples.
    scalings_ : ndarray of shape (embedding_dim, n_components)
        The discriminant directions, strongest first; n_components = min(embedding_dim, n_classes - 1).

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
        self.network = network
        self.objective = objective
        self.alpha = alpha
        self.lam = lam
        self.epsilon = epsilon
        self.statistic = statistic
        self.scatter = scatter
        self.predictor = predictor
        self.embedding_dim = embedding_dim
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.class_weight = class_weight
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, **refused: object) -> Self:
        """Train on samples X, (n, features) or (n, channels, height, width), with labels y, (n,)."""
        _refuse(refused)
        self._forget()
        inputs, targets = validate_data(self, X, y, dtype=_DTYPES, allow_nd=True, force_writeable=True)
        if inputs.ndim not in (2, 4):
            raise InputError(
                got(f"X has shape {inputs.shape}", need="2 axes for rows or 4 for images", do="reshape the samples")
            )
        labels = self._take_labels(targets)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        train_part, validation = Part(inputs, labels), Part(inputs[:0], labels[:0])
        if self.early_stopping:
            rest, held = held_out(labels, self.validation_fraction, seed)
            train_part, validation = train_part.take(rest), train_part.take(held)
        predictor = "softmax" if self.objective == "cce" else self.predictor
        log_weights = log_class_weights(self.class_weight, self.classes_, train_part.labels, predictor)
        config = run_settings(self.get_params(deep=False), seed)
        data, scaler = arrays_as_data(train_part, validation, tuple(map(str, self.classes_)))
        labels = self._train(config, data)
        if scaler is not None:
            _take_in(self.model_, scaler.mean_, scaler.scale_)
        self._finish(Part(train_part.inputs, labels), log_weights)
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Label of each sample, (n,)."""
        places = self._apply(X, self._scores).argmax(1)
        labels: NDArray[Any] = self.classes_[places]
        return labels

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probability of each class, (n, n_classes), in the order of `classes_`."""
        return self._apply(X, lambda embedding: self._scores(embedding).softmax(1))

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Score of each class, (n, n_classes); for two classes that of the second less that of the first, (n,)."""
        scores = self._apply(X, self._scores)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """The discriminant coordinates, (n, n_components): the embedding projected on the discriminant directions.

        Along each, the training samples have variance 1 within classes (as far as S'_W, with its alpha and lam, is
        their scatter), and all that tells class means apart is there.
        """
        check_is_fitted(self)
        mean, directions = torch.from_numpy(self.xbar_), torch.from_numpy(self.scalings_)
        return self._apply(X, lambda embedding: (embedding.cpu().double() - mean) @ directions)

    def save(self, path: str | Path) -> None:
        """Write the classifier to a folder, without pickle; `load` reads it, and so does `deeplda.load`.

        A classifier saved there before is replaced; a folder with anything else in it is refused.
        """
        check_is_fitted(self)
        dtype, classes = saving.labels_as_json(self.classes_)
        parameters = self.get_params(deep=False)
        weights = parameters.pop("class_weight")
        if isinstance(weights, str):
            parameters["class_weight"] = weights
        names = getattr(self, "feature_names_in_", None)
        record = saving.Record(
            estimator=type(self).__name__,
            parameters=saving.parameters_as_json(parameters),
            class_weight=saving.weights_as_json(weights) if isinstance(weights, Mapping) else None,
            dtype=dtype,
            classes=classes,
            n_features=self.n_features_in_,
            feature_names=None if names is None else names.tolist(),
            losses=self.loss_curve_,
            validation_scores=getattr(self, "validation_scores_", None),
        )
        saving.write(expanded(path), record, self.model_, {"xbar": self.xbar_, "scalings": self.scalings_})

    @classmethod
    def load(
        cls, path: str | Path, *, network: str | nn.Module | NetworkFactory | None = None, device: str = "cpu"
    ) -> Self:
        """The classifier that `save` wrote. Where its network is code of your own, pass `network` as for training."""
        folder = expanded(path)
        # Another process may replace the folder while its files are read.
        return read_folder(folder, lambda: cls._read(folder, network, device))

    @classmethod
    def _read(cls, folder: Path, network: str | nn.Module | NetworkFactory | None, device: str) -> Self:
        record = saving.read_record(folder, cls.__name__, cls._get_param_names())
        parameters: dict[str, Any] = dict(record.parameters)
        named = parameters.get("network")
        if network is None and isinstance(named, str) and ":" in named:
            raise code_not_run(folder, named, f"pass network={named!r}")
        if network is None and "network" not in parameters:
            code = read_card(folder / "model.json").network
            raise code_not_run(folder, code, "pass network=, the module or callable that the classifier was made with")
        if network is not None:
            parameters["network"] = network
        if record.class_weight is not None:
            parameters["class_weight"] = dict(record.class_weight)
        classifier = cls(**parameters)
        if network is not None and not isinstance(network, str):
            card = read_card(folder / "model.json")
            network = build_own(network, card.sample_shape, card.embedding_dim)
        classifier.model_, classifier.xbar_, classifier.scalings_ = saving.read_model(folder, record, network, device)
        classifier.classes_ = saving.labels_from_json(record.dtype, record.classes)
        classifier.n_features_in_ = record.n_features
        if record.feature_names is not None:
            classifier.feature_names_in_ = np.array(record.feature_names, dtype=object)
        classifier.loss_curve_, classifier.n_iter_ = record.losses, len(record.losses)
        if record.validation_scores is not None:
            classifier.validation_scores_ = record.validation_scores
        return classifier

    def __sklearn_is_fitted__(self) -> bool:
        """Whether a fit came to its end: these are what it sets last."""
        return hasattr(self, "scalings_")

    def _forget(self) -> None:
        """Drop what a fit before has left, so that one that fails leaves no mixture of the two."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)

    @property
    def _n_features_out(self) -> int:
        return int(self.scalings_.shape[1])

    def _take_labels(self, y: NDArray[Any]) -> NDArray[np.int64]:
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError("The number of classes has to be greater than one; got 1 class: add samples of another")
        return labels.astype(np.int64)

    def _train(self, config: RunConfig, data: Data) -> NDArray[np.int64]:
        """Train, and return the labels that were trained on: subclasses where the settings ask for them."""
        run, progress = MemoryRun(), TerminalProgress() if self.verbose else Progress()
        subclasses = None
        try:
            with warnings.catch_warnings():
                # The batches of a small table are what they are, and the ridge is there for them.
                warnings.filterwarnings("ignore", ".*the ridge lam=.* rather than the data decides", UserWarning)
                if config.subclasses != 1:
                    clusters = find_subclasses(config, data, progress)
                    data, subclasses = on_subclasses(data, clusters), clusters.map
                config, network = self._on_groups(config, data, len(subclasses or data.class_names))
                trainee = assemble(config, data, network, subclasses)
                train(config, data, trainee, run, progress)
                self.model_ = trainee.model
        finally:
            progress.close()
        epochs = [row for row in run.rows if isinstance(row, EpochRow)]
        self.n_iter_ = len(epochs)
        self.loss_curve_ = [row.loss for row in epochs]
        if self.early_stopping:
            self.validation_scores_ = [row.validation.accuracy for row in epochs if isinstance(row.validation, Scores)]
        return data.train.labels

    def _on_groups(self, config: RunConfig, data: Data, groups: int) -> tuple[RunConfig, nn.Module | None]:
        """The settings that depend on the classes or subclasses trained on, and the network where the user gave one."""
        enough = sufficient_batch_size(config.batch_size, data.train.labels, config.objective)
        update: dict[str, Any] = {"batch_size": enough}
        network, width = own_network(self.network, data.sample_shape, self.embedding_dim, groups, config.seed)
        if network is not None:
            update["embedding_dim"] = width
        return config.model_copy(update=update), network

    def _finish(self, part: Part, log_weights: NDArray[np.float64]) -> None:
        """Predictors and coordinates from the training samples as they came, and the weights of the classes."""
        model, card = self.model_, self.model_.card
        update: dict[str, Any] = {}
        if self.network is not None and not isinstance(self.network, str):
            kind = type(self.network) if isinstance(self.network, nn.Module) else self.network
            name = getattr(kind, "__qualname__", type(kind).__qualname__)
            update["network"] = f"{getattr(kind, '__module__', '')}:{name}"
        statistics = gather_statistics(model, part)
        if self.objective != "cce":
            model._fit_statistics(statistics)
            update["predictors"] = (self.predictor, *(name for name in card.predictors if name != self.predictor))
        model.card = card.model_copy(update=update)
        model.predictor.bias += torch.as_tensor(log_weights[list(card.subclass_map.parents)]).to(model.predictor.bias)
        self.xbar_ = (statistics.counts @ statistics.means / statistics.counts.sum()).numpy()
        # Rows with ascending eigenvalues become columns, the strongest first.
        self.scalings_ = discriminant_directions(statistics, card.alpha, card.lam).flip(0).T.contiguous().numpy()

    def _scores(self, embedding: Tensor) -> Tensor:
        return self.model_.class_scores(embedding)

    def _apply(self, X: ArrayLike, linear: Callable[[Tensor], Tensor]) -> NDArray[np.float64]:
        """`linear` of the embedding of X."""
        check_is_fitted(self)
        inputs = validate_data(self, X, reset=False, dtype=_DTYPES, allow_nd=True, force_writeable=True)
        parts = [linear(embedding)[:rows].cpu().numpy() for embedding, rows in self._embeddings(inputs)]
        return np.concatenate(parts)

    def _embeddings(self, inputs: NDArray[Any]) -> Iterator[tuple[Tensor, int]]:
        """The embedding in batches, and how many rows of each count."""
        if inputs.ndim != 2:
            yield from ((embedding, len(embedding)) for embedding in self.model_.embeddings(inputs))
            return
        for start in range(0, len(inputs), _BLOCK):
            rows = inputs[start : start + _BLOCK]
            block = np.pad(rows, ((0, _BLOCK - len(rows)), (0, 0)), mode="edge")
            yield from ((embedding, len(rows)) for embedding in self.model_.embeddings(block))


def _take_in(model: Model, mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> None:
    """Make the model one of float64 that takes rows as they were before (x - mean) / deviation."""
    model.cpu().double()
    normalisation = model.normalisation
    offset, factor = torch.from_numpy(mean), torch.from_numpy(deviation)
    normalisation.mean.mul_(factor).add_(offset)
    normalisation.deviation.mul_(factor)


def _refuse(options: Mapping[str, object]) -> None:
    """Raise for options that fit does not have."""
    if options:
        names = ", ".join(options)
        raise TypeError(
            got(f"fit came with {names}", need="X and y alone", do="weigh classes by class_weight, samples cannot be")
        )


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
