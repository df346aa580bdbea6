"""Read small files and tensors from untrusted folders, and write files and folders atomically.

Several processes may write the same file or folder. They take turns, and readers never see a partial one. Taking turns
requires `fcntl`; where it is missing, as on Windows, let only one process write at a time.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from safetensors import SafetensorError

from deeplda.errors import InputError, too_long, unreadable
from deeplda.memory import TooLargeError, require_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

T = TypeVar("T")

# Settings, model cards and logs are small; a million class names fit.
_SMALL = 64 * 2**20
# Time for which a reader keeps retrying while other processes replace a folder.
_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.005
_NO_LOCKS_HERE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


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
        found = tomllib.loads(read_small(file).decode())
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


def read_folder(folder: Path, read: Callable[[], T]) -> T:
    """Return `read()`, and call it again if another process replaced `folder` in the meantime.

    This guarantees that all files opened by `read` belong to the same version of a folder written with `new_folder`.

    Raises the same errors as `read`, and InputError if other processes keep replacing the folder for several seconds.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        before = _version(folder)
        try:
            found = read()
        except InputError:
            # Between two renames there is no folder at all.
            being_replaced = before is None and _lock_file(folder).exists()
            if (_version(folder) == before and not being_replaced) or time.monotonic() > deadline:
                raise
        else:
            if _version(folder) == before:
                return found
            if time.monotonic() > deadline:
                raise InputError(f"{folder} keeps changing while it is read: try again when no process writes to it")
        time.sleep(_PAUSE_SECONDS)


def write_text(file: Path, text: str) -> None:
    """Write a text file in UTF-8, atomically like `write_bytes`."""
    write_bytes(file, text.encode())


def write_bytes(file: Path, content: bytes) -> None:
    """Write a file atomically: under a temporary name, synced, then renamed. Several writers take turns."""
    temporary = file.with_name(f".{file.name}.tmp")
    with _turn(file):
        try:
            with temporary.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    sync(file.parent)


@contextmanager
def new_folder(folder: Path, keep: Path | None = None) -> Iterator[Path]:
    """Yield an empty folder to fill; it replaces `folder` at the end of the block, or is removed after an error.

    Several writers take turns; inside the block, no other process can replace `folder`. To read more than one file from
    it elsewhere, use `read_folder`.

    If `keep` is given, the previous `folder` moves there, and a complete folder exists at one of the two paths at every
    moment. Otherwise, if the process is killed at the wrong instant, both folders remain, complete, under the hidden
    names `.NAME.old` and `.NAME.tmp`.

    Raises OSError if the folder cannot be written; safetensors errors with the same cause are converted.
    """
    if folder.is_symlink():
        # Replace the target of the link, on its own disk, and keep the link.
        folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _turn(folder):
        temporary, old = (folder.with_name(f".{folder.name}.{state}") for state in ("tmp", "old"))
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        try:
            yield temporary
            for file in temporary.iterdir():
                sync(file)
            sync(temporary)
        except BaseException as error:
            shutil.rmtree(temporary, ignore_errors=True)
            if isinstance(error, SafetensorError) and (known := _as_os_error(error)):
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
    """Call fsync on a file or directory; on Windows, which cannot open directories, skip directories."""
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    """Hold the lock for `path` in this block, after waiting for other processes that are writing it.

    The lock is a file next to `path` that is removed at the end. Without `fcntl`, or on a file system without locks,
    nothing is locked.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    lock = _lock_file(path)
    while True:
        stream = lock.open("ab")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                raise
            break
        # The last holder may have removed the file while we waited for it; in that case, lock the new one.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(stream.fileno()), lock.stat()):
                break
        stream.close()
    with stream:
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _lock_file(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def _version(folder: Path) -> tuple[int, ...] | None:
    """Return numbers that change when a folder is replaced, or None if it does not exist."""
    try:
        status = folder.stat()
    except OSError:
        return None
    # The inode alone does not suffice: a later folder may reuse it.
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _has_64_bit_integers(value: object) -> bool:
    """Return whether all integers fit in 64 bits, as TOML requires; Python reads longer ones but cannot write them."""
    if isinstance(value, dict):
        return all(map(_has_64_bit_integers, value.values()))
    if isinstance(value, list):
        return all(map(_has_64_bit_integers, value))
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def _load(load_file: Callable[[Path], dict[str, T]], file: Path) -> dict[str, T]:
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


def _as_os_error(error: SafetensorError) -> OSError | None:
    """Convert a failed write, which safetensors reports only as text, to an OSError; return None for other failures."""
    found = re.search(r"os error (\d+)", str(error))
    return OSError(int(found[1]), os.strerror(int(found[1]))) if found else None
