"""A fitted classifier as a folder: the model's own two files, its coordinates, and a JSON of the rest. No pickle."""

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

from deeplda.errors import InputError, got
from deeplda.io import new_folder, read_arrays, read_small
from deeplda.loading import load
from deeplda.model import Model


def plain(value: Any) -> Any:
    """A Python number for one of numpy's, as grids of parameters have them."""
    return value.item() if isinstance(value, np.generic) else value


_RECORD = "classifier.json"
_COORDINATES = "coordinates.safetensors"
# What a folder may hold that another classifier takes the place of; exports are of the one before.
_OURS = {"model.json", "weights.safetensors", _COORDINATES, _RECORD, "model.onnx", "model.pt2"}
# Labels that take more than this are no labels.
_LARGEST_LABELS = 2**26

Label = bool | int | float | str


class Record(BaseModel):
    """Contents of classifier.json.

    Attributes:
        estimator: the name of its class.
        parameters: of the constructor. A `network` that is code is left out, and so is a `random_state` that is no
            number; `class_weight` stands apart, as JSON has no labels as keys.
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


def write(folder: Path, record: Record, model: Model, coordinates: dict[str, NDArray[np.float64]]) -> None:
    """Write all files. A classifier saved there before is replaced, with what was exported from it.

    Raises InputError where the folder is something else, or holds other files too.
    """
    folder = folder.absolute()
    with new_folder(folder) as temporary:
        # Checked here, where no other process can write the folder between the check and the end of the block.
        if folder.exists() and not (folder / _RECORD).is_file():
            raise InputError(got(f"{folder} already exists", need="a new folder", do="choose another name"))
        if others := sorted({file.name for file in folder.glob("*")} - _OURS):
            what = f"{folder} holds {others[0]!r} beside a classifier"
            raise InputError(got(what, need="a folder of its own to replace", do="choose another name"))
        model._write(temporary)
        save_file(coordinates, temporary / _COORDINATES)
        (temporary / _RECORD).write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")


def read_record(folder: Path, estimator: str, parameters: Collection[str]) -> Record:
    """Read classifier.json of an estimator that has these parameters.

    Raises InputError where it is missing, not one of ours, or of another estimator.
    """
    try:
        record = Record.model_validate_json(read_small(folder / _RECORD))
    except (OSError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            got(f"{folder} holds no classifier ({reason})", need="a folder that save has written", do="check the path")
        ) from None
    if record.estimator != estimator:
        raise InputError(
            got(
                f"{folder} holds a {record.estimator}",
                need=f"a {estimator}",
                do=f"read it by {record.estimator}.load",
            )
        )
    if unknown := sorted(record.parameters.keys() - set(parameters)):
        raise InputError(_contradiction(folder, f"a parameter {unknown[0]!r}"))
    return record


def read_model(
    folder: Path, record: Record, network: nn.Module | str | None, device: str
) -> tuple[Model, NDArray[np.float64], NDArray[np.float64]]:
    """The model, and xbar (d,) and scalings (d, m) of the coordinates.

    Raises InputError where they are missing or do not fit the record, or the network is unknown code.
    """
    coordinates = read_arrays(folder / _COORDINATES)
    model = load(folder, network=network, device=device)
    xbar, scalings = (coordinates.get(name, np.empty(0)) for name in ("xbar", "scalings"))
    if len(record.classes) != len(model.class_names):
        raise InputError(_contradiction(folder, f"{len(record.classes)} classes"))
    if record.n_features != model.card.sample_shape[0]:
        raise InputError(_contradiction(folder, f"{record.n_features} features"))
    if record.feature_names is not None and len(record.feature_names) != record.n_features:
        raise InputError(_contradiction(folder, f"{len(record.feature_names)} names of features"))
    if xbar.shape != (model.card.embedding_dim,) or scalings.ndim != 2 or len(scalings) != len(xbar):
        raise InputError(_contradiction(folder, "coordinates of another width"))
    if xbar.dtype != np.float64 or scalings.dtype != np.float64:
        raise InputError(_contradiction(folder, "coordinates of another kind"))
    return model, xbar, scalings


def _contradiction(folder: Path, found: str) -> str:
    return got(f"{folder} says it has {found}", need="what its model has", do="save the classifier again")


def labels_as_json(classes: NDArray[Any]) -> tuple[str, list[Label]]:
    """The dtype and the values of class labels. Raises InputError for labels that are no numbers, truths or strings."""
    values = [plain(value) for value in classes.tolist()]
    strange = [type(value).__name__ for value in values if not isinstance(value, Label)]
    if strange:
        raise InputError(
            got(f"labels of type {strange[0]}", need="numbers, booleans or strings", do="use such labels, or pickle")
        )
    return classes.dtype.str, values


def labels_from_json(dtype: str, values: list[Label]) -> NDArray[Any]:
    """The labels that `labels_as_json` was given. Raises InputError for what it never writes."""
    lie = got(f"class labels of type {dtype!r}", need="those of the classifier", do="save the classifier again")
    if not re.fullmatch(r"[<>=|]?(O|[biufU][0-9]{1,9})", dtype):
        raise InputError(lie)
    try:
        kind = np.dtype(dtype)
        if kind.itemsize * len(values) > _LARGEST_LABELS:
            raise InputError(lie)
        return np.array(values, dtype=kind)
    except (TypeError, ValueError, OverflowError):
        raise InputError(lie) from None


def weights_as_json(weights: Mapping[Any, float]) -> list[tuple[Label, float]]:
    """A mapping from labels to weights as pairs."""
    _, labels = labels_as_json(np.array(list(weights), dtype=object))
    return list(zip(labels, map(float, weights.values()), strict=True))


def parameters_as_json(parameters: Mapping[str, Any]) -> dict[str, Label | None]:
    """The parameters that JSON can hold, as plain Python values."""
    values = {name: plain(value) for name, value in parameters.items()}
    return {name: value for name, value in values.items() if value is None or isinstance(value, Label)}
