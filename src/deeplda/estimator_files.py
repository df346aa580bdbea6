"""A fitted classifier as a folder: the model's two files, the coordinates, and JSON for the rest. No pickle."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.numpy import save_file
from torch import nn

from deeplda.errors import InputError
from deeplda.io import new_folder, read_arrays, read_small
from deeplda.loading import load
from deeplda.model import Model

_CLASSIFIER = "classifier.json"
_COORDINATES = "coordinates.safetensors"
# Files that a classifier which is being replaced may consist of, including exports of it.
_OURS = {"model.json", "weights.safetensors", _COORDINATES, _CLASSIFIER, "model.onnx", "model.pt2"}
_ESTIMATORS = ("DeepLDAClassifier", "SubclassDeepLDAClassifier")
# Bytes; real labels take less.
_LARGEST_LABELS = 2**26

Label = bool | int | float | str


class ClassifierFile(BaseModel):
    """The contents of classifier.json.

    Attributes:
        estimator: the name of its class.
        parameters: of the constructor, without a `network` that is code and a `random_state` that is not a number.
        class_weight: pairs of label and weight, because JSON keys are strings.
        dtype: of `classes`, as numpy writes it.
    """

    model_config = ConfigDict(extra="forbid", strict=True, ser_json_inf_nan="constants")

    format: Literal[1] = 1
    estimator: str
    parameters: dict[str, Label | None]
    class_weight: list[tuple[Label, float]] | None
    dtype: str
    classes: list[Label]
    n_features: int
    feature_names: list[str] | None
    losses: list[float]
    validation_scores: list[float] | None


def write_classifier(
    folder: Path, file: ClassifierFile, model: Model, coordinates: dict[str, NDArray[np.float64]]
) -> None:
    """Write all files. A classifier saved there before is replaced, together with its exports.

    Raises InputError if the folder is not a classifier's or contains other files.
    """
    folder = folder.absolute()
    with new_folder(folder) as temporary:
        # Checked here, where no other process can write the folder between the check and the end of the block.
        if folder.exists() and not (folder / _CLASSIFIER).is_file():
            raise InputError(f"{folder} already exists", need="a new folder", do="choose another name")
        if others := sorted({entry.name for entry in folder.glob("*")} - _OURS):
            found = f"{folder} contains {others[0]!r} besides a classifier"
            raise InputError(found, need="a folder with nothing else to replace", do="choose another name")
        model._write(temporary)
        save_file(coordinates, temporary / _COORDINATES)
        (temporary / _CLASSIFIER).write_text(file.model_dump_json(indent=2) + "\n", encoding="utf-8")


def read_classifier_file(folder: Path, parameters: Collection[str]) -> ClassifierFile:
    """Read classifier.json of an estimator with these parameters.

    Raises InputError if it is missing, damaged, or belongs to another estimator.
    """
    try:
        file = ClassifierFile.model_validate_json(read_small(folder / _CLASSIFIER))
    except (OSError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{folder} is not a classifier ({reason}), need a folder written by save") from None
    if file.estimator not in _ESTIMATORS:
        raise InputError(f"{folder} contains a {file.estimator}, need a DeepLDAClassifier: load it with its own class")
    if unknown := sorted(file.parameters.keys() - set(parameters)):
        raise _contradiction(folder, f"a parameter {unknown[0]!r}")
    return file


def read_model(
    folder: Path, file: ClassifierFile, network: nn.Module | str | None, device: str
) -> tuple[Model, NDArray[np.float64], NDArray[np.float64]]:
    """Return the model, and xbar (d,) and scalings (d, m) of the coordinates.

    Raises InputError if they are missing or contradict classifier.json, or if the network is unknown code.
    """
    coordinates = read_arrays(folder / _COORDINATES)
    model = load(folder, network=network, device=device)
    xbar, scalings = (coordinates.get(name, np.empty(0)) for name in ("xbar", "scalings"))
    if len(file.classes) != len(model.class_names):
        raise _contradiction(folder, f"{len(file.classes)} classes")
    if file.n_features != model.card.sample_shape[0]:
        raise _contradiction(folder, f"{file.n_features} features")
    if file.feature_names is not None and len(file.feature_names) != file.n_features:
        raise _contradiction(folder, f"{len(file.feature_names)} feature names")
    if xbar.shape != (model.card.embedding_dim,) or scalings.ndim != 2 or len(scalings) != len(xbar):
        raise _contradiction(folder, "coordinates of another width")
    if xbar.dtype != np.float64 or scalings.dtype != np.float64:
        raise _contradiction(folder, "coordinates of another type")
    return model, xbar, scalings


def _contradiction(folder: Path, declared: str) -> InputError:
    return InputError(f"{folder} declares {declared}", need="what its model has", do="save the classifier again")


def labels_as_json(classes: NDArray[Any]) -> tuple[str, list[Label]]:
    """Return dtype and values of class labels. Raises InputError unless they are numbers, booleans or strings."""
    values = [plain(value) for value in classes.tolist()]
    if unsupported := [type(value).__name__ for value in values if not isinstance(value, Label)]:
        what = f"labels of type {unsupported[0]}"
        raise InputError(what, need="numbers, booleans or strings", do="convert them, or pickle")
    return classes.dtype.str, values


def labels_from_json(dtype: str, values: list[Label]) -> NDArray[Any]:
    """Return the labels that `labels_as_json` received. Raises InputError for values that it never writes."""
    try:
        known = re.fullmatch(r"[<>=|]?(O|[biufU][0-9]{1,9})", dtype)
        if known and np.dtype(dtype).itemsize * len(values) <= _LARGEST_LABELS:
            return np.array(values, dtype=dtype)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(f"class labels of type {dtype!r} are not those of a classifier: save it again")


def weights_as_json(weights: Mapping[Any, float]) -> list[tuple[Label, float]]:
    """Return a mapping from labels to weights as pairs."""
    _, labels = labels_as_json(np.array(list(weights), dtype=object))
    return list(zip(labels, map(float, weights.values()), strict=True))


def parameters_as_json(parameters: Mapping[str, Any]) -> dict[str, Label | None]:
    """Return the parameters that JSON can represent, as plain Python values."""
    values = {name: plain(value) for name, value in parameters.items()}
    return {name: value for name, value in values.items() if value is None or isinstance(value, Label)}


def plain(value: Any) -> Any:
    """Return a Python number for a numpy one, as parameter grids contain them."""
    return value.item() if isinstance(value, np.generic) else value
