"""The inputs of a model: samples in any array, checked and cut into batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeplda.data.data_frames import encoded_frame, is_frame
from deeplda.data.mapped_rows import MappedRows
from deeplda.data.sparse_rows import SparseRows
from deeplda.errors import InputError
from deeplda.model_card import ModelCard

# Samples for a model; `MappedRows` are those of a pack, and `SparseRows` those of a sparse matrix.
ModelInputs = Tensor | NDArray[np.generic] | MappedRows | SparseRows


def encoded(inputs: Any, card: ModelCard) -> Any:
    """Return inputs unchanged, except for a data frame with the columns of a model's table, which is encoded."""
    return encoded_frame(inputs, card.table) if card.table is not None and is_frame(inputs) else inputs


def checked_rows(inputs: Any, card: ModelCard) -> ModelInputs:
    """Return inputs (n, *sample_shape) in a form of which `row_batches` can take batches.

    Raises InputError if they do not contain numbers, or have another shape than the training data.
    """
    inputs = encoded(inputs, card)
    if hasattr(inputs, "tocsr"):
        inputs = SparseRows(inputs.tocsr())
    rows = inputs if isinstance(inputs, Tensor | MappedRows | SparseRows) else _as_array(inputs)
    if tuple(rows.shape[1:]) != card.sample_shape:
        needed = f"(n, {', '.join(map(str, card.sample_shape))}), the shape of the training data"
        raise InputError(f"inputs has shape {tuple(rows.shape)}, need {needed}")
    return rows


def row_batches(rows: ModelInputs, size: int, mean: Tensor) -> Iterator[Tensor]:
    """Yield batches of samples on the device of `mean`, the mean of the training samples.

    Raises InputError if a value is NaN or infinite, or if images are in 0..1 but the training images were not.
    """
    # Samples in a file are checked batch by batch, so that only a batch is in memory.
    if not isinstance(rows, MappedRows):
        _check_values(rows, mean)
    for start in range(0, len(rows), size):
        batch = _as_tensor(rows[start : start + size]).to(mean.device)
        if isinstance(rows, MappedRows):
            _check_values(batch, mean)
        yield batch


def _check_values(rows: ModelInputs, mean: Tensor) -> None:
    floating = rows.is_floating_point() if isinstance(rows, Tensor) else rows.dtype.kind == "f"
    if not floating or len(rows) == 0:
        return
    values = _as_tensor(rows.matrix.data if isinstance(rows, SparseRows) else rows)
    if not values.isfinite().all():
        do = "fill in missing values, or omit these samples"
        raise InputError("inputs contains NaN or infinity", need="finite numbers", do=do)
    if values.ndim == 4 and mean.max() > 1 and values.min() >= 0 and 0 < values.max() <= 1:
        what = "the images are scaled to 0..1, but the training images were not"
        raise InputError(f"{what}: scale them like the training images")


def _as_array(inputs: object) -> NDArray[np.generic]:
    """Convert a list, data frame or similar object to an array. Raises InputError if it does not contain numbers."""
    try:
        array: NDArray[np.generic] = np.asarray(inputs)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "buif":
        do = "read files with deeplda.data.read_images, or use deeplda predict"
        raise InputError(f"inputs is a {type(inputs).__name__}", need="an array or tensor of numbers", do=do)
    return array


def _as_tensor(numbers: ModelInputs) -> Tensor:
    """Convert any array to a tensor, even with negative strides, a foreign byte order, no write access or > 64 bits."""
    if isinstance(numbers, Tensor):
        return numbers
    kind = np.float64 if numbers.dtype.itemsize > 8 else numbers.dtype.newbyteorder("=")
    return torch.from_numpy(np.require(numbers, kind, ["C", "W"]))
