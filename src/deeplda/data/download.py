"""Download known data sets: resume downloads, verify sizes and checksums, and unpack untrusted archives safely."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tarfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import DefaultCookiePolicy
from io import BufferedRandom
from pathlib import Path, PurePosixPath
from typing import IO, cast

import requests
from requests.adapters import BaseAdapter
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from urllib3.exceptions import HTTPError

from deeplda.data.known_sets import KNOWN_SETS
from deeplda.data.layouts import KnownSet, RemoteFile
from deeplda.data.source_check import FileCheck, check_data
from deeplda.data.sources import KNOWN, data_folder, locate, nearest_known
from deeplda.errors import InputError
from deeplda.io import open_regular
from deeplda.output_folder import InUseError, OutputFolder

# Ends the name of a file that is being downloaded, so that it cannot be taken for one of the user's.
_PART = ".deeplda-part"
_TIMEOUT = (15.0, 60.0)  # in seconds, for connecting and between two chunks
_CHUNK = 2**15  # bytes; an interruption loses at most this many

# Each known archive has fewer than ten files. Headers stay in memory, and a small archive can contain millions of them.
_MOST_MEMBERS = 1_000
# tarfile reads contents in smaller pieces than this, but it would read a header of any declared size at once.
_LARGEST_READ = 2**20


def fetch(name: str, data_dir: Path | None = None, *, base_url: str | None = None, progress: bool = True) -> Path:
    """Download a known data set into the data folder, unless it is already there and intact, and return its folder.

    An interrupted download is resumed. Files are written only to the data set's own folder, which never contains a
    partly unpacked archive. A file there with the name of one of the set's files but other contents is renamed, with a
    warning, and an archive that was there before is used if it is intact, and never changed.

    Args:
        base_url: a mirror with the same files, to use instead of the original server. It may be an http address. A
            download from an https address is never redirected to plain http.
        progress: show the transfer rate and the remaining time on stderr.

    Raises:
        InputError: if `name` is not a data set that can be fetched, the server fails, a file has the wrong size or
            checksum (it is then removed), the data folder is not writable, the data set's folder is a link, another
            process is fetching the same set, or the data set needs another file that cannot be downloaded.
    """
    if name not in KNOWN_SETS:
        do = "it comes with scikit-learn, so there is nothing to fetch" if name in KNOWN else nearest_known(name)
        found = f"{name} is not a data set that can be fetched"
        raise InputError(found, need=f"one of {', '.join(KNOWN_SETS)}", do=do)
    known = KNOWN_SETS[name]
    if all(row.ok for row in check_data(name, data_dir)):
        return locate(name, data_dir)
    if known.images_of is not None:
        folder = fetch(known.images_of, data_dir, base_url=base_url, progress=progress)
    else:
        folder = _fetch_files(known, data_folder(data_dir), base_url or known.url, progress)
    if broken := next((row for row in check_data(name, data_dir) if not row.ok), None):
        raise _not_fetched(known, folder, broken)
    return folder


def _fetch_files(known: KnownSet, root: Path, url: str, progress: bool) -> Path:
    folder = root / known.folders[0]
    if folder.is_symlink():
        do = "remove the link (its target stays as it is), or put the missing files into the target yourself"
        raise InputError(f"{folder} is a link, through which nothing is written", need="a folder", do=do)
    try:
        with OutputFolder.open(root) as data, data.subfolder(folder.name) as output, output.locked(".lock"):
            output.clean()
            for name, remote in known.downloads.items():
                _fetch_file(known, root, output, f"{url.rstrip('/')}/{name}", remote, progress)
    except InUseError as error:
        raise InputError(f"{error}: wait until it has fetched {known.name}") from None
    except OSError as error:
        found = f"{root} cannot be written to ({error.strerror})"
        raise InputError(found, need="a writable folder with enough space", do="pass a different --data-dir") from None
    return folder


def _fetch_file(
    known: KnownSet, root: Path, output: OutputFolder, url: str, remote: RemoteFile, progress: bool
) -> None:
    """Put a file of the set, or the files in its archive, into the set's folder; download it unless it is there."""
    name = url.rpartition("/")[2]
    file = (root if known.unpacked_bytes else output.path) / name
    if _is_intact(file, remote):
        if known.unpacked_bytes:
            with open_regular(file) as archive:
                unpack(archive, file, output, known.archive_members(), known.unpacked_bytes)
        return
    part = f"{name}{_PART}"
    with _downloaded(url, remote, output, part, progress) as content:
        if known.unpacked_bytes:
            unpack(content, output.path / part, output, known.archive_members(), known.unpacked_bytes)
        else:
            with output.scratch() as staged:
                with staged.create(name) as copy:
                    shutil.copyfileobj(content, copy)
                _put_in_place(staged, output)


