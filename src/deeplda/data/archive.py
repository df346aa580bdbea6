"""Unpack a downloaded tar archive without trusting it."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from deeplda.errors import InputError, got

# The sets have less than ten files. Each header stays in memory, and a packed archive can hold millions of them.
_MOST_MEMBERS = 1_000
# Pieces of content and headers are far smaller; a header that declares more would be read whole.
_LARGEST_PIECE = 2**20


def unpack(archive: Path, folder: Path, wanted: frozenset[str], largest: int) -> None:
    """Put the `wanted` files of a tar archive into `folder`, whatever folder of the archive they are in.

    All is unpacked beside `folder` first and moved there when the whole archive has been read, so a file in `folder`
    is always whole. Raises InputError, and leaves `folder` as it was, for an archive that is broken, has absolute
    paths, `..`, links or devices, or holds more than `largest` bytes; OSError where the disk cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as name:
        staged = Path(name)
        try:
            with gzip.open(archive) as packed, tarfile.open(fileobj=_in_pieces(packed), mode="r:") as tar:
                _unpack_to(tar, archive, staged, wanted, largest)
        except InputError:
            raise
        except Exception as error:  # gzip and tarfile raise many kinds for a broken file
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise InputError(_refused(archive, f"cannot be unpacked ({error})", "a whole tar.gz archive")) from None
        folder.mkdir(exist_ok=True)
        for path in staged.iterdir():
            path.replace(folder / path.name)


def _unpack_to(tar: tarfile.TarFile, archive: Path, staged: Path, wanted: frozenset[str], largest: int) -> None:
    total = 0
    for place, member in enumerate(tar):
        if place >= _MOST_MEMBERS:
            raise InputError(_refused(archive, "holds too many files", f"at most {_MOST_MEMBERS:,}"))
        path = PurePosixPath(member.name.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or ":" in member.name:
            raise InputError(_refused(archive, f"holds the path {member.name}", "paths inside the archive's folder"))
        if not (member.isdir() or member.isreg()) or member.issparse():
            raise InputError(_refused(archive, f"holds {member.name}, a link or device", "plain files and folders"))
        total += member.size
        if total > largest or member.size < 0:
            raise InputError(_refused(archive, "unpacks to more than expected", f"at most {largest:,} bytes"))
        if member.isreg() and path.name in wanted and (content := tar.extractfile(member)) is not None:
            with content, (staged / path.name).open("wb") as file:
                shutil.copyfileobj(content, file)
    if missing := sorted(name for name in wanted if not (staged / name).is_file()):
        raise InputError(_refused(archive, f"does not hold {missing[0]}", "all files of the set"))


class _Pieces:
    """A file of which no large piece is read at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _LARGEST_PIECE:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._file.read(size)


def _in_pieces(file: Any) -> IO[bytes]:
    return cast(IO[bytes], _Pieces(file))


def _refused(archive: Path, found: str, need: str) -> str:
    return got(f"{archive} {found}", need=need, do="delete it and fetch it again")
