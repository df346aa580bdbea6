"""Arrays in an .npz file: x_train, y_train and, optionally, x_val, y_val, x_test, y_test and class_names.

The names `features` and `labels` are read as x_train and y_train.

Feature vectors that take much memory are not read at once: an array that the file stores uncompressed is mapped into
memory, and any other is converted block by block into a temporary file.

The files are untrusted: declared sizes are checked before anything is allocated, and pickled objects are rejected.
"""

from __future__ import annotations

import io
import math
import os
import struct
import zipfile
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from deeplda.data.dataset import Inputs, Labels, Part, Source
from deeplda.data.mapped_rows import MappedRows, mapped_array
from deeplda.errors import InputError
from deeplda.io import open_regular
from deeplda.memory import require_memory

# By their names; only the samples can be `MappedRows`.
Arrays = dict[str, Any]

_LONGEST_HEADER = 2**16
# Memory for numbering one label, whatever its stored dtype.
_LABEL_BYTES = 32
_PARTS = ("train", "val", "test")
_MEMBERS = (*(f"{kind}_{part}" for part in _PARTS for kind in "xy"), "class_names")
# Other names of arrays, as files of embeddings have them.
_ALIASES = {"features": "x_train", "labels": "y_train"}
_SAMPLES = (*(f"x_{part}" for part in _PARTS), "features")
# A longer string is not the name of a class. NumPy pads all strings in an array to the longest.
_LONGEST_LABEL = 1_000
# Sorting the labels takes two more copies of them.
_TEXT_COPIES = 2
_BLOCK = 2**20
# If the feature vectors of a file take more bytes than this, they stay in a file.
_MOST_IN_MEMORY = 2**28
# The signature of a member of a ZIP file, and the lengths of its name and of the extra field before its content.
_LOCAL_HEADER = struct.Struct("<4s22xHH")


def read_npz(path: Path, *, test_alone: bool = False) -> Source:
    """Read the train, val and test splits from an .npz file.

    Two-dimensional inputs of any numeric dtype are feature vectors; they are converted to float32 and must be finite.
    If they take more than 256 MiB, they are `MappedRows`, which check that when they are read.
    Inputs with three or four dimensions are images and must be uint8. N x H x W arrays are greyscale. In an
    N x a x b x c array, the last axis holds the channels if c is 1 or 3 and a is not; otherwise the second axis does.

    Labels are non-negative integers or strings. Integers are indices into `class_names` if it is present; otherwise,
    classes are numbered in ascending order of their labels. Strings are numbered in the order of `class_names`, or in
    sorted order if it is absent.

    With `test_alone`, a file with x_test and y_test but no training set is accepted, and its test set becomes the
    training set of the source.

    Raises InputError if the contents have any other form, if the declared size of an array does not match the file, or
    if the arrays do not fit in memory.
    """
    arrays = _load(path, (*_MEMBERS, *_ALIASES))
    for alias, name in _ALIASES.items():
        if alias in arrays:
            arrays.setdefault(name, arrays.pop(alias))
    if test_alone and not {"x_train", "y_train"} & set(arrays):
        arrays |= {f"{kind}_train": arrays.pop(f"{kind}_test") for kind in "xy" if f"{kind}_test" in arrays}
    for name in ("x_train", "y_train"):
        if name not in arrays:
            do = "write the file with np.savez(path, features=..., labels=...)"
            raise InputError(f"{path} has no {name}", need="x_train and y_train, or features and labels", do=do)
    return source_of_arrays(str(path), path.stem, arrays)


def source_of_arrays(origin: str, name: str, arrays: Arrays, do: str = "write the file again") -> Source:
    """Return arrays with the names and contents that `read_npz` describes as a source.

    Args:
        origin: where they come from, for messages.
        name: the name of the source.
        do: the advice in messages.

    Raises InputError if their contents have any other form.
    """
    try:
        names, labels = _read_labels(arrays)
        present = [part for part in _PARTS if f"x_{part}" in arrays or part in labels]
        parts = {part: _part(part, arrays, labels) for part in present}
        shapes = {part: samples.inputs.shape[1:] for part, samples in parts.items()}
        for part, shape in shapes.items():
            if shape != shapes["train"]:
                raise _WrongArrayError(f"x_{part} has samples of shape {shape}", f"{shapes['train']}, as in x_train")
    except _WrongArrayError as error:
        found, need = error.args
        raise InputError(f"{origin}: {found}", need=need, do=do) from None
    return Source(name, parts["train"], names, val=parts.get("val"), test=parts.get("test"))


class _WrongArrayError(Exception):
    """An array cannot be used; the arguments are what was found and what is needed."""


