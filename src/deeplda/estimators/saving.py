"""A fitted classifier as a folder: the model's own two files, its coordinates, and a JSON of the rest. No pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import nn

from deeplda.errors import InputError, got
from deeplda.estimators.preparation import plain
from deeplda.model import Model, load
from deeplda.training.atomic import new_folder

_RECORD = "classifier.json"
_COORDINATES = "coordinates.safetensors"

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
    """Write all files. A classifier saved there before is replaced; anything else that is there is left alone."""
    folder = folder.absolute()
    if folder.exists() and not (folder / _RECORD).is_file():
        raise InputError(got(f"{folder} is there already", need="a new folder", do="choose another name"))
    with new_folder(folder) as temporary:
        model.save(temporary)
        save_file(coordinates, temporary / _COORDINATES)
        (temporary / _RECORD).write_text(record.model_dump_json(indent=2) + "\n")


def read_record(folder: Path, estimator: str) -> Record:
    """Read classifier.json. Raises InputError where it is missing, not one of ours, or of another estimator."""
    try:
        record = Record.model_validate_json((folder / _RECORD).read_bytes())
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
    return record


def read_model(folder: Path, network: nn.Module | str | None, device: str) -> tuple[Model, dict[str, Any]]:
    """The model and the coordinates. Raises InputError where they are missing, or the network is unknown code."""
    try:
        coordinates = load_file(folder / _COORDINATES)
    except (OSError, SafetensorError) as error:
        raise InputError(
            got(f"{folder / _COORDINATES} cannot be read ({error})", need="it as saved", do="save again")
        ) from None
    return load(folder, network=network, device=device), coordinates


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
    """The labels that `labels_as_json` was given."""
    return np.array(values, dtype=np.dtype(dtype))


def weights_as_json(weights: Mapping[Any, float]) -> list[tuple[Label, float]]:
    """A mapping from labels to weights as pairs."""
    _, labels = labels_as_json(np.array(list(weights), dtype=object))
    return list(zip(labels, map(float, weights.values()), strict=True))


def parameters_as_json(parameters: Mapping[str, Any]) -> dict[str, Label | None]:
    """The parameters that JSON can hold, as plain Python values."""
    values = {name: plain(value) for name, value in parameters.items()}
    return {name: value for name, value in values.items() if value is None or isinstance(value, Label)}
