"""The file layouts of the known data sets: the base class, and the readers for STL-10 and for MNIST's idx files."""

from __future__ import annotations

import gzip
import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from deeplda.data.dataset import Labels, Part, Source
from deeplda.errors import InputError
from deeplda.formatting import counted
from deeplda.io import read_small
from deeplda.memory import require_memory

_CHUNK = 2**22
_IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@dataclass(frozen=True)
class RemoteFile:
    """The exact size in bytes and the SHA-256 checksum, in hexadecimal, of a file on a server."""

    size: int
    sha256: str


@dataclass(frozen=True)
class KnownSet(ABC):
    """A data set stored below the data folder in a file format of its own.

    Attributes:
        folders: subfolders of the data folder to search; `fetch` writes to the first one.
        class_names: names to use if the folder has no `class_names_file`.
        val_share: fraction of the training set that becomes the validation set.
        url: the folder on the server.
        downloads: the files to download from that folder, by name.
        unpacked_bytes: if the only file is a tar.gz archive, the largest size it may unpack to; otherwise 0.
        images_of: the known set whose images these are; `fetch` downloads that set instead.
    """

    name: str
    folders: tuple[str, ...]
    class_names: tuple[str, ...]
    val_share: float
    url: str
    downloads: Mapping[str, RemoteFile]
    unpacked_bytes: int = 0
    class_names_file: str | None = None
    images_of: str | None = None

    @abstractmethod
    def files(self, folder: Path) -> list[Path]:
        """Return the files to read, whether or not they exist, without the optional `class_names_file`."""

    @abstractmethod
    def read(self, folder: Path) -> Source:
        """Read all files. Raises InputError if a file is damaged or the data does not fit in memory."""

    @abstractmethod
    def describe(self, file: Path) -> str:
        """Read one file and describe its contents, such as "10,000 labels". Raises InputError if it is damaged."""

    def record_bytes(self, file: Path) -> int:  # noqa: ARG002 (subclasses need it)
        """Return the size of one record in a file; the size of an intact file is a positive multiple of it."""
        return 1

    def unreadable_layout(self, root: Path) -> str | None:  # noqa: ARG002 (subclasses need it)
        """Describe any files of this set below `root` whose layout we do not read; return None if there are none."""
        return None

    def looks_complete(self, folder: Path) -> bool:
        """Return whether every file exists with a plausible size. No file is opened."""
        return all(file.is_file() and self._has_plausible_size(file) for file in self.files(folder))

    def archive_members(self) -> frozenset[str]:
        """Return the names of the files that the downloaded archive must contain."""
        names = {file.name for file in self.files(Path())}
        return frozenset(names if self.class_names_file is None else {*names, self.class_names_file})

    def _has_plausible_size(self, file: Path) -> bool:
        size = file.stat().st_size
        return size > 0 and size % self.record_bytes(file) == 0

    def _count_records(self, file: Path) -> int:
        size, record = file.stat().st_size, self.record_bytes(file)
        if not self._has_plausible_size(file):
            raise damaged(file, f"has {size:,} bytes", f"a positive multiple of {record:,}")
        return size // record

    def _labels(self, file: Path, stored: NDArray[Any], first: int = 0, images: int | None = None) -> Labels:
        """Convert stored labels, which count from `first`, to labels from 0, and check their range and number."""
        last = first + len(self.class_names) - 1
        if images is not None and len(stored) != images:
            raise damaged(file, f"has {len(stored):,} labels", f"{images:,} labels, one for each image")
        if (wrong := stored[(stored < first) | (stored > last)]).size:
            raise damaged(file, f"has the label {wrong[0]}", f"labels {first} to {last}")
        return stored.astype(np.int64) - first

    def _source(self, folder: Path, train: Part, test: Part) -> Source:
        names = self.class_names
        if self.class_names_file is not None and (file := folder / self.class_names_file).is_file():
            names = tuple(read_small(file).decode(errors="replace").split())
            if len(names) != len(self.class_names):
                raise damaged(file, f"has {len(names)} class names", str(len(self.class_names)))
        return Source(self.name, train, names, test=test, val_share=self.val_share)


