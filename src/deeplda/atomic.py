"""Writing that a crash cannot leave half done."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from safetensors import SafetensorError

from deeplda.files import as_os_error


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
