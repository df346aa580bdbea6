"""Download known data sets: resume interrupted downloads, verify checksums, and unpack untrusted archives safely."""

from __future__ import annotations

import gzip
import logging
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, cast

import pooch
import requests
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from deeplda.data.known_sets import KNOWN_SETS
from deeplda.data.sources import KNOWN, check_data, data_folder, locate, nearest_known
from deeplda.errors import InputError

_TIMEOUT = (15.0, 60.0)  # in seconds, for connecting and between two chunks
_CHUNK = 2**15  # bytes; an interruption loses at most this many

# Each known archive has fewer than ten files. Headers stay in memory, and a small archive can contain millions of them.
_MOST_MEMBERS = 1_000
# tarfile reads contents in smaller pieces than this, but it would read a header of any declared size at once.
_LARGEST_READ = 2**20


def fetch(name: str, data_dir: Path | None = None, *, base_url: str | None = None, progress: bool = True) -> Path:
    """Download a known data set into the data folder, unless it is already there and intact, and return its folder.

    An interrupted download is resumed. The data set's folder never contains a partly unpacked archive.

    Args:
        base_url: a mirror with the same files, to use instead of the original server.
        progress: show the transfer rate and the remaining time on stderr.

    Raises:
        InputError: if `name` is not a data set that can be fetched, the server fails, a checksum is wrong (the file is
            then removed), or the data folder is not writable.
    """
    if name not in KNOWN_SETS:
        do = "it comes with scikit-learn, so there is nothing to fetch" if name in KNOWN else nearest_known(name)
        found = f"{name} is not a data set that can be fetched"
        raise InputError(found, need=f"one of {', '.join(KNOWN_SETS)}", do=do)
    if all(row.ok for row in check_data(name, data_dir)):
        return locate(name, data_dir)
    known, root = KNOWN_SETS[name], data_folder(data_dir)
    folder = root / known.folders[0]
    try:
        for file, checksum in known.checksums.items():
            url = f"{(base_url or known.url).rstrip('/')}/{file}"
            path = _download(url, checksum, (root if known.unpacked_bytes else folder) / file, progress)
            if known.unpacked_bytes:
                unpack(path, folder, known.archive_members(), known.unpacked_bytes)
                path.unlink()
    except OSError as error:
        found = f"{root} cannot be written to ({error.strerror})"
        raise InputError(found, need="a writable folder with enough space", do="pass a different --data-dir") from None
    if broken := next((row for row in check_data(name, data_dir) if not row.ok), None):
        what = f"{broken.file} takes precedence and is broken ({broken.found})"
        raise InputError(f"{name} was fetched, but {what}: remove it")
    return folder


def _download(url: str, checksum: str, file: Path, progress: bool) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    downloader = partial(_resume, file.with_name(f"{file.name}.part"), progress)
    try:
        with _quiet(pooch.get_logger()):
            return Path(pooch.retrieve(url, checksum, fname=file.name, path=file.parent, downloader=downloader))
    except InputError:
        raise
    except ValueError:  # pooch raises this for a wrong checksum, after removing the file
        do = "fetch it again; if the error persists, the file on the server has changed"
        what = f"the file from {url} has the wrong checksum and was removed"
        raise InputError(what, need=checksum, do=do) from None


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _resume(part: Path, progress: bool, url: str, output_file: str, _pooch: object) -> None:
    """Download a file for pooch into a `.part` file, requesting only the bytes that this file does not have yet.

    If the server does not support ranges, the download starts over. Raises InputError if the server cannot be reached,
    rejects the request, or closes the connection early; the `.part` file is kept for the next attempt.
    """
    try:
        _request(url, part, progress)
    except requests.RequestException as error:
        what = f"the connection to {url} failed after {_size(part):,} bytes ({type(error).__name__})"
        raise InputError(f"{what}: run the same command again to resume") from None
    part.replace(output_file)


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0


