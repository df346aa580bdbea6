"""From the parameters of an estimator and arrays to what the training loop takes: settings, data and a network."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_class_weight
from torch import nn

from deeplda.data import Data, Part
from deeplda.data.split import stratified
from deeplda.errors import InputError, got
from deeplda.networks.probe import output_width
from deeplda.training.config import RunConfig
from deeplda.training.randomness import kept_generators

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


def plain(value: Any) -> Any:
    """A Python number for one of numpy's, as grids of parameters have them."""
    return value.item() if isinstance(value, np.generic) else value


def _for_the_loop(part: Part, scaler: StandardScaler | None) -> Part:
    inputs: NDArray[Any] = part.inputs
    if scaler is not None and len(part):
        inputs = scaler.transform(inputs.astype(np.float64, copy=False))
    if inputs.dtype != np.uint8:
        inputs = inputs.astype(np.float32, copy=False)
    return Part(np.ascontiguousarray(inputs), part.labels)
