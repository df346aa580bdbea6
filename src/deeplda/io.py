"""Read small files and tensors from untrusted folders, and write files and folders atomically."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from safetensors import SafetensorError

from deeplda.errors import InputError, got, too_long

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


# Settings, cards and logs are small; a million class names fit.
_MOST = 64 * 2**20

T = TypeVar("T")


def expanded(path: str | Path) -> Path:
    """The path with ~ as the folder of its user. Raises InputError for an unknown user, and where it is too long."""
    try:
        whole = Path(path).expanduser()
        whole.exists()
    except RuntimeError:
        raise InputError(got(f"{path} is of an unknown user", need="a path", do="write it whole")) from None
    except OSError as error:
        raise (too_long(path) if error.errno == errno.ENAMETOOLONG else error) from None
    return whole


def read_small(file: Path, most: int = _MOST) -> bytes:
    """A file that is read whole: a regular one of at most `most` bytes.

    Raises OSError for others, so that a pipe cannot make us wait, nor a device or a huge file fill the memory.
    """
    # Without O_NONBLOCK, which Windows lacks, to open a pipe that nobody writes to would never return.
    with os.fdopen(os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(file))
        if status.st_size > most:
            raise OSError(errno.EFBIG, "File too large", str(file))
        return stream.read(status.st_size)


def read_toml(file: Path) -> dict[str, Any]:
    """A TOML file as a mapping. Raises InputError where it cannot be read."""
    try:
        found = tomllib.loads(read_small(file).decode())
        if not _has_usual_integers(found):
            raise ValueError("it has an integer of more than 64 bits")
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read as TOML: {error}") from None
    return found


def _has_usual_integers(value: object) -> bool:
    """As TOML wants them; Python reads longer ones, and then cannot write them."""
    if isinstance(value, dict):
        return all(map(_has_usual_integers, value.values()))
    if isinstance(value, list):
        return all(map(_has_usual_integers, value))
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def read_tensors(file: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; no memory is taken but for what it holds.

    Raises InputError where it is missing or broken.
    """
    from safetensors.torch import load_file

    return _load(load_file, file)


def read_arrays(file: Path) -> dict[str, NDArray[Any]]:
    """As `read_tensors`, arrays of numpy."""
    from safetensors.numpy import load_file

    arrays = _load(load_file, file)
    # Where a library has taught numpy other kinds, they are read, and would be a surprise to whoever gets them.
    if strange := [array.dtype for array in arrays.values() if array.dtype.kind not in "biuf"]:
        raise InputError(
            got(f"{file} cannot be read (it has numbers of kind {strange[0]})", need="a usual kind", do="train again")
        )
    return arrays


def _load(load_file: Callable[[Path], dict[str, T]], file: Path) -> dict[str, T]:
    try:
        if file.exists() and not file.is_file():
            raise OSError(errno.EINVAL, "Not a regular file")
        return load_file(file)
    # Beside its own errors, safetensors' Python side fails on kinds of numbers that numpy does not have.
    except (OSError, SafetensorError, AttributeError, TypeError, ValueError, KeyError, MemoryError) as error:
        raise InputError(
            got(f"{file} cannot be read ({error})", need="a whole safetensors file, as written", do="train again")
        ) from None


def as_os_error(error: SafetensorError) -> OSError | None:
    """What the system said when safetensors could not write; None where that is not what it reports."""
    found = re.search(r"os error (\d+)", str(error))
    return OSError(int(found[1]), os.strerror(int(found[1]))) if found else None


def write_text(file: Path, text: str) -> None:
    """Write a file whole or not at all."""
    write_bytes(file, text.encode())


def write_bytes(file: Path, content: bytes) -> None:
    """Write a file whole or not at all: to a temporary name, synced, then renamed. Several writers take turns."""
    temporary = file.with_name(f".{file.name}.tmp")
    with _held(temporary) as stream:
        try:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
            temporary.replace(file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    sync(file.parent)


@contextmanager
def _held(path: Path) -> Iterator[BinaryIO]:
    """An empty file at `path`, locked: others who want it wait, and make another if this one has moved meanwhile."""
    # Not on Windows, where models can be read all the same.
    import fcntl

    while True:
        stream = path.open("ab")
        fcntl.flock(stream, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                break
        stream.close()
    with stream:
        stream.truncate(0)
        yield stream


@contextmanager
def new_folder(folder: Path, keep: Path | None = None) -> Iterator[Path]:
    """An empty folder to fill, which takes the place of `folder` when the block ends well and vanishes when not.

    With `keep`, what stood at `folder` moves there, and at every moment a whole folder stands at one of the two.
    Without it there is an instant at which a kill leaves both whole under hidden names, `.NAME.old` and `.NAME.tmp`.
    Raises OSError where the disk cannot take it, safetensors' own words for that included.
    """
    if folder.is_symlink():
        # What it points to is replaced, on its own disk, and the link stays.
        folder = folder.resolve()
    temporary, old = (folder.with_name(f".{folder.name}.{state}") for state in ("tmp", "old"))
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in temporary.iterdir():
            sync(file)
        sync(temporary)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, SafetensorError) and (known := as_os_error(error)):
            raise known from None
        raise
    shutil.rmtree(old, ignore_errors=True)
    if keep is not None and folder.exists():
        if keep.exists():
            keep.rename(old)
        folder.rename(keep)
    elif folder.exists():
        folder.rename(old)
    temporary.rename(folder)
    sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def sync(path: Path) -> None:
    """Have the disk hold what was written to a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