def _request(url: str, part: Path, progress: bool) -> None:
    have = _size(part)
    # Without "identity", a server may compress the file once more, and the range would then refer to different bytes.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
        if response.status_code == 416:
            # There is nothing after our bytes: our file is either complete (the checksum will tell) or too long.
            if response.headers.get("Content-Range") != f"bytes */{have}":
                part.unlink()
                _request(url, part, progress)
            return
        if response.status_code >= 400:
            do = "try again later, or download the file by hand"
            raise InputError(f"{url} returned status {response.status_code}: {do}")
        if response.headers.get("Content-Range", "").split("-")[0] != f"bytes {have}":
            have = 0
        _receive(response, part, have, progress)


def _receive(response: requests.Response, part: Path, have: int, progress: bool) -> None:
    length = response.headers.get("Content-Length", "")
    total = have + int(length) if length.isdecimal() else None
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), disable=not progress) as shown:
        task = shown.add_task(part.stem, total=total, completed=have)
        with part.open("ab" if have else "wb") as file:
            for chunk in response.iter_content(_CHUNK):
                file.write(chunk)
                shown.advance(task, len(chunk))
    if total is not None and _size(part) < total:
        raise requests.ConnectionError("the server closed the connection early")


def unpack(archive: Path, folder: Path, wanted: frozenset[str], largest: int) -> None:
    """Unpack the `wanted` files from a tar.gz archive into `folder`, whichever folder of the archive they are in.

    Files are unpacked next to `folder` and moved into it once the whole archive has been read, so every file in
    `folder` is complete. Raises InputError and leaves `folder` unchanged if the archive is broken or incomplete,
    contains too many files, absolute paths, `..`, links or devices, or unpacks to more than `largest` bytes. Raises
    OSError if the files cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as name:
        staged = Path(name)
        try:
            with gzip.open(archive) as packed:
                stream = cast(IO[bytes], _LimitedReads(cast(IO[bytes], packed)))
                with tarfile.open(fileobj=stream, mode="r:") as tar:
                    _unpack_to(staged, tar, archive, wanted, largest)
        except InputError:
            raise
        except Exception as error:  # gzip and tarfile raise many types of error for a broken file
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise _rejected(archive, f"cannot be unpacked ({error})", "an intact tar.gz archive") from None
        folder.mkdir(exist_ok=True)
        for path in staged.iterdir():
            path.replace(folder / path.name)


def _unpack_to(staged: Path, tar: tarfile.TarFile, archive: Path, wanted: frozenset[str], largest: int) -> None:
    total = 0
    for index, member in enumerate(tar):
        if index >= _MOST_MEMBERS:
            raise _rejected(archive, "contains too many files", f"at most {_MOST_MEMBERS:,}")
        path = PurePosixPath(member.name.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or ":" in member.name:
            raise _rejected(archive, f"contains the path {member.name}", "relative paths inside the archive")
        if not (member.isdir() or member.isreg()) or member.issparse():
            found = f"contains {member.name}, which is a link or device"
            raise _rejected(archive, found, "only regular files and folders")
        total += member.size
        if total > largest or member.size < 0:
            raise _rejected(archive, "unpacks to more data than expected", f"at most {largest:,} bytes")
        if member.isreg() and path.name in wanted and (content := tar.extractfile(member)) is not None:
            with content, (staged / path.name).open("wb") as file:
                shutil.copyfileobj(content, file)
    if missing := sorted(name for name in wanted if not (staged / name).is_file()):
        raise _rejected(archive, f"does not contain {missing[0]}", "all files of the data set")


class _LimitedReads:
    """A wrapper around a file that refuses to read more than `_LARGEST_READ` bytes at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _LARGEST_READ:
            raise tarfile.ReadError(f"a header declares an invalid size of {size:,} bytes")
        return self._file.read(size)


def _rejected(archive: Path, found: str, need: str) -> InputError:
    return InputError(f"{archive} {found}", need=need, do="delete it and fetch it again")