def read_npz_samples(path: Path) -> dict[str, Inputs]:
    """Return all samples in an .npz file, by the names of their arrays; labels are ignored.

    Raises InputError as `read_npz` does, or if the file has none of the arrays x_train, x_val, x_test and features.
    """
    arrays = _load(path, _SAMPLES)
    if not arrays:
        do = "write the file with np.savez(path, features=...)"
        raise InputError(f"{path} has no samples", need="x_train, x_val, x_test or features", do=do)
    try:
        found = {name: _inputs(name, array) for name, array in arrays.items()}
    except _WrongArrayError as error:
        what, need = error.args
        raise InputError(f"{path}: {what}", need=need, do="write the file again") from None
    if not any(map(len, found.values())):
        raise InputError(f"{path} has no samples", need="at least one", do="write the file again")
    return found


def _load(path: Path, names: tuple[str, ...]) -> Arrays:
    """Return the arrays with these names, as far as the file has them."""
    try:
        with open_regular(path) as stream:
            with zipfile.ZipFile(stream) as archive:
                present = archive.namelist()
                members = {name: _member(path, archive, name) for name in names if f"{name}.npy" in present}
                rows = {name: member for name, member in members.items() if member.rows and member.size}
                if sum(member.size for member in rows.values()) <= _MOST_IN_MEMORY:
                    rows = {}
                whole = members.keys() - rows.keys()
                require_memory(sum(members[name].size for name in whole), str(path))
                in_file = {name: _rows_in_file(path, stream, archive, name, member) for name, member in rows.items()}
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as loaded:
                # Use the full name, which was checked: the archive may also have a member without the suffix.
                arrays = {name: loaded[f"{name}.npy"] for name in members if name in whole}
    except InputError:
        raise
    except MemoryError:
        raise _wrong(path, "the arrays do not fit in memory", "a smaller file") from None
    except Exception as error:  # zipfile, zlib and numpy raise many types of error for a broken file
        raise _wrong(path, f"the file cannot be read ({error})", "an intact .npz file written by np.savez") from None
    for name, array in arrays.items():
        if array.dtype.kind == "U" and not _is_text(array):
            raise _wrong(path, f"{name} contains code points that are not characters", "valid strings")
    return arrays | in_file


