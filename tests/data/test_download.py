"""Fetching from a local server that can misbehave.

Archives are unpacked completely or not at all, and only inside their folder.
"""

import errno
import gzip
import hashlib
import io
import lzma
import os
import re
import shutil
import struct
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

from deeplda.data import check_data, fetch, load_data
from deeplda.data.download import unpack
from deeplda.data.known_sets import KNOWN_SETS
from deeplda.data.layouts import RemoteFile
from deeplda.errors import InputError
from deeplda.output_folder import OutputFolder

ARCHIVE = "cifar-10-binary.tar.gz"
PART = f"cifar-10-batches-bin/{ARCHIVE}.deeplda-part"
# More bytes than the buffers of a connection hold, so a client that stops reading also stops the server.
ENDLESS = 2**27


def cifar_archive(*more: tarfile.TarInfo) -> bytes:
    """CIFAR-10 with ten images per file."""
    files = {f"data_batch_{i}.bin": bytes([*range(10)]) for i in range(1, 6)} | {"test_batch.bin": bytes(range(10))}
    contents = {name: b"".join(bytes([label]) + bytes([label]) * 3072 for label in ten) for name, ten in files.items()}
    contents["batches.meta.txt"] = "\n".join("abcdefghij").encode()
    return packed(contents, "cifar-10-batches-bin", *more)


