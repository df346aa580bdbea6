"""Data from the user's own code: a function without arguments, named as "module.path:name"."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from deeplda.data.dataset import Data, Part, Source
from deeplda.data.mapped_rows import MappedRows
from deeplda.data.npz import source_of_arrays
from deeplda.data.sparse_rows import SparseRows
from deeplda.errors import InputError
from deeplda.memory import require_memory
from deeplda.user_code import find_callable, importable_here, own_code, short_name

_NEED = "a function without arguments that returns deeplda.data.Data or a map-style torch.utils.data.Dataset"


def read_own(name: str) -> Source:
    """Call "module.path:name" and return its samples; missing or empty validation and test sets are split off later.

    A data set, whose samples are pairs of an input and a label, is read into memory. Its attribute `classes`, if there
    is one, has the names of its classes.

    Importing runs the module's code, so pass only a name that the user wrote, never one from an untrusted file.

    Raises InputError if there is no such function, if it fails, or if it returns anything else.
    """
    function = find_callable(name, "data", _NEED)
    try:
        inspect.signature(function).bind()
    except TypeError:
        raise InputError(f"data {name!r} takes {inspect.signature(function)}, need {_NEED}") from None
    except ValueError:  # some callables written in C have no signature
        pass
    with importable_here():
        with own_code("data", name):
            found: Any = function()
        if isinstance(found, Data):
            return _checked(name, found)
        if isinstance(found, tuple) or not (hasattr(found, "__getitem__") and hasattr(found, "__len__")):
            types = f" of ({', '.join(type(part).__name__ for part in found[:4])})" if isinstance(found, tuple) else ""
            raise InputError(f"data {name!r} returned an object of type {type(found).__name__}{types}, need {_NEED}")
        return _stacked(name, found)


def _checked(name: str, data: Data) -> Source:
    """Return data as a source, after checking that its parts have the form that training relies on."""
    class_names = _class_names(name, data.class_names)
    _require_arrays(name, data)
    for kind in ("train", "val", "test"):
        part: Part = getattr(data, kind)
        inputs, labels = part.inputs, part.labels
        form = (str(inputs.dtype), inputs.ndim)
        if form not in (("uint8", 4), ("float32", 2)) or inputs.shape[1:] != data.sample_shape:
            what = f"data {name!r} has {kind}.inputs of dtype {inputs.dtype} and shape {inputs.shape}"
            raise InputError(f"{what}, need uint8 (N, C, H, W) or float32 (N, features), the same shape in all parts")
        if inputs.ndim == 4 and inputs.shape[3] in (1, 3) and inputs.shape[1] not in (1, 3):
            what = f"data {name!r} has {kind}.inputs of shape {inputs.shape}, which looks like N x H x W x C"
            raise InputError(what, need="N x C x H x W", do="transpose them with inputs.transpose(0, 3, 1, 2)")
        if not isinstance(inputs, MappedRows) and inputs.dtype == np.float32 and not np.isfinite(inputs).all():
            raise InputError(f"data {name!r} has values in {kind}.inputs that are not finite, need finite numbers")
        if labels.dtype != np.int64 or labels.shape != (len(inputs),):
            what = f"data {name!r} has {kind}.labels of dtype {labels.dtype} and shape {labels.shape}"
            raise InputError(f"{what}, need int64 ({len(inputs)},)")
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(class_names):
            what = f"data {name!r} has {kind}.labels from {labels.min()} to {labels.max()}"
            raise InputError(f"{what}, need indices of the {len(class_names)} class_names")
    return Source(
        short_name(name),
        data.train,
        class_names,
        val=data.val if len(data.val) else None,
        test=data.test if len(data.test) else None,
        left_out=data.left_out,
        notes=data.notes,
        table=data.table,
    )


def _class_names(name: str, found: Any) -> tuple[str, ...]:
    """Return the class names of the user's data as a tuple of strings, whatever sequence they come in."""
    if isinstance(found, str) or not isinstance(found, Iterable):
        what = f"data {name!r} has class_names of type {type(found).__name__}"
        raise InputError(what, need="a tuple of names", do='for example, ("cat", "dog")')
    names = tuple(map(str, found))
    if twice := [word for word, count in Counter(names).items() if count > 1]:
        what = f"data {name!r} has {twice[0]!r} in class_names more than once"
        raise InputError(what, need="a different name for each class", do="rename or merge the classes")
    return names


def _require_arrays(name: str, data: Data) -> None:
    """Raise InputError if a part of the user's data is missing or is not made of arrays."""
    for kind in ("train", "val", "test"):
        if not isinstance(part := getattr(data, kind), Part):
            do = "to have a set split off the training set, pass an empty one, Part(inputs[:0], labels[:0])"
            raise InputError(f"data {name!r} has {kind} of type {type(part).__name__}", need="deeplda.data.Part", do=do)
        for field in ("inputs", "labels"):
            found = getattr(part, field)
            if not isinstance(found, np.ndarray | MappedRows | SparseRows):
                what = f"data {name!r} has {kind}.{field} of type {type(found).__name__}"
                raise InputError(what, need="a NumPy array", do=f"pass np.asarray({field})")


def _stacked(name: str, samples: Any) -> Source:
    """Return a map-style data set as a source of one part."""
    with own_code("data", name):
        size = len(samples)
    if not size:
        raise InputError(f"data {name!r} returned a data set without samples, need at least two classes")
    inputs: list[np.ndarray[Any, Any]] = []
    labels: list[object] = []
    for place in range(size):
        with own_code("data", name):
            sample = samples[place]
        if not isinstance(sample, tuple | list) or len(sample) != 2:
            raise InputError(f"sample {place} of data {name!r} is a {type(sample).__name__}, need (input, label)")
        # The mode of a Pillow image is a string; a tensor has a method of that name.
        if isinstance(mode := getattr(sample[0], "mode", None), str) and mode not in ("L", "RGB"):
            what = f"sample {place} of data {name!r} is a Pillow image of mode {mode}"
            raise InputError(what, need="L or RGB", do='return image.convert("RGB")')
        with own_code("data", name):
            inputs.append(np.asarray(sample[0]))
        if inputs[-1].ndim > 1 and inputs[-1].dtype != np.uint8:
            what = f"sample {place} of data {name!r} is an image of dtype {inputs[-1].dtype}"
            do = "return the pixels without conversion to float and without normalisation"
            raise InputError(what, need="uint8, in the range 0..255", do=do)
        labels.append(sample[1].item() if hasattr(sample[1], "item") else sample[1])
        if inputs[-1].shape != inputs[0].shape:
            what = f"sample {place} of data {name!r} has shape {inputs[-1].shape}, and sample 0 has {inputs[0].shape}"
            raise InputError(f"{what}, need the same shape for all: resize them in your code")
        if place == 0:
            require_memory(size * inputs[0].nbytes, f"data {name!r}")
    arrays = {"x_train": np.stack(inputs), "y_train": np.asarray(labels)}
    if (classes := getattr(samples, "classes", None)) is not None:
        arrays["class_names"] = np.asarray(list(map(str, classes)))
    return source_of_arrays(f"data {name!r}", short_name(name), arrays, do="change what your code returns")