def _put_in_place(staged: OutputFolder, output: OutputFolder) -> None:
    """Move all files into the set's folder. Files of the same name that are different are kept under a new name."""
    renamed: dict[Path, str] = {}
    for name in sorted(staged.names()):
        file = output.path / name
        if file.is_file() and _sha256(file) == _sha256(staged.path / name):
            continue
        if kept := output.take(staged, name):
            renamed[file] = kept
    for file, kept in renamed.items():
        warnings.warn(f"{file} was not the file of the data set; it is kept as {kept}", UserWarning, stacklevel=2)


def _not_fetched(known: KnownSet, folder: Path, broken: FileCheck) -> InputError:
    """Return the error for a set that still has a broken file after everything was downloaded."""
    if known.images_of is None:
        what = f"{broken.file} takes precedence and is broken ({broken.found})"
        return InputError(f"{known.name} was fetched, but {what}: remove it")
    if broken.file.exists():
        return InputError(f"{known.images_of} is in {folder}, but {broken.found}")
    what = f"{known.images_of} is in {folder}, but {known.name} also needs {broken.file}"
    return InputError(f"{what}: put this file there yourself, because it cannot be downloaded")


@contextmanager
def _downloaded(
    url: str, remote: RemoteFile, output: OutputFolder, part: str, progress: bool
) -> Iterator[BufferedRandom]:
    """Download a file and yield it, verified and open. If the block fails, the file is kept and need not be fetched.

    The file has the name `part`, and a later call resumes it. Nothing but the open file is written, whatever appears
    under its name during the download.

    Raises InputError if the server fails or closes the connection early, in which case the file is kept, or if the
    server delivers other bytes than it should, in which case the file is removed.
    """
    with output.resumable(part) as stream:
        try:
            _request(url, stream, remote.size, progress)
        except InputError:
            raise
        # Malformed answers and addresses end in a ValueError of the standard library.
        except (requests.RequestException, HTTPError, ValueError) as error:
            what = f"the connection to {url} failed after {_size(stream):,} bytes ({type(error).__name__})"
            raise InputError(f"{what}: run the same command again to resume") from None
        stream.seek(0)
        if hashlib.file_digest(stream, "sha256").hexdigest() != remote.sha256:
            _empty(stream)
            do = "fetch it again; if the error persists, the file on the server has changed"
            what = f"the file from {url} has the wrong checksum and was removed"
            raise InputError(what, need=f"SHA-256 {remote.sha256}", do=do)
        stream.seek(0)
        yield stream
        _empty(stream)


def _is_intact(file: Path, remote: RemoteFile) -> bool:
    """Return whether a file is the one on the server. It may be a link, because it is only read."""
    return file.is_file() and file.stat().st_size == remote.size and _sha256(file) == remote.sha256


