"""Download a file in a way that can be cut and goes on where it stopped."""

from __future__ import annotations

from pathlib import Path

import requests
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from deeplda.errors import InputError, got

_TIMEOUT = (15.0, 60.0)  # seconds to connect, and between two pieces
_PIECE = 2**15  # bytes; a cut loses at most this much


class ResumingDownloader:
    """A downloader for pooch that keeps what it has in `NAME.part` and asks the server only for the rest.

    A server without ranges starts anew. Calling it raises InputError where the server cannot be reached, refuses, or
    breaks off; the `.part` file then stays for the next time.
    """

    def __init__(self, part: Path, *, progress: bool) -> None:
        self._part, self._progress = part, progress

    def __call__(self, url: str, output_file: str, pooch: object) -> None:  # noqa: ARG002 (pooch passes itself)
        try:
            self._download(url)
        except requests.RequestException as error:
            kept = self._part.stat().st_size if self._part.is_file() else 0
            raise InputError(
                got(
                    f"the connection to {url} failed after {kept:,} bytes ({type(error).__name__})",
                    need="a connection",
                    do="run the same command again to go on from there",
                )
            ) from None
        self._part.replace(output_file)

    def _download(self, url: str) -> None:
        have = self._part.stat().st_size if self._part.is_file() else 0
        # Without identity a server may send the packed file packed once more, and the range would count other bytes.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
            if response.status_code == 416:
                # Nothing after what we have: either it is all there, and the checksum will tell, or it is too long.
                if response.headers.get("Content-Range") != f"bytes */{have}":
                    self._part.unlink()
                    self._download(url)
                return
            if response.status_code >= 400:
                found = f"{url} gave status {response.status_code}"
                raise InputError(got(found, need="the file", do="try later, or get it by hand"))
            if response.headers.get("Content-Range", "").split("-")[0] != f"bytes {have}":
                have = 0
            self._receive(response, have)

    def _receive(self, response: requests.Response, have: int) -> None:
        length = response.headers.get("Content-Length", "")
        total = have + int(length) if length.isdecimal() else None
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        console = Console(stderr=True)
        with Progress(*columns, TimeRemainingColumn(), console=console, disable=not self._progress) as progress:
            task = progress.add_task(self._part.stem, total=total, completed=have)
            with self._part.open("ab" if have else "wb") as file:
                for piece in response.iter_content(_PIECE):
                    file.write(piece)
                    progress.advance(task, len(piece))
        if total is not None and self._part.stat().st_size < total:
            raise requests.ConnectionError("the server closed the connection early")
