"""Read the pickles of CIFAR-10's Python layout without running anything they name.

A pickle calls functions by name. Here every name becomes a `_Call`, which notes what it was called with and does
nothing; afterwards the notes that describe a numpy array are read as one. Names that arrays do not need are refused.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deeplda.errors import InputError, got

_LARGEST = 256 * 2**20  # a batch has 31 MB
_MOST_AXES = 32  # of numpy 1; numpy 2 takes more
_RECONSTRUCT = {("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")}
_ENCODE = ("_codecs", "encode")
_ALLOWED = {*_RECONSTRUCT, ("numpy", "ndarray"), ("numpy", "dtype"), _ENCODE}


@dataclass(frozen=True)
class PickledArray:
    """An array as a pickle describes it."""

    shape: tuple[int, ...]
    dtype: str
    fortran: bool
    content: bytes

    def as_uint8(self) -> NDArray[np.uint8] | None:
        """The array, copied, if it is one of bytes and its content has the size its shape says; else None."""
        if self.dtype not in ("u1", "|u1") or min(self.shape, default=0) < 0 or len(self.shape) > _MOST_AXES:
            return None
        if len(self.content) != math.prod(self.shape):
            return None
        flat = np.frombuffer(self.content, dtype=np.uint8)
        return flat.reshape(self.shape, order="F" if self.fortran else "C").copy()


def load_inert(path: Path) -> object:
    """The content of a pickle: dicts with text keys, lists, text, numbers and `PickledArray`.

    Raises InputError where it is too large, broken, or names anything but what numpy arrays need.
    """
    if (size := path.stat().st_size) > _LARGEST:
        raise InputError(got(f"{path} has {size:,} bytes", need=f"at most {_LARGEST:,}", do="fetch it again"))
    content = path.read_bytes()
    try:
        _check_memo(content)
        return _plain(_InertUnpickler(io.BytesIO(content), encoding="bytes").load(), {})
    except InputError as error:
        raise InputError(f"{path} {error}") from None
    except Exception as error:  # a broken pickle can raise nearly anything
        raise InputError(
            got(f"{path} cannot be read ({type(error).__name__})", need="a batch of CIFAR-10", do="fetch it again")
        ) from None


class _Call:
    """Stands for an object the pickle names or makes: it keeps the arguments and runs nothing."""

    __slots__ = ("args", "name", "state")

    def __init__(self, name: tuple[str, str], args: tuple[Any, ...] = ()) -> None:
        self.name, self.args = name, args
        self.state: Any = None

    def __call__(self, *args: Any) -> _Call:
        return _Call(self.name, args)

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _NamedItems(dict[Any, Any]):
    """A dict whose keys are text. To hash a tuple of tuples, each held twice, would never end."""

    def __setitem__(self, key: object, value: object) -> None:
        super().__setitem__(_text(key), value)


class _InertUnpickler(pickle._Unpickler):
    """Python's own unpickler in Python, as the one in C cannot be told what dicts to make."""

    stack: list[Any]
    pop_mark: Callable[[], list[Any]]
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        code: load
        for code, load in pickle._Unpickler.dispatch.items()
        if bytes([code]) not in (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET)
    }

    def find_class(self, module: str, name: str, /) -> _Call:
        if (module, name) not in _ALLOWED:
            raise InputError(
                got(f"names {module}.{name}, which could run code", need="plain arrays", do="do not trust this file")
            )
        return _Call((module, name))

    def _load_empty_dict(self) -> None:
        self.stack.append(_NamedItems())

    def _load_dict(self) -> None:
        items, found = self.pop_mark(), _NamedItems()
        for key, value in zip(items[::2], items[1::2], strict=True):
            found[key] = value
        self.stack.append(found)

    dispatch |= {pickle.EMPTY_DICT[0]: _load_empty_dict, pickle.DICT[0]: _load_dict}


def _check_memo(content: bytes) -> None:
    # The unpickler allocates its memo up to the largest index named, which a few bytes can make enormous.
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(str(argument)) > len(content):
            raise ValueError("memo index larger than the file")


def _plain(value: object, done: dict[int, object]) -> object:
    """The value with the notes turned into arrays and bytes, and short bytes into text.

    `done` has what was made of each list and dict, by its id: a pickle may name one object again and again, and a few
    bytes would become gigabytes.
    """
    if id(value) in done:
        return done[id(value)]
    if isinstance(value, dict):
        done[id(value)] = {key: _plain(item, done) for key, item in value.items()}
        return done[id(value)]
    if isinstance(value, list):
        done[id(value)] = [_plain(item, done) for item in value]
        return done[id(value)]
    if isinstance(value, bytes) or (isinstance(value, _Call) and value.name == _ENCODE):
        return _text(value)
    if isinstance(value, _Call) and value.name in _RECONSTRUCT:
        _, shape, dtype, fortran, content = value.state
        return PickledArray(tuple(map(int, shape)), _text(dtype.args[0]), bool(fortran), _content(content))
    return value


def _text(value: object) -> str:
    if isinstance(value, _Call) and value.name == _ENCODE:
        value = value.args[0]
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if not isinstance(value, str):
        raise ValueError("a name is not text")
    return value


def _content(value: object) -> bytes:
    if isinstance(value, _Call) and value.name == _ENCODE:
        return _text(value).encode("latin-1")
    if not isinstance(value, bytes):
        raise ValueError("array content is not bytes")
    return value