def _rows_in_file(
    path: Path, stream: BufferedReader, archive: zipfile.ZipFile, name: str, member: _Member
) -> MappedRows:
    """Return the feature vectors of a member, which stay in the file or, if that is compressed, in a temporary one."""
    info = archive.getinfo(f"{name}.npy")
    convert = partial(_checked_rows, path, name)
    if info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1:
        stream.seek(info.header_offset)
        signature, *lengths = _LOCAL_HEADER.unpack(stream.read(_LOCAL_HEADER.size))
        start = info.header_offset + _LOCAL_HEADER.size + sum(lengths) + member.start
        end = start + math.prod(member.shape) * member.dtype.itemsize
        if signature != b"PK\x03\x04" or end > os.fstat(stream.fileno()).st_size:
            raise ValueError(f"{name} is not where the file says")
        return MappedRows(np.memmap(stream, member.dtype, "r", start, member.shape), convert=convert)
    rows = mapped_array(member.shape, np.float32, f"{name} of {path}, which is compressed,")
    width = member.shape[1] * member.dtype.itemsize
    step = max(1, _BLOCK // width)
    with archive.open(info) as packed:
        packed.read(member.start)
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            some[:] = convert(np.frombuffer(packed.read(len(some) * width), member.dtype).reshape(some.shape))
    return MappedRows(rows)


def _checked_rows(path: Path, name: str, stored: NDArray[Any]) -> NDArray[np.float32]:
    try:
        return _as_rows(name, stored)
    except _WrongArrayError as error:
        raise _wrong(path, *error.args) from None


def _is_text(array: NDArray[np.str_]) -> bool:
    """Return whether every code point is a character; for others, Python would raise errors of its own."""
    codes = array.ravel("K").view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
    blocks = (codes[start : start + _BLOCK] for start in range(0, len(codes), _BLOCK))
    return not any(((block > 0x10FFFF) | ((block >= 0xD800) & (block < 0xE000))).any() for block in blocks)


class _Member(NamedTuple):
    """What the header of an array says.

    Attributes:
        shape, dtype: those of the array.
        start: the length of the header.
        size: the size of the array in memory, in bytes.
        rows: whether these are feature vectors that can be read block by block.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int
    size: int
    rows: bool


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> _Member:
    """Return what the header of an array says. Raises InputError if it contradicts the size of the member."""
    member = archive.getinfo(f"{name}.npy")
    with archive.open(member) as packed:
        # A header can declare any length, and a small file can unpack to it.
        file = io.BytesIO(packed.read(_LONGEST_HEADER))
    version = npy.read_magic(file)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, by_columns, dtype = read_header(file)
    start = file.tell()
    if dtype.hasobject:
        what = f"{path}: {name} contains Python objects, like most string columns of a data frame"
        do = f"write the file again with {name}=np.asarray(...).astype(str)"
        raise InputError(what, need="numbers or strings", do=do)
    if dtype.itemsize == 0:  # a header could declare any number of such items
        raise _wrong(path, f"{name} contains items of size zero ({dtype} {shape})", "numbers or strings")
    if dtype.kind == "U" and dtype.itemsize > _LONGEST_LABEL * 4:
        raise _wrong(path, f"{name} has strings of {dtype.itemsize // 4:,} characters", f"at most {_LONGEST_LABEL:,}")
    size = math.prod(shape) * dtype.itemsize
    if start + size != member.file_size:
        found = f"{name} is declared as {dtype} {shape} but has {member.file_size - start:,} bytes"
        raise _wrong(path, found, f"{size:,}")
    in_memory, is_rows = size, False
    if dtype.kind == "U":
        in_memory = _TEXT_COPIES * size
    elif name.startswith("y_") or name == "labels":
        in_memory = _LABEL_BYTES * math.prod(shape)
    elif len(shape) == 2:
        # Feature vectors become float32, which may be larger than the stored dtype.
        in_memory = max(size, 4 * math.prod(shape))
        is_rows = name in _SAMPLES and dtype.kind in "biuf" and not by_columns
    return _Member(shape, dtype, start, in_memory, is_rows)


def _part(part: str, arrays: Arrays, labels: dict[str, Labels]) -> Part:
    if f"x_{part}" not in arrays or part not in labels:
        raise _WrongArrayError(f"the file has only one of x_{part} and y_{part}", "both")
    inputs = _inputs(f"x_{part}", arrays[f"x_{part}"])
    if len(inputs) != len(labels[part]) or not len(inputs):
        found = f"x_{part} has {len(inputs):,} samples and y_{part} has {len(labels[part]):,} labels"
        raise _WrongArrayError(found, "as many labels as samples, and at least one of each")
    return Part(inputs, labels[part])


def _inputs(name: str, array: NDArray[Any] | MappedRows) -> Inputs:
    if isinstance(array, MappedRows):
        return array
    if array.ndim == 2 and array.shape[1]:
        if array.dtype.kind not in "biuf":
            raise _WrongArrayError(f"{name} has dtype {array.dtype}", "numbers")
        return _as_rows(name, array)
    if array.ndim not in (3, 4) or 0 in array.shape[1:]:
        raise _WrongArrayError(f"{name} has shape {array.shape}", "N x features, N x H x W or N x C x H x W")
    if array.dtype != np.uint8:
        raise _WrongArrayError(f"{name} has dtype {array.dtype}", "uint8 for images, in the range 0..255")
    if array.ndim == 3:
        array = array[:, None]
    elif array.shape[3] in (1, 3) and array.shape[1] not in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(array)


def _as_rows(name: str, array: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # overflow produces infinity, which is rejected below
        rows: NDArray[np.float32] = np.ascontiguousarray(array, dtype=np.float32)
    if not np.isfinite(rows).all():
        raise _WrongArrayError(f"{name} has values that are not finite in float32", "finite numbers")
    return rows


def _read_labels(arrays: Arrays) -> tuple[tuple[str, ...], dict[str, Labels]]:
    """Return the class names, and the labels of each split as indices into them."""
    given = {part: arrays[f"y_{part}"] for part in _PARTS if f"y_{part}" in arrays}
    for part, labels in given.items():
        kind = "strings" if labels.dtype.kind == "U" else "integers"
        if labels.ndim != 1 or labels.dtype.kind not in "iuU":
            found = f"y_{part} has dtype {labels.dtype} and shape {labels.shape}"
            raise _WrongArrayError(found, "integers or strings of shape (N,)")
        if (given["train"].dtype.kind == "U") != (kind == "strings"):
            raise _WrongArrayError(f"y_{part} contains {kind}, unlike y_train", "the same kind of labels in all splits")
        if kind == "integers" and len(labels) and labels.min() < 0:
            raise _WrongArrayError(f"y_{part} has the label {labels.min()}", "non-negative labels")
    values: list[Any] = np.unique(given["train"]).tolist()
    names = tuple(map(str, values))
    if "class_names" in arrays:
        names = _class_names(arrays["class_names"])
        values = list(names) if given["train"].dtype.kind == "U" else list(range(len(names)))
    number = {value: index for index, value in enumerate(values)}
    for part, labels in given.items():
        if unknown := [value for value in np.unique(labels).tolist() if value not in number]:
            need = "labels covered by class_names" if "class_names" in arrays else "labels that occur in y_train"
            raise _WrongArrayError(f"y_{part} has the label {unknown[0]}", need)
    return names, {part: _numbered(labels, number) for part, labels in given.items()}


def _numbered(labels: NDArray[Any], number: dict[Any, int]) -> Labels:
    values, indices = np.unique(labels, return_inverse=True)
    return np.array([number[value] for value in values.tolist()], dtype=np.int64)[indices]


def _class_names(array: NDArray[Any]) -> tuple[str, ...]:
    if array.dtype.kind != "U" or array.ndim != 1 or len(set(array.tolist())) != len(array):
        found = f"class_names has dtype {array.dtype} and shape {array.shape}"
        raise _WrongArrayError(found, "distinct names, as strings of shape (C,)")
    return tuple(array.tolist())


def _wrong(path: Path, found: str, need: str) -> InputError:
    return InputError(f"{path}: {found}", need=need, do="write the file again")