def packed(contents: dict[str, bytes], folder: str, *more: tarfile.TarInfo) -> bytes:
    """A tar.gz archive with these files in a folder, and with more members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=0) as tar:
        for name, content in contents.items():
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for info in more:
            tar.addfile(info)
    return buffer.getvalue()


class Server(ThreadingHTTPServer):
    """Serves `files`, cuts the next responses after `cuts` bytes, and records the Range of every request.

    A path in `redirects` is answered with its target and a body of `ENDLESS` bytes. If `announces` is False, responses
    have no length, and the file is followed by as many bytes. `sent` counts the bytes of such bodies.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.headers: dict[str, str] = {}
        self.cuts: list[int] = []
        self.ranges: list[str | None] = []
        self.knows_ranges = True
        self.announces = True
        self.sent = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        wish = self.headers["Range"]
        server.ranges.append(wish)
        if target := server.redirects.get(self.path.lstrip("/")):
            self.send_response(302)
            self.send_header("Location", target)
            self.send_header("Content-Length", str(ENDLESS))
            self.end_headers()
            self.send_without_end()
            return
        content = server.files.get(self.path.lstrip("/"))
        if content is None:
            self.send_error(404)
            return
        start = int(re.findall(r"\d+", wish)[0]) if wish and server.knows_ranges else 0
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if server.announces:
            self.send_header("Content-Length", str(len(content) - start))
        for name, value in server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[start:][: server.cuts.pop(0) if server.cuts else None])
        if not server.announces:
            self.send_without_end()

    def send_without_end(self) -> None:
        assert isinstance(self.server, Server)
        self.close_connection = True
        with suppress(OSError):  # the client closes the connection
            while self.server.sent < ENDLESS:
                self.wfile.write(bytes(2**16))
                self.server.sent += 2**16

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def offer(server: Server, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    server.files[ARCHIVE] = content
    expect(monkeypatch, "cifar10", {ARCHIVE: content})


def expect(monkeypatch: pytest.MonkeyPatch, name: str, files: dict[str, bytes]) -> None:
    """Make these the files to download for a known set."""
    known = KNOWN_SETS[name]
    remote = {file: RemoteFile(len(data), hashlib.sha256(data).hexdigest()) for file, data in files.items()}
    monkeypatch.setitem(KNOWN_SETS, name, replace(known, downloads=remote))


def tiny_idx(name: str) -> bytes:
    """Ten grey images of one pixel, or their labels, as in MNIST's files."""
    shape = (10, 1, 1) if "images" in name else (10,)
    return gzip.compress(struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + bytes(range(10)))


def files_in(root: Path) -> set[str]:
    """All files below a folder, without locks."""
    found = {path for path in root.rglob("*") if path.name != ".lock" and not path.is_dir()}
    return {path.relative_to(root).as_posix() for path in found}


MEMBERS = {f"data_batch_{i}.bin" for i in range(1, 6)} | {"test_batch.bin", "batches.meta.txt"}
UNPACKED = {f"cifar-10-batches-bin/{name}" for name in MEMBERS}


def plant(path: Path, content: bytes) -> Path:
    """Write a file and the folders that it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_fetch_unpacks_and_load_reads(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(server, monkeypatch, cifar_archive())
    folder = fetch("cifar10", tmp_path, base_url=server.url, progress=False)
    assert folder == tmp_path / "cifar-10-batches-bin"
    assert files_in(tmp_path) == UNPACKED
    data = load_data("cifar10", data_dir=tmp_path)
    assert data.class_names == tuple("abcdefghij")
    assert all((image == label).all() for image, label in zip(data.train.inputs, data.train.labels, strict=True))
    assert fetch("cifar10", tmp_path, base_url=server.url, progress=False) == folder
    assert len(server.ranges) == 1, "intact files are not fetched again"
    for broken in ("test_batch.bin", "batches.meta.txt"):
        (folder / broken).write_bytes(b"cut")
        assert not all(row.ok for row in check_data("cifar10", tmp_path))
        with pytest.warns(UserWarning, match=f"{broken} was not the file of the data set; it is kept as {broken}"):
            fetch("cifar10", tmp_path, base_url=server.url.rstrip("/"), progress=False)
        assert load_data("cifar10", data_dir=tmp_path).fingerprint == data.fingerprint


def test_an_interrupted_download_resumes(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(server, monkeypatch, cifar_archive())
    server.cuts = [100_000, 60_000]
    part, kept = tmp_path / PART, [0]
    for _ in range(2):
        with pytest.raises(InputError, match=r"failed after [\d,]+ bytes .*to resume"):
            fetch("cifar10", tmp_path, base_url=server.url, progress=False)
        assert files_in(tmp_path) == {PART}
        kept.append(part.stat().st_size)
    fetch("cifar10", tmp_path, base_url=server.url, progress=False)
    assert 0 < kept[1] <= 100_000 < kept[2] <= kept[1] + 60_000
    assert server.ranges == [None, f"bytes={kept[1]}-", f"bytes={kept[2]}-"]
    assert files_in(tmp_path) == UNPACKED


def test_without_ranges_the_download_starts_again(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(server, monkeypatch, cifar_archive())
    server.knows_ranges = False
    plant(tmp_path / PART, b"something else")
    fetch("cifar10", tmp_path, base_url=server.url, progress=False)
    assert server.ranges == ["bytes=14-"]


@pytest.mark.parametrize("excess", [b"", b"too long"])
def test_a_part_file_that_is_complete_or_too_long(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, excess: bytes
) -> None:
    offer(server, monkeypatch, cifar_archive())
    plant(tmp_path / PART, server.files[ARCHIVE] + excess)
    fetch("cifar10", tmp_path, base_url=server.url, progress=False)
    assert server.ranges == ([None] if excess else []), "a complete file is not requested, a longer one starts over"
    assert files_in(tmp_path) == UNPACKED


def test_a_file_with_a_wrong_checksum_is_removed(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(server, monkeypatch, cifar_archive())
    server.files[ARCHIVE] = server.files[ARCHIVE][:-8] + b"tampered"
    with pytest.raises(InputError, match="checksum and was removed, need SHA-256"):
        fetch("cifar10", tmp_path, base_url=server.url, progress=False)
    assert files_in(tmp_path) == set()


@pytest.mark.parametrize("change", [b"more", None])
def test_a_server_that_announces_another_size_is_not_read(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, change: bytes | None
) -> None:
    """With and without a range; the bytes from before are kept, because another server may have the right file."""
    offer(server, monkeypatch, cifar_archive())
    intact = server.files[ARCHIVE]
    server.files[ARCHIVE] = intact + change if change else intact[:-4]
    part = tmp_path / PART
    for kept in (b"", intact[:1000]):
        plant(part, kept)
        with pytest.raises(InputError, match=f"delivers {len(server.files[ARCHIVE]):,} bytes, need {len(intact):,}"):
            fetch("cifar10", tmp_path, base_url=server.url, progress=False)
        assert (part.read_bytes() if kept else files_in(tmp_path)) == (kept or set())
    server.files[ARCHIVE] = intact
    fetch("cifar10", tmp_path, base_url=server.url, progress=False)
    assert server.ranges == [None, "bytes=1000-", "bytes=1000-"]


def test_a_download_stops_at_the_size_of_the_file(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the server does not announce how much it sends."""
    offer(server, monkeypatch, cifar_archive())
    server.announces = False
    with pytest.raises(InputError, match=f"delivers more bytes, need {len(server.files[ARCHIVE]):,}"):
        fetch("cifar10", tmp_path, base_url=server.url, progress=False)
    assert files_in(tmp_path) == set()
    assert server.sent < ENDLESS


def test_a_size_of_thousands_of_digits_is_rejected(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(server, monkeypatch, cifar_archive())
    server.headers["Content-Range"] = f"bytes 0-9/{'9' * 10_000}"
    with pytest.raises(InputError, match="delivers 99,"):
        fetch("cifar10", tmp_path, base_url=server.url, progress=False)


def test_a_part_file_that_the_server_has_no_more_bytes_for(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(server, monkeypatch, cifar_archive())
    plant(tmp_path / PART, bytes(100_000))
    server.files[ARCHIVE], intact = b"cut", server.files[ARCHIVE]
    with pytest.raises(InputError, match=f"delivers 3 bytes, need {len(intact):,}"):
        fetch("cifar10", tmp_path, base_url=server.url, progress=False)
    assert server.ranges == ["bytes=100000-", None]


def test_a_file_that_the_server_calls_compressed_is_stored_as_it_is(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(server, monkeypatch, cifar_archive())
    server.headers["Content-Encoding"] = "gzip"
    assert fetch("cifar10", tmp_path, base_url=server.url, progress=False).is_dir()


def test_a_redirect_is_followed_without_reading_its_body(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(server, monkeypatch, cifar_archive())
    server.redirects[f"old/{ARCHIVE}"] = f"/{ARCHIVE}"
    fetch("cifar10", tmp_path, base_url=f"{server.url}old", progress=False)
    assert server.sent < ENDLESS


@pytest.mark.parametrize(
    ("target", "says"),
    [("/loop", "TooManyRedirects"), ("/\xff", "UnicodeDecodeError"), ("http://[::1", "ValueError|InvalidURL")],
)
def test_redirects_that_lead_nowhere(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, target: str, says: str
) -> None:
    server.redirects["loop"] = target
    expect(monkeypatch, "cifar100", {"loop": b"never delivered"})
    with pytest.raises(InputError, match=says):
        fetch("cifar100", tmp_path, base_url=server.url, progress=False)
    assert server.sent < ENDLESS


@pytest.mark.parametrize("start", ["https://mirror.example/", "http://mirror.example/"])
def test_a_redirect_never_leads_from_https_to_plain_http(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    """Neither directly nor after a redirect from http, which a mirror may use, to https."""

    def send(adapter: HTTPAdapter, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        target = {"https": server.url, "http": "https://mirror.example/"}[urlsplit(request.url).scheme]
        if request.url.startswith(server.url):
            return real(adapter, request, **options)
        headers = {"Location": f"{target}{ARCHIVE}"}
        found = HTTPResponse(io.BytesIO(), headers, status=302, preload_content=False)
        return adapter.build_response(request, found)

    real = HTTPAdapter.send
    monkeypatch.setattr(HTTPAdapter, "send", send)
    offer(server, monkeypatch, cifar_archive())
    with pytest.raises(InputError, match=f"redirects the download to {server.url}.*need an https address"):
        fetch("cifar10", tmp_path, base_url=start, progress=False)
    assert server.ranges == []


@pytest.mark.parametrize(
    "make",
    [
        lambda link, other: link.symlink_to(other),
        lambda link, other: link.hardlink_to(other),
        lambda link, _: os.mkfifo(link),
    ],
    ids=["link", "hard link", "pipe"],
)
def test_a_part_file_that_is_a_link_or_a_pipe_is_not_written_to(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path, Path], None]
) -> None:
    offer(server, monkeypatch, cifar_archive())
    other = tmp_path / "other"
    other.write_bytes(b"precious")
    (tmp_path / PART).parent.mkdir()
    make(tmp_path / PART, other)
    with pytest.raises(InputError, match=rf"{ARCHIVE}\.deeplda-part is not an ordinary file.*remove it"):
        fetch("cifar10", tmp_path, base_url=server.url, progress=False)
    assert other.read_bytes() == b"precious"
    assert server.ranges == []


@pytest.mark.parametrize("before", [b"", b"half a download"], ids=["new", "resumed"])
@pytest.mark.parametrize("kind", [Path.symlink_to, Path.hardlink_to])
def test_a_link_planted_during_the_request_is_not_written_through(
    tmp_path: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    kind: Callable[[Path, Path], None],
    before: bytes,
) -> None:
    archive = cifar_archive()
    offer(server, monkeypatch, archive)
    other = plant(tmp_path / "outside" / "other", b"precious")
    part = plant(tmp_path / "data" / PART, archive[: len(before)])

    def send(adapter: HTTPAdapter, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        part.unlink()
        kind(part, other)
        return real(adapter, request, **options)

    real = HTTPAdapter.send
    monkeypatch.setattr(HTTPAdapter, "send", send)
    fetch("cifar10", tmp_path / "data", base_url=server.url, progress=False)
    assert other.read_bytes() == part.read_bytes() == b"precious"
    assert files_in(tmp_path / "data") == {*UNPACKED, PART}, "the link is not ours, so it stays"


@pytest.mark.parametrize("target", ["other", "/dev/zero"])
def test_a_link_in_place_of_a_file_is_kept_under_another_name(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    server.files = files = {name: tiny_idx(name) for name in KNOWN_SETS["mnist"].downloads}
    expect(monkeypatch, "mnist", files)
    other = plant(tmp_path / "other", b"precious")
    (tmp_path / "mnist").mkdir()
    for name in files:
        (tmp_path / "mnist" / name).symlink_to(tmp_path / target)
    with pytest.warns(UserWarning, match="it is kept as"):
        folder = fetch("mnist", tmp_path, base_url=server.url, progress=False)
    links = set(filter(Path.is_symlink, folder.iterdir()))
    assert {path.name: path.read_bytes() for path in set(folder.iterdir()) - links} == files | {".lock": b""}
    assert {link.name.partition(".replaced-")[0] for link in links} == set(files)
    assert other.read_bytes() == b"precious"


def test_a_linked_data_set_is_read_but_not_written(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(server, monkeypatch, cifar_archive())
    target = fetch("cifar10", tmp_path / "shared", base_url=server.url, progress=False)
    (tmp_path / "data").mkdir()
    link = tmp_path / "data" / "cifar-10-batches-bin"
    link.symlink_to(target)
    assert fetch("cifar10", tmp_path / "data", progress=False) == link
    (target / "test_batch.bin").write_bytes(b"mine")
    before = files_in(tmp_path)
    with pytest.raises(InputError, match=rf"{link} is a link.*need a folder: remove the link"):
        fetch("cifar10", tmp_path / "data", base_url=server.url, progress=False)
    assert (target / "test_batch.bin").read_bytes() == b"mine"
    assert files_in(tmp_path) == before
    assert len(server.ranges) == 1


@pytest.mark.parametrize("name", ["cifar10", "mnist"])
def test_files_of_the_user_are_kept(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Archives and `.part` files with other contents as they are, and files of the set under another name."""
    server.files = files = {ARCHIVE: cifar_archive()}
    if name == "mnist":
        server.files = files = {file: tiny_idx(file) for file in KNOWN_SETS["mnist"].downloads}
    expect(monkeypatch, name, files)
    folder = tmp_path / KNOWN_SETS[name].folders[0]
    own = {tmp_path / file: b"mine" for file in files} | {tmp_path / f"{file}.part": b"also mine" for file in files}
    own[folder / "notes.txt"] = b"notes"
    for path, content in own.items():
        plant(path, content)
    replaced = plant(folder / ("data_batch_1.bin" if name == "cifar10" else "train-labels-idx1-ubyte.gz"), b"my own")
    with pytest.warns(UserWarning, match=f"{replaced} was not the file of the data set; it is kept as"):
        fetch(name, tmp_path, base_url=server.url, progress=False)
    assert {path: path.read_bytes() for path in own} == own
    (kept,) = folder.glob("*.replaced-*")
    assert kept.read_bytes() == b"my own"
    assert all(row.ok for row in check_data(name, tmp_path))


def test_two_processes_do_not_fetch_the_same_set_at_once(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(server, monkeypatch, cifar_archive())
    with (
        OutputFolder.open(tmp_path / "cifar-10-batches-bin") as folder,
        folder.locked(".lock"),
        pytest.raises(InputError, match="in use by another process: wait until it has fetched cifar10"),
    ):
        fetch("cifar10", tmp_path, base_url=server.url, progress=False)
    fetch("cifar10", tmp_path, base_url=server.url, progress=False)
    assert len(server.ranges) == 1


def test_an_archive_that_could_not_be_unpacked_is_not_downloaded_again(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Because the disk was full, or the process was killed, which also leaves a temporary folder behind."""
    offer(server, monkeypatch, cifar_archive())

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfileobj", full)
        with pytest.raises(InputError, match=r"cannot be written to \(No space left"):
            fetch("cifar10", tmp_path, base_url=server.url, progress=False)
    assert files_in(tmp_path) == {PART}
    plant(tmp_path / "cifar-10-batches-bin" / ".deeplda-0123456789abcdef.tmp" / "data_batch_1.bin", b"half")
    fetch("cifar10", tmp_path, base_url=server.url, progress=False)
    assert files_in(tmp_path) == UNPACKED
    assert len(server.ranges) == 1


def test_cifar10n_fetches_cifar10_and_says_where_the_labels_must_be(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(server, monkeypatch, cifar_archive())
    labels = tmp_path / "cifar10n_labels.npz"
    for _ in range(2):
        with pytest.raises(InputError, match=rf"also needs {labels}: put .*cannot be downloaded"):
            fetch("cifar10n-worst", tmp_path, base_url=server.url, progress=False)
        assert all(row.ok for row in check_data("cifar10", tmp_path))
    assert len(server.ranges) == 1, "intact images are not fetched again"
    clean = np.arange(50) % 10
    np.savez(labels, clean_label=clean[::-1], worse_label=clean)
    with pytest.raises(InputError, match=rf"but {labels} has other clean labels.*: replace the file"):
        fetch("cifar10n-worst", tmp_path, base_url=server.url, progress=False)
    np.savez(labels, clean_label=clean, worse_label=clean[::-1])
    assert fetch("cifar10n-worst", tmp_path, base_url=server.url) == tmp_path / "cifar-10-batches-bin"
    assert len(server.ranges) == 1


def test_a_broken_npz_of_cifar100_gives_way_to_the_fetched_files(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = bytes([0, 1]) + bytes(3072) + bytes([0, 2]) + bytes(3072)
    contents = {"train.bin": record * 2, "test.bin": record, "fine_label_names.txt": b"a " * 100}
    server.files["a.tar.gz"] = archive = packed(contents, "cifar-100-binary")
    expect(monkeypatch, "cifar100", {"a.tar.gz": archive})
    (tmp_path / "cifar100.npz").write_bytes(b"broken")
    folder = fetch("cifar100", tmp_path, base_url=server.url, progress=False)
    assert files_in(folder) == set(contents)
    assert load_data("cifar100", data_dir=tmp_path).test.labels.tolist() == [1, 2]


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.SYMTYPE])
def test_a_dangerous_archive_leaves_no_files(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, kind: bytes
) -> None:
    bad = tarfile.TarInfo("../evil" if kind == tarfile.REGTYPE else "cifar-10-batches-bin/evil")
    bad.type, bad.linkname = kind, "/etc/passwd"
    offer(server, monkeypatch, cifar_archive(bad))
    with pytest.raises(InputError, match="evil"):
        fetch("cifar10", tmp_path / "data", base_url=server.url, progress=False)
    assert files_in(tmp_path) == {f"data/{PART}"}


def test_mnist_comes_file_by_file(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files = files = {name: tiny_idx(name) for name in KNOWN_SETS["mnist"].downloads}
    expect(monkeypatch, "mnist", files)
    folder = fetch("mnist", tmp_path, base_url=server.url, progress=False)
    assert {name: (folder / name).read_bytes() for name in files_in(folder)} == files
    assert folder == tmp_path / "mnist"
    (folder / "t10k-labels-idx1-ubyte").write_bytes(b"cut")
    with pytest.raises(InputError, match=r"t10k-labels-idx1-ubyte takes precedence and is broken .*: remove it"):
        fetch("mnist", tmp_path, base_url=server.url, progress=False)


def test_not_found_and_server_down(tmp_path: Path, server: Server) -> None:
    with pytest.raises(InputError, match="status 404") as info:
        fetch("stl10", tmp_path, base_url=server.url, progress=False)
    assert "\n" not in str(info.value)
    with pytest.raises(InputError, match=r"the connection to .* failed after 0 bytes"):
        fetch("stl10", tmp_path, base_url="http://127.0.0.1:9/", progress=False)
    assert files_in(tmp_path) == set()


def test_progress_goes_to_stderr(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offer(server, monkeypatch, cifar_archive())
    fetch("cifar10", tmp_path, base_url=server.url)
    out, err = capsys.readouterr()
    assert out == ""
    assert ARCHIVE in err


def test_names_that_cannot_be_fetched_and_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="comes with scikit-learn"):
        fetch("digits", tmp_path)
    with pytest.raises(InputError, match="did you mean mnist"):
        fetch("mnits", tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot be written"):
        fetch("mnist", tmp_path / "file", base_url="http://127.0.0.1:9/", progress=False)


WANTED = frozenset({"a.bin", "b.bin"})


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def write(path: Path, *more: tarfile.TarInfo, extra: bytes = b"x") -> Path:
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(member("set", tarfile.DIRTYPE))
        for name in ("set/a.bin", "set/b.bin"):
            info = member(name)
            info.size = 5
            tar.addfile(info, io.BytesIO(name[-5:].encode()))
        for info in more:
            info.size = len(extra) if info.isreg() else 0
            tar.addfile(info, io.BytesIO(extra))
    return path


def unpack_to(archive: Path, path: Path, wanted: frozenset[str], largest: int) -> None:
    with archive.open("rb") as stream, OutputFolder.open(path) as folder:
        unpack(stream, archive, folder, wanted, largest)


def test_wanted_files_arrive_and_others_do_not(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.tar.gz", member("set/unwanted.bin"))
    unpack_to(archive, tmp_path / "set", WANTED, 100)
    assert files_in(tmp_path) == {"a.tar.gz", "set/a.bin", "set/b.bin"}
    assert (tmp_path / "set" / "b.bin").read_bytes() == b"b.bin"


def test_existing_files_are_kept_under_another_name_and_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.bin").write_text("half")
    (tmp_path / "set" / "mine.txt").write_text("mine")
    before = plant(tmp_path / "set" / "b.bin", b"b.bin").stat()
    with pytest.warns(UserWarning, match=r"a\.bin was not the file of the data set"):
        unpack_to(write(tmp_path / "a.tar.gz"), tmp_path / "set", WANTED, 100)
    assert (tmp_path / "set" / "a.bin").read_bytes() == b"a.bin"
    assert [path.read_text() for path in tmp_path.glob("set/*.replaced-*")] == ["half"]
    assert os.path.samestat((tmp_path / "set" / "b.bin").stat(), before), "an intact file is left as it is"
    assert (tmp_path / "set" / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (member("../evil"), r"the path \.\./evil"),
        (member("set/../../evil"), "the path"),
        (member("/etc/evil"), "the path /etc/evil"),
        (member("..\\evil"), "the path"),
        (member("C:/evil"), "the path"),
        (member("set/evil", tarfile.SYMTYPE, "/etc/passwd"), "a link or device"),
        (member("set/evil", tarfile.LNKTYPE, "set/a.bin"), "a link or device"),
        (member("set/evil", tarfile.CHRTYPE), "a link or device"),
        (member("set/evil", tarfile.FIFOTYPE), "a link or device"),
    ],
)
def test_an_archive_with_a_dangerous_member_is_rejected(tmp_path: Path, bad: tarfile.TarInfo, says: str) -> None:
    archive = write(tmp_path / "a.tar.gz", bad)
    with pytest.raises(InputError, match=says):
        unpack_to(archive, tmp_path / "set", WANTED, 100)
    assert files_in(tmp_path) == {"a.tar.gz"}


def test_too_many_bytes_missing_files_and_broken_archives(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.tar.gz", member("set/big"), extra=bytes(200))
    with pytest.raises(InputError, match="at most 100 bytes"):
        unpack_to(archive, tmp_path / "set", WANTED, 100)
    with pytest.raises(InputError, match=r"does not contain c\.bin"):
        unpack_to(archive, tmp_path / "set", WANTED | {"c.bin"}, 1000)
    intact = archive.read_bytes()
    for content in (intact[:-30], intact[:60], b"text", b""):
        archive.write_bytes(content)
        with pytest.raises(InputError, match="cannot be unpacked"):
            unpack_to(archive, tmp_path / "set", WANTED, 1000)
    assert files_in(tmp_path) == {"a.tar.gz"}


def test_small_archives_that_would_fill_the_memory(tmp_path: Path, little_memory: None) -> None:  # noqa: ARG001
    """A header of a gigabyte, and thousands of headers, compressed to a few kilobytes."""
    header = member("long", tarfile.XHDTYPE)
    header.size = 2**30
    many = [member(f"set/{number}") for number in range(2_000)]
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(header.tobuf()) + gzip.compress(bytes(2**20)) * 2**10)
    write(tmp_path / "b.tar.gz", *many, extra=b"")
    for name, says in (("a.tar.gz", "an invalid size of 1,073,741,824 bytes"), ("b.tar.gz", "too many files")):
        assert (tmp_path / name).stat().st_size < 2_000_000
        with pytest.raises(InputError, match=says):
            unpack_to(tmp_path / name, tmp_path / "set", WANTED, 2**40)
    assert files_in(tmp_path) == {"a.tar.gz", "b.tar.gz"}


def test_members_of_negative_size_and_headers_without_end(tmp_path: Path) -> None:
    negative = member("set/c.bin")
    negative.size = -(10**9)
    with gzip.open(tmp_path / "a.tar.gz", "wb") as packed:
        packed.write(negative.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    chained = member("long", tarfile.XHDTYPE)
    with gzip.open(tmp_path / "b.tar.gz", "wb") as packed:
        packed.write(chained.tobuf() * 5_000)
    (tmp_path / "c.tar.gz").write_bytes(lzma.compress(bytes(4096)))
    for name in ("a.tar.gz", "b.tar.gz", "c.tar.gz"):
        with pytest.raises(InputError, match=r"cannot be unpacked|unpacks to more"):
            unpack_to(tmp_path / name, tmp_path / "set", WANTED, 10_000)
    assert not files_in(tmp_path / "set")


def test_an_archive_that_the_user_downloaded_is_kept(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = cifar_archive()
    offer(server, monkeypatch, archive)
    (tmp_path / ARCHIVE).write_bytes(archive)
    fetch("cifar10", tmp_path, base_url=server.url, progress=False)
    assert (tmp_path / ARCHIVE).read_bytes() == archive
    assert server.ranges == []