class Stl10(KnownSet):
    """The labelled images of STL-10 in its binary layout: 5,000 + 8,000 colour images of 96 x 96 pixels."""

    def files(self, folder: Path) -> list[Path]:
        return [folder / name for name in ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin")]

    def record_bytes(self, file: Path) -> int:
        return 1 if file.stem.endswith("_y") else 3 * 96 * 96

    def read(self, folder: Path) -> Source:
        files = self.files(folder)
        require_memory(sum(file.stat().st_size for file in files), self.name)
        return self._source(folder, self._read_part(*files[:2]), self._read_part(*files[2:]))

    def describe(self, file: Path) -> str:
        if file.stem.endswith("_y"):
            return counted(len(self._read_labels(file)), "label")
        return f"{counted(self._count_records(file), 'image')} of 3 x 96 x 96"

    def _read_part(self, images_file: Path, labels_file: Path) -> Part:
        count = self._count_records(images_file)
        labels = self._read_labels(labels_file, count)
        columns: NDArray[np.uint8] = np.fromfile(images_file, dtype=np.uint8).reshape(count, 3, 96, 96)
        # Each plane is stored column by column, so swap the last two axes.
        return Part(np.ascontiguousarray(columns.swapaxes(2, 3)), labels)

    def _read_labels(self, file: Path, images: int | None = None) -> Labels:
        require_memory(self._count_records(file) * np.dtype(np.int64).itemsize, str(file))
        return self._labels(file, np.fromfile(file, dtype=np.uint8), first=1, images=images)


class Mnist(KnownSet):
    """MNIST and Fashion-MNIST: idx files, gzipped or not, with 60,000 + 10,000 greyscale images of 28 x 28 pixels."""

    def files(self, folder: Path) -> list[Path]:
        return [self._existing(folder, name) for name in _IDX_FILES]

    def read(self, folder: Path) -> Source:
        train_images, train_labels, test_images, test_labels = self.files(folder)
        train, test = self._read_part(train_images, train_labels), self._read_part(test_images, test_labels)
        if train.inputs.shape[1:] != test.inputs.shape[1:]:
            need = f"{train.inputs.shape[1:]}, as in {train_images.name}"
            raise damaged(test_images, f"has images of shape {test.inputs.shape[1:]}", need)
        return self._source(folder, train, test)

    def describe(self, file: Path) -> str:
        if "labels" in file.name:
            return counted(len(read_idx(file, 1)), "label")
        count, height, width = read_idx(file, 3).shape
        return f"{counted(count, 'image')} of {height} x {width}"

    def _existing(self, folder: Path, name: str) -> Path:
        """Return the variant of the file that exists in the folder, or else the one that `fetch` downloads."""
        dotted = name.replace("-idx", ".idx")
        variants = [folder / variant for variant in (name, f"{name}.gz", dotted, f"{dotted}.gz")]
        return next(filter(Path.is_file, variants), folder / f"{name}.gz")

    def _read_part(self, images_file: Path, labels_file: Path) -> Part:
        images = read_idx(images_file, 3)
        return Part(images[:, None], self._labels(labels_file, read_idx(labels_file, 1), images=len(images)))


def read_idx(file: Path, dims: int) -> NDArray[np.uint8]:
    """Read an idx file of bytes with `dims` dimensions, gzipped if its name ends in .gz.

    At most one byte more than the header declares is unpacked. Raises InputError if the file cannot be read, or if its
    header or size is wrong.
    """
    try:
        with cast(IO[bytes], gzip.open(file) if file.suffix == ".gz" else file.open("rb")) as stream:
            header = np.frombuffer(stream.read(4 + 4 * dims), dtype=">u4")
            if len(header) != 1 + dims or header[0] != 0x800 + dims:
                raise damaged(file, "has the wrong header", f"the magic number {0x800 + dims:#010x}")
            shape = tuple(map(int, header[1:]))
            size = math.prod(shape)
            require_memory(size, str(file))
            content = _read_at_most(stream, size + 1)
    except InputError:
        raise
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise damaged(file, f"cannot be read ({error})", "an intact idx file") from None
    if len(content) != size or size == 0:
        found = "is empty" if size == 0 else f"has {'more' if len(content) > size else 'fewer'} bytes than declared"
        raise damaged(file, found, f"{' x '.join(map(str, shape))} bytes")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def _read_at_most(stream: IO[bytes], size: int) -> bytearray:
    """Read up to `size` bytes in chunks, so that memory grows with the content and not with the declared size."""
    content = bytearray()
    while len(content) < size and (chunk := stream.read(min(_CHUNK, size - len(content)))):
        content += chunk
    return content


def damaged(file: Path, found: str, need: str) -> InputError:
    """Return the error for a file that does not have the contents that the data set has."""
    return InputError(f"{file} {found}", need=need, do="fetch the data set again")
