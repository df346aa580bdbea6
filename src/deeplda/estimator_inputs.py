"""The estimator's inputs to the training loop: samples, the samples held out from it, and the network."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import assert_all_finite, check_array, check_consistent_length, column_or_1d
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import validate_data
from torch import nn

from deeplda.core.options import check_integer, check_number
from deeplda.data.data_frames import encoded_frame, fit_encoder, is_frame, needs_encoding
from deeplda.data.dataset import Inputs, Part
from deeplda.data.mapped_rows import MappedRows
from deeplda.data.sparse_rows import SparseRows
from deeplda.data.table_encoding import TableEncoder
from deeplda.errors import InputError
from deeplda.model import Model
from deeplda.sampling import stratified_split

# The probabilities are calibrated on about this many samples, from at most this many folds. From this many samples on,
# a few of them are held out instead.
_CALIBRATION_SAMPLES, _FOLDS = 500, 5
_MANY_SAMPLES, _HELD_OUT = 10_000, 1_000
# Classes with fewer samples than this stay complete in every fold.
_LEAST_SAMPLES = 3

# Other dtypes are converted to the first one. Tabular data needs float64; images stay as small as they are.
_DTYPES = [np.float64, np.float32, np.uint8]
# The numbers that are standardised at once: 16 MB in float64.
_BLOCK_SIZE = 2**21

Split = tuple[NDArray[np.intp], NDArray[np.intp]]


def training_samples(
    estimator: BaseEstimator, X: object, y: object, before: Model | None = None
) -> tuple[NDArray[Any], NDArray[Any], TableEncoder | None]:
    """Return the samples, the labels (n,) and, if the samples are the encoded rows of a data frame, the encoding.

    Sparse matrices of any format become CSR. This defines `n_features_in_` and `feature_names_in_`. If `before` is a
    model to continue from, the samples must have the same features, and its encoding is used. Columns that are left out
    are reported by a warning.
    """
    table = None if before is None else before.card.table
    if table is None and (before is not None or not needs_encoding(X)):
        checks = {"dtype": _DTYPES, "accept_sparse": "csr", "allow_nd": True, "reset": before is None}
        samples, labels = validate_data(estimator, X, y, **checks)
        return samples, labels, None
    _require_rows(estimator, X)
    if table is None:
        validate_data(estimator, X, y, skip_check_array=True)
    samples = None if table is None else samples_like_training(estimator, X, table)
    labels = column_or_1d(y, warn=True)
    check_consistent_length(X, labels)
    assert_all_finite(labels, input_name="y")
    if table is None:
        table = fit_encoder(X)
        if note := table.left_out_note():
            warnings.warn(note, stacklevel=3)
    return encoded_frame(X, table) if samples is None else samples, labels, table


def samples_like_training(estimator: BaseEstimator, X: object, table: TableEncoder | None) -> NDArray[Any]:
    """Return the samples to predict for a fitted estimator; `table` is the encoding from `training_samples`."""
    if table is None:
        checks = {"dtype": _DTYPES, "accept_sparse": "csr", "allow_nd": True, "reset": False}
        samples: NDArray[Any] = validate_data(estimator, X, **checks)
        return samples
    if not is_frame(X):
        what = f"X is a {type(X).__name__}, but the estimator was fitted on a data frame"
        raise InputError(f"{what}: pass a data frame with the same columns")
    validate_data(estimator, X, reset=False, skip_check_array=True)
    _require_rows(estimator, X)
    return encoded_frame(X, table)


def _require_rows(estimator: BaseEstimator, X: Any) -> None:
    """Raise scikit-learn's error for a data frame without rows."""
    if is_frame(X) and not X.shape[0]:
        check_array(np.empty(X.shape), estimator=estimator)


def hold_out(labels: NDArray[np.int64], fraction: float, seed: int) -> Split:
    """Return the indices of a stratified training and validation set; the training set has a sample of every class."""
    check_number("validation_fraction", fraction)
    if not 0 < fraction < 1:
        raise InputError(f"validation_fraction must be between 0 and 1, got {fraction!r}")
    size = max(1, round(fraction * len(labels)))
    train, validation = stratified_split(labels, size, np.random.Generator(np.random.PCG64(seed)))
    if not len(validation):
        what = f"there are {len(labels)} samples of {len(np.unique(labels))} classes"
        need = "a class with more than one sample for early stopping"
        raise InputError(what, need=need, do="use early_stopping=False")
    return train, validation