def _sha256(file: Path) -> str:
    with open_regular(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _size(stream: BufferedRandom) -> int:
    return stream.seek(0, os.SEEK_END)


def _empty(stream: BufferedRandom) -> None:
    """Remove the contents of the file, and thereby the file: an empty one is removed when it is closed."""
    stream.seek(0)
    stream.truncate()


class _Session(requests.Session):
    """A session for one download, whose redirects cannot lead from https to plain http or fill the memory."""

    _encrypted = False

    def __init__(self) -> None:
        super().__init__()
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def get_adapter(self, url: str) -> BaseAdapter:  # called for the first address and for every redirect
        encrypted = url.lower().startswith("https:")
        if self._encrypted and not encrypted:
            what = f"the server redirects the download to {url}"
            raise InputError(what, need="an https address", do="try again later, or download the file by hand")
        self._encrypted = encrypted
        return super().get_adapter(url)

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        target = super().get_redirect_target(resp)
        if target is not None:
            resp.close()  # otherwise, requests would read the body, whatever its size
        return target


def _request(url: str, stream: BufferedRandom, size: int, progress: bool) -> None:
    """Append the bytes that the file does not have yet, until it has `size` bytes.

    If the server does not support ranges, the download starts over.
    """
    have = _size(stream)
    if have == size:
        return
    if have > size:
        _empty(stream)
        have = 0
    # Without "identity", a server may compress the file once more, and the range would then refer to different bytes.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with _Session() as session, session.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
        if response.status_code == 416 and have:  # the server's file is not longer than ours
            _empty(stream)
            _request(url, stream, size, progress)
            return
        if response.status_code >= 400:
            do = "try again later, or download the file by hand"
            raise InputError(f"{url} returned status {response.status_code}: {do}")
        span = response.headers.get("Content-Range", "")
        announced = (span or response.headers.get("Content-Length", "")).rpartition("/")[2]
        # No size has more than 20 digits, and Python refuses to convert thousands of them.
        if announced.isdecimal() and (length := int(announced[:20])) != size:
            raise _wrong_size(url, f"{length:,} bytes", size)
        have = have if span.split("-")[0] == f"bytes {have}" else 0
        _receive(url.rpartition("/")[2], response, stream, have, size, progress)


def _receive(
    name: str, response: requests.Response, stream: BufferedRandom, have: int, size: int, progress: bool
) -> None:
    """Write the response after the first `have` bytes of the file; empty the file if it would exceed `size` bytes."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), disable=not progress) as shown:
        task = shown.add_task(name, total=size, completed=have)
        stream.seek(have)
        stream.truncate()
        # Even if the server says that its file is compressed, the checksum is that of the file as it is.
        for chunk in response.raw.stream(_CHUNK, decode_content=False):
            have += len(chunk)
            if have > size:
                break
            stream.write(chunk)
            shown.advance(task, len(chunk))
    if have > size:
        _empty(stream)
        raise _wrong_size(response.url, "more bytes", size)
    if have < size:
        raise requests.ConnectionError("the server closed the connection early")


def _wrong_size(url: str, found: str, size: int) -> InputError:
    do = "the file on the server has changed; try again later, or download it by hand"
    return InputError(f"{url} delivers {found}", need=f"{size:,}", do=do)


def unpack(archive: IO[bytes], name: Path, folder: OutputFolder, wanted: frozenset[str], largest: int) -> None:
    """Unpack the `wanted` files from a tar.gz archive into `folder`, whichever folder of the archive they are in.

    Files are unpacked into a temporary folder and moved once the whole archive has been read, so every file in `folder`
    is complete. Different files of the same name are kept under a new one. Raises InputError and leaves `folder`
    unchanged if the archive, called `name` in messages, is broken or incomplete, contains too many files, absolute
    paths, `..`, links or devices, or unpacks to more than `largest` bytes. Raises OSError if the files cannot be
    written.
    """
    with folder.scratch() as staged:
        try:
            with gzip.open(archive) as packed:
                stream = cast(IO[bytes], _LimitedReads(cast(IO[bytes], packed)))
                with tarfile.open(fileobj=stream, mode="r:") as tar:
                    _unpack_to(staged, tar, name, wanted, largest)
        except InputError:
            raise
        except Exception as error:  # gzip and tarfile raise many types of error for a broken file
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise _rejected(name, f"cannot be unpacked ({error})", "an intact tar.gz archive") from None
        _put_in_place(staged, folder)


def _unpack_to(staged: OutputFolder, tar: tarfile.TarFile, archive: Path, wanted: frozenset[str], largest: int) -> None:
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
            staged.remove(path.name)  # the last of several members with one name counts
            with content, staged.create(path.name) as file:
                shutil.copyfileobj(content, file)
    if missing := sorted(wanted - staged.names()):
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
