"""Save a fitted classifier, without pickle, as a folder: the model's two files, the coordinates, and JSON."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.numpy import save
from torch import nn

from deeplda.errors import InputError
from deeplda.io import read_arrays, read_small
from deeplda.loading import load
from deeplda.model import MODEL_FILES, Model
from deeplda.output_folder import OutputFolder

_CLASSIFIER = "classifier.json"
_COORDINATES = "coordinates.safetensors"
# Files of a classifier, including its exports; a folder with any other file is not replaced.
_OURS = MODEL_FILES | {_COORDINATES, _CLASSIFIER}
_ESTIMATORS = ("DeepLDAClassifier", "SubclassDeepLDAClassifier")
# In bytes; real labels take less.
_LARGEST_LABELS = 2**26

Label = bool | int | float | str


class ClassifierFile(BaseModel):
    """The contents of classifier.json.

    Attributes:
        estimator: the name of the estimator's class.
        parameters: the constructor parameters, except a `network` that is code and a `random_state` that is an object.
        class_weight: (label, weight) pairs, because JSON keys can only be strings.
        dtype: the NumPy dtype string of `classes`.
    """

    model_config = ConfigDict(extra="forbid", strict=True, ser_json_inf_nan="constants")

    format: Literal[1] = 1
    estimator: str
    parameters: dict[str, Label | list[Label] | None]
    class_weight: list[tuple[Label, float]] | None
    dtype: str
    classes: list[Label]
    n_features: int
    feature_names: list[str] | None
    losses: list[float]
    validation_scores: list[float] | None


def write_classifier(
    path: Path, file: ClassifierFile, model: Model, coordinates: dict[str, NDArray[np.float64]]
) -> None:
    """Write all files. A classifier that is already there is replaced, and its exports are removed.

    Raises InputError if the folder exists but does not contain a classifier, or contains other files.
    """
    path = path.absolute()
    if path.exists() and not (path / _CLASSIFIER).is_file():
        raise InputError(f"{path} already exists and is not a classifier: choose another name")
    with OutputFolder.open(path.parent) as parent, parent.new_folder(path.name, ours=_OURS) as folder:
        model._write(folder)
        folder.write(_COORDINATES, save(coordinates))
        folder.write(_CLASSIFIER, file.model_dump_json(indent=2) + "\n")


def read_classifier_file(folder: Path, parameters: Collection[str]) -> ClassifierFile:
    """Read classifier.json for an estimator with these parameters.

    Raises InputError if it is missing or damaged, or belongs to a different estimator.
    """
    try:
        file = ClassifierFile.model_validate_json(read_small(folder / _CLASSIFIER))
    except (OSError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{folder} is not a classifier ({reason}), need a folder written by save") from None
    if file.estimator not in _ESTIMATORS:
        raise InputError(f"{folder} contains a {file.estimator}, need a DeepLDAClassifier: load it with its own class")
    if unknown := sorted(file.parameters.keys() - set(parameters)):
        raise InputError(f"{folder} declares an unknown parameter {unknown[0]!r}: save the classifier again")
    return file


def read_model(
    folder: Path, file: ClassifierFile, network: nn.Module | str | None, device: str
) -> tuple[Model, NDArray[np.float64], NDArray[np.float64]]:
    """Return the model and the coordinates' xbar (d,) and scalings (d, m).

    Raises InputError if they are missing or contradict classifier.json, or if the network is code that the caller did
    not name.
    """
    coordinates = read_arrays(folder / _COORDINATES)
    model = load(folder, network=network, device=device)
    xbar, scalings = (coordinates.get(name, np.empty(0)) for name in ("xbar", "scalings"))
    if len(file.classes) != len(model.class_names):
        raise _contradiction(folder, f"{len(file.classes)} classes")
    if file.n_features != _columns_in(model):
        raise _contradiction(folder, f"{file.n_features} features")
    if file.feature_names is not None and len(file.feature_names) != file.n_features:
        raise _contradiction(folder, f"{len(file.feature_names)} feature names")
    if xbar.shape != (model.card.embedding_dim,) or scalings.ndim != 2 or len(scalings) != len(xbar):
        what = f"the coordinates in {folder} do not have the width of its model's embedding"
        raise InputError(f"{what}: save the classifier again")
    if xbar.dtype != np.float64 or scalings.dtype != np.float64:
        raise InputError(f"the coordinates in {folder} are not float64: save the classifier again")
    return model, xbar, scalings


def _columns_in(model: Model) -> int:
    """Return the number of features, of columns of a data frame, or of channels of images."""
    table = model.card.table
    return model.card.sample_shape[0] if table is None else len(table.columns) + len(table.left_out)


def _contradiction(folder: Path, declared: str) -> InputError:
    return InputError(f"{folder} declares {declared}, which contradicts its model: save the classifier again")


def labels_as_json(classes: NDArray[Any]) -> tuple[str, list[Label]]:
    """Return the dtype and values of class labels.

    Raises InputError if a label is not a number, boolean or string.
    """
    values = [plain(value) for value in classes.tolist()]
    if unsupported := [type(value).__name__ for value in values if not isinstance(value, Label)]:
        what = f"the labels are of type {unsupported[0]}"
        raise InputError(what, need="numbers, booleans or strings", do="convert them, or pickle the classifier")
    return classes.dtype.str, values


def labels_from_json(dtype: str, values: list[Label]) -> NDArray[Any]:
    """Return the labels passed to `labels_as_json`. Raises InputError if it cannot have written these values."""
    try:
        known = re.fullmatch(r"[<>=|]?(O|[biufU][0-9]{1,9})", dtype)
        if known and np.dtype(dtype).itemsize * len(values) <= _LARGEST_LABELS:
            return np.array(values, dtype=dtype)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(f"the class labels of type {dtype!r} cannot be restored: save the classifier again")


def weights_as_json(weights: Mapping[Any, float]) -> list[tuple[Label, float]]:
    """Return a mapping from labels to weights as pairs."""
    _, labels = labels_as_json(np.array(list(weights), dtype=object))
    return list(zip(labels, map(float, weights.values()), strict=True))


def parameters_as_json(parameters: Mapping[str, Any]) -> dict[str, Label | list[Label] | None]:
    """Return the parameters that JSON can represent, as plain Python values and lists of these."""
    values = {name: plain(value) for name, value in parameters.items()}
    return {
        name: value
        for name, value in values.items()
        if value is None or isinstance(value, Label) or (isinstance(value, list) and all(map(_is_label, value)))
    }


def parameters_from_json(values: Mapping[str, Label | list[Label] | None]) -> dict[str, Any]:
    """Return the parameters passed to `parameters_as_json`, with tuples for all sequences."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def plain(value: Any) -> Any:
    """Convert NumPy scalars, such as values from a parameter grid, to Python values, and sequences to lists of these.

    Other values are returned unchanged.
    """
    if isinstance(value, tuple | list | np.ndarray):
        return [plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _is_label(value: object) -> bool:
    return isinstance(value, Label)