def hold_out_few(labels: NDArray[np.int64], seed: int) -> Split | None:
    """Return the indices of a stratified training set and of 1,000 samples for calibration; None below 10,000 samples.

    A set of this size can spare them, and training a second network to calibrate the first would take long.
    """
    if len(labels) < _MANY_SAMPLES:
        return None
    return stratified_split(labels, _HELD_OUT, np.random.Generator(np.random.PCG64(seed)))


def calibration_folds(labels: NDArray[np.int64], seed: int) -> list[Split]:
    """Return the indices of the training and held-out samples of each fold that is needed for calibration.

    Each of the five folds holds out a fifth of the samples, stratified by class. As many folds are returned as have 500
    held-out samples together: all five of them up to 500 samples, and one from 2,500 samples on. A class with fewer
    than three samples is never held out; if there are only such classes, there are no folds.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    enough = np.bincount(labels)[labels[order]] >= _LEAST_SAMPLES
    fold = np.full(len(labels), -1)
    # Dealt out class by class, every fold gets the same number of samples of a class, or one more.
    fold[order[enough]] = np.arange(enough.sum()) % _FOLDS
    splits = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(_FOLDS)]
    needed = -(-_CALIBRATION_SAMPLES * _FOLDS // len(labels))
    return [split for split in splits if len(split[1])][:needed]


@dataclass(frozen=True, eq=False)
class Standardisation:
    """The map of feature vectors x (n, features) to (x - mean) / scale; mean and scale are (features,) float64."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def of(cls, part: Part) -> Self:
        """Return the standardisation of these samples, with their weights; constant features are only centred."""
        if isinstance(part.inputs, SparseRows):
            # scikit-learn computes the means of a sparse matrix as well, but does not subtract them.
            matrix = part.inputs.matrix.astype(np.float64)
            scaler = StandardScaler(with_mean=False).fit(matrix, sample_weight=part.weights)
        else:
            inputs = np.asarray(part.inputs, dtype=np.float64)
            scaler = StandardScaler().fit(inputs, sample_weight=part.weights)
        return cls(scaler.mean_, scaler.scale_)

    @classmethod
    def none(cls, features: int) -> Self:
        """Return the standardisation that leaves samples as they are."""
        return cls(np.zeros(features), np.ones(features))

    @classmethod
    def in_model(cls, model: Model) -> Self:
        """Return the standardisation with which a model was trained."""
        normalisation = model.normalisation
        return cls(normalisation.mean.double().cpu().numpy(), normalisation.deviation.double().cpu().numpy())

    def __call__(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Standardise samples in float64, so that features of any scale or offset keep their precision."""
        standardised: NDArray[np.float64] = (inputs.astype(np.float64, copy=False) - self.mean) / self.scale
        return standardised.astype(np.float32)

    def products(self, first: Inputs, second: Inputs) -> NDArray[np.float64]:
        """Return the inner products (k, n) of samples (k, features) with samples (n, features), all standardised."""
        products = np.zeros((len(first), len(second)))
        if first is second:
            for block in self._blocks(first):
                products += block @ block.T
        elif products.size:
            for left, right in zip(self._blocks(first, len(second)), self._blocks(second, len(first)), strict=True):
                products += left @ right.T
        return products

    def combined(self, weights: NDArray[np.float64], inputs: Inputs) -> NDArray[np.float64]:
        """Return weights (k, n) times the standardised samples (n, features)."""
        return np.concatenate([weights @ block for block in self._blocks(inputs)], axis=1)

    def _blocks(self, inputs: Inputs, at_least: int = 1) -> Iterator[NDArray[np.float64]]:
        """Yield standardised samples (n, some features) of a few features after the others, in float64.

        So only a part of a sparse matrix is dense at a time. The blocks suit n samples, or `at_least` this many.
        """
        columns = inputs.matrix.tocsc() if isinstance(inputs, SparseRows) else inputs
        step = max(1, _BLOCK_SIZE // max(len(inputs), at_least))
        for start in range(0, len(self.mean), step):
            at = slice(start, start + step)
            block: Any = columns[:, at]
            dense = block.toarray() if isinstance(inputs, SparseRows) else block
            yield (dense.astype(np.float64, copy=False) - self.mean[at]) / self.scale[at]


def loop_part(part: Part, standardisation: Standardisation | None) -> Part:
    """Return the samples in the form that the training loop needs, which computes in float32.

    Feature vectors are standardised, and those of a sparse matrix stay there until they are read. Images stay uint8 or
    float32, in their own range; those in a file stay there.
    """
    if isinstance(part.inputs, MappedRows):
        return part
    if isinstance(part.inputs, SparseRows):
        return replace(part, inputs=SparseRows(part.inputs.matrix, standardisation))
    inputs: NDArray[Any] = part.inputs
    if standardisation is not None:
        inputs = standardisation(inputs)
    elif inputs.dtype != np.uint8:
        inputs = inputs.astype(np.float32, copy=False)
    return replace(part, inputs=np.ascontiguousarray(inputs))


def weighted_part(part: Part, class_weight: object, classes: NDArray[Any]) -> Part:
    """Return the samples with their weights times those of their classes; without weights if all of them are 1.

    Raises InputError unless `class_weight` is None, "balanced", or a dict of positive weights by label.
    """
    if isinstance(class_weight, str) and class_weight == "balanced":
        part = part.balanced()
    elif isinstance(class_weight, Mapping):
        given = dict(class_weight)
        factors = np.asarray(compute_class_weight(given, classes=classes, y=classes[part.labels]), dtype=np.float64)
        if not (np.isfinite(factors) & (factors > 0)).all():
            raise InputError(f"class_weight must contain positive finite numbers, got {given!r}")
        weights = factors[part.labels]
        part = replace(part, weights=weights if part.weights is None else part.weights * weights)
    elif class_weight is not None:
        raise InputError(f'class_weight must be None, "balanced" or a dict, got {class_weight!r}')
    return replace(part, weights=None) if part.weights is not None and (part.weights == 1).all() else part


def prior_factors(part: Part, priors: ArrayLike | None) -> NDArray[np.float64]:
    """Return the factors of the class odds, (C,), that turn the shares of the classes in a training set into `priors`.

    The shares are counted with the weights of the samples, with which the network and the predictors were trained. All
    factors are 1 if `priors` is None. Raises InputError unless there is a positive prior for each class.
    """
    sums = np.bincount(part.labels, part.weights).astype(np.float64)
    wanted = sums if priors is None else np.asarray(priors)
    numbers = wanted.dtype.kind in "buif" and wanted.shape == sums.shape
    if not numbers or not (np.isfinite(wanted) & (wanted > 0)).all():
        need = f"{len(sums)} positive numbers, in the order of classes_"
        raise InputError(f"priors is {priors!r}", need=need, do="give very rare classes a small prior")
    factors: NDArray[np.float64] = (wanted / wanted.sum()) / (sums / sums.sum())
    return factors


def layer_text(sizes: object) -> str | None:
    """Return the sizes of hidden layers as the training setting "128,64" or "none". Raises InputError unless valid."""
    if sizes is None:
        return None
    if isinstance(sizes, str) or not isinstance(sizes, Iterable):
        raise InputError(f"hidden_layer_sizes is {sizes!r}", need="a tuple of integers", do="pass (128, 128)")
    return ",".join(str(check_integer("each of hidden_layer_sizes", size)) for size in sizes) or "none"


def build_own(network: object, sample_shape: tuple[int, ...], embedding_dim: int) -> nn.Module:
    """Return a float32 network: a copy of `network`, or the result of `network(sample_shape, embedding_dim)`."""
    if isinstance(network, nn.Module):
        return copy.deepcopy(network).float()
    built = network(sample_shape, embedding_dim) if callable(network) else None
    if not isinstance(built, nn.Module):
        needed = "None, a name, an nn.Module, or a callable that maps (sample_shape, embedding_dim) to an nn.Module"
        raise InputError(f"network is {network!r}, need {needed}")
    return built.float()


def code_name(network: object) -> str:
    """Return the name of the user's code for the model card, in the form "module:name"."""
    kind = type(network) if isinstance(network, nn.Module) else network
    return f"{getattr(kind, '__module__', '')}:{getattr(kind, '__qualname__', type(kind).__qualname__)}"
