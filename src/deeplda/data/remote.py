"""Where the known sets come from, and their download."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deeplda.data.archive import unpack
from deeplda.data.checking import check_data
from deeplda.data.known import KNOWN, ON_DISK, data_folder, locate, nearest_known
from deeplda.errors import InputError, got


@dataclass(frozen=True)
class Remote:
    """Files of a set on a server, each with its checksum.

    Attributes:
        unpacks: for a set that comes as one archive, the names of the files it must hold.
        largest: no more bytes than this may the archive hold.
    """

    base_url: str
    checksums: Mapping[str, str]
    unpacks: frozenset[str] = frozenset()
    largest: int = 0


REMOTES = {
    "cifar10": Remote(
        "https://www.cs.toronto.edu/~kriz/",
        {"cifar-10-binary.tar.gz": "md5:c32a1d4ab5d03f1284b67883e8d87530"},
        frozenset({*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin", "batches.meta.txt"}),
        largest=200_000_000,
    ),
    "stl10": Remote(
        "http://ai.stanford.edu/~acoates/stl10/",
        {"stl10_binary.tar.gz": "md5:91f7769df0f17e558f3565bffb0c7dfb"},
        frozenset({"train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin", "class_names.txt"}),
        largest=3_300_000_000,
    ),
    "mnist": Remote(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        {
            "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "fashion-mnist": Remote(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        {
            "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
}


def fetch(name: str, data_dir: Path | None = None, *, base_url: str | None = None, progress: bool = True) -> Path:
    """Download a known set into the data folder, unless it is there and whole, and return the folder of its files.

    A download that was cut goes on where it stopped. Nothing unpacked in part is ever left in the set's folder.

    Args:
        base_url: another server with the same files, in place of the set's own.
        progress: show rate and remaining time on stderr.

    Raises:
        InputError: the name is not one to fetch, the server fails, a checksum is wrong (the file is then removed), or
            the disk cannot be written.
    """
    if name not in ON_DISK:
        do = "it comes with scikit-learn, nothing is to be fetched" if name in KNOWN else nearest_known(name)
        raise InputError(got(f"{name} is not a set to fetch", need=f"one of {', '.join(ON_DISK)}", do=do))
    if all(row.whole for row in check_data(name, data_dir)):
        return locate(name, data_dir)
    remote, root = REMOTES[name], data_folder(data_dir)
    folder = root / ON_DISK[name].folders[0]
    try:
        for file in remote.checksums:
            path = _download(remote, file, root if remote.unpacks else folder, base_url or remote.base_url, progress)
            if remote.unpacks:
                unpack(path, folder, remote.unpacks, remote.largest)
                path.unlink()
    except OSError as error:
        raise InputError(
            got(f"{root} cannot be written ({error.strerror})", need="a folder with room", do="pass another --data-dir")
        ) from None
    if broken := [row for row in check_data(name, data_dir) if not row.whole]:
        first = broken[0]
        raise InputError(
            f"{name} was fetched, but {first.file} is read before it and is not whole ({first.found}): remove it"
        )
    return folder


def _download(remote: Remote, file: str, folder: Path, base_url: str, progress: bool) -> Path:
    import pooch  # pooch, requests and rich are not needed to read data, so they are imported here

    from deeplda.data.download import ResumingDownloader

    folder.mkdir(parents=True, exist_ok=True)
    base_url = base_url.rstrip("/") + "/"
    keeper = pooch.create(path=folder, base_url=base_url, registry=dict(remote.checksums))
    try:
        with _quiet(pooch.get_logger()):
            return Path(keeper.fetch(file, downloader=ResumingDownloader(folder / f"{file}.part", progress=progress)))
    except InputError:
        raise
    except ValueError:  # pooch's way to say that the checksum differs; it has removed the file
        raise InputError(
            got(
                f"{base_url}{file} has another checksum and was removed",
                need=remote.checksums[file],
                do="fetch it again; if it stays so, the server has another file",
            )
        ) from None


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
