"""Read small files and tensors from untrusted folders."""

from __future__ import annotations

import errno
import os
import re
import stat
import tomllib
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from deeplda.errors import InputError, too_long, unreadable
from deeplda.memory import TooLargeError, require_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

T = TypeVar("T")

_LARGEST_TOML = 2**20
# A key such as a.b.c with at least 32 parts. tomllib takes time and memory that grow with the square of their number.
_DOTTED = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){31}""")

# Settings, model cards and logs are small; hundreds of thousands of class names fit. Parsed, they may take a hundred
# times as much memory.
_SMALL = 8 * 2**20


def expanded(path: str | Path) -> Path:
    """Replace a leading ~ with the user's home folder.

    Raises InputError if the user is unknown or the path is too long for the file system.
    """
    try:
        full = Path(path).expanduser()
        full.exists()
    except RuntimeError:
        raise InputError(f"{path} names an unknown user: write the path in full") from None
    except OSError as error:
        raise (too_long(path) if error.errno == errno.ENAMETOOLONG else error) from None
    return full


def is_text(path: str | Path) -> bool:
    """Return whether a path is valid UTF-8, so that it can be stored in a file."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def open_regular(file: Path) -> BufferedReader:
    """Open a regular file to read it.

    Raises OSError if it cannot be read or is anything else, so that a pipe cannot block the reader, and a device cannot
    fill the memory.
    """
    # Without O_NONBLOCK, which Windows lacks, opening a pipe without a writer would block forever.
    stream = os.fdopen(os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb")
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "Not a regular file", str(file))
    return stream


def read_small(file: Path, most: int = _SMALL) -> bytes:
    """Return the contents of a regular file of at most `most` bytes. Raises OSError if it is anything else."""
    with open_regular(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, "File too large", str(file))
        return stream.read(size)


def read_toml(file: Path) -> dict[str, Any]:
    """Parse a TOML file. Raises InputError if it cannot be read."""
    try:
        text = read_small(file, _LARGEST_TOML).decode()
        if _DOTTED.search(text):
            raise ValueError("it has a key of too many parts")
        found = tomllib.loads(text)
        if not _has_64_bit_integers(found):
            raise ValueError("it has an integer of more than 64 bits")
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read as TOML: {error}") from None
    return found


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Read a safetensors file, without allocating more memory than its data takes.

    Raises InputError if it is missing, broken, not a regular file, or larger than the available memory.
    """
    from safetensors.torch import load_file

    return _load(load_file, file)


def read_arrays(file: Path) -> dict[str, NDArray[Any]]:
    """Read a safetensors file as numpy arrays, like `read_tensors`."""
    from safetensors.numpy import load_file

    arrays = _load(load_file, file)
    # Libraries can register more dtypes with NumPy, which safetensors then returns but callers do not expect.
    if strange := [array.dtype for array in arrays.values() if array.dtype.kind not in "biuf"]:
        reason = f"{file} cannot be read (it has numbers of dtype {strange[0]})"
        raise InputError(reason, need="one of NumPy's own dtypes", do="train again")
    return arrays


def _has_64_bit_integers(value: object) -> bool:
    """Return whether all integers fit in 64 bits, as TOML requires; Python reads longer ones but cannot write them."""
    if isinstance(value, dict):
        return all(map(_has_64_bit_integers, value.values()))
    if isinstance(value, list):
        return all(map(_has_64_bit_integers, value))
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def _load(load_file: Callable[[Path], dict[str, T]], file: Path) -> dict[str, T]:
    if not is_text(file):
        raise InputError(f"the path {file} is not valid UTF-8, which safetensors needs: rename the folder")
    try:
        # The library reports a file that may not be read as missing, and panics if it cannot allocate its memory.
        with open_regular(file) as stream:
            require_memory(os.fstat(stream.fileno()).st_size, str(file), copies=1, do="train again")
        return load_file(file)
    except TooLargeError:
        raise
    except OSError as error:
        raise unreadable(file, error, "train again") from None
    # Besides its own errors, safetensors raises others for dtypes that NumPy lacks, and torch if the file disappears.
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = f"{file} cannot be read ({error})"
        raise InputError(reason, need="an intact safetensors file", do="train again") from None
