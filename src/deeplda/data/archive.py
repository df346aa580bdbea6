"""Unpack a downloaded tar archive without trusting it."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath

from deeplda.errors import InputError, got


def unpack(archive: Path, folder: Path, wanted: frozenset[str], largest: int) -> None:
    """Put the `wanted` files of a tar archive into `folder`, whatever folder of the archive they are in.

    All is unpacked beside `folder` first and moved there when the whole archive has been read, so a file in `folder`
    is always whole. Raises InputError, and leaves `folder` as it was, for an archive that is broken, has absolute
    paths, `..`, links or devices, or holds more than `largest` bytes.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as name:
        staged = Path(name)
        try:
            with tarfile.open(archive) as tar:
                _unpack_to(tar, archive, staged, wanted, largest)
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise InputError(_refused(archive, f"cannot be unpacked ({error})", "a whole tar archive")) from None
        folder.mkdir(exist_ok=True)
        for path in staged.iterdir():
            path.replace(folder / path.name)


def _unpack_to(tar: tarfile.TarFile, archive: Path, staged: Path, wanted: frozenset[str], largest: int) -> None:
    total = 0
    for member in tar:
        path = PurePosixPath(member.name.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or ":" in member.name:
            raise InputError(_refused(archive, f"holds the path {member.name}", "paths inside the archive's folder"))
        if not (member.isdir() or member.isreg()) or member.issparse():
            raise InputError(_refused(archive, f"holds {member.name}, a link or device", "plain files and folders"))
        total += member.size
        if total > largest:
            raise InputError(_refused(archive, "unpacks to more than expected", f"at most {largest:,} bytes"))
        if member.isreg() and path.name in wanted and (content := tar.extractfile(member)) is not None:
            with content, (staged / path.name).open("wb") as file:
                shutil.copyfileobj(content, file)
    if missing := sorted(name for name in wanted if not (staged / name).is_file()):
        raise InputError(_refused(archive, f"does not hold {missing[0]}", "all files of the set"))


def _refused(archive: Path, found: str, need: str) -> str:
    return got(f"{archive} {found}", need=need, do="delete it and fetch it again")
