"""The known data sets: their download addresses and the readers for their files.

To add a data set, add an entry to `KNOWN_SETS` at the end of this file. If its files have a new format, write a
subclass of `KnownSet` as well.
"""

from __future__ import annotations

import gzip
import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from deeplda.data.dataset import Labels, Part, Source, joined
from deeplda.errors import InputError
from deeplda.formatting import counted
from deeplda.io import read_small
from deeplda.memory import require_memory

_CHUNK = 2**22
_IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def read_digits() -> Source:
    """Read scikit-learn's digits: 1,797 greyscale images as uint8, N x 1 x 8 x 8, scaled from 0..16 to 0..255."""
    from sklearn.datasets import load_digits  # importing this takes over a second

    bunch = load_digits()
    images = np.round(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    return Source("digits", Part(images, bunch.target.astype(np.int64)), tuple("0123456789"))


@dataclass(frozen=True)
class KnownSet(ABC):
    """A data set stored below the data folder in a file format of its own.

    Attributes:
        folders: subfolders of the data folder to search; `fetch` writes to the first one.
        class_names: names to use if the folder has no `class_names_file`.
        val_share: fraction of the training set that becomes the validation set.
        url: the folder on the server.
        checksums: the checksum of each file in that folder, as "md5:...".
        unpacked_bytes: if the only file is a tar.gz archive, the largest size it may unpack to; otherwise 0.
    """

    name: str
    folders: tuple[str, ...]
    class_names: tuple[str, ...]
    val_share: float
    url: str
    checksums: Mapping[str, str]
    unpacked_bytes: int = 0
    class_names_file: str | None = None

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
            raise _damaged(file, f"has {size:,} bytes", f"a positive multiple of {record:,}")
        return size // record

    def _labels(self, file: Path, stored: NDArray[np.uint8], first: int = 0, images: int | None = None) -> Labels:
        """Convert stored labels, which count from `first`, to labels from 0, and check their range and number."""
        last = first + len(self.class_names) - 1
        if images is not None and len(stored) != images:
            raise _damaged(file, f"has {len(stored):,} labels", f"{images:,} labels, one for each image")
        if (wrong := stored[(stored < first) | (stored > last)]).size:
            raise _damaged(file, f"has the label {wrong[0]}", f"labels {first} to {last}")
        return stored.astype(np.int64) - first

    def _source(self, folder: Path, train: Part, test: Part) -> Source:
        names = self.class_names
        if self.class_names_file is not None and (file := folder / self.class_names_file).is_file():
            names = tuple(read_small(file).decode(errors="replace").split())
            if len(names) != len(self.class_names):
                raise _damaged(file, f"has {len(names)} class names", str(len(self.class_names)))
        return Source(self.name, train, names, test=test, val_share=self.val_share)


class Cifar10(KnownSet):
    """CIFAR-10 in its binary layout.

    It has 50,000 + 10,000 colour images of 32 x 32 pixels, each preceded by a one-byte label.
    """

    def files(self, folder: Path) -> list[Path]:
        return [folder / f"{stem}.bin" for stem in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")]

    def record_bytes(self, file: Path) -> int:  # noqa: ARG002 (the base class has it)
        return 1 + 3 * 32 * 32

    def read(self, folder: Path) -> Source:
        files = self.files(folder)
        require_memory(sum(file.stat().st_size for file in files), self.name)
        *train, test = map(self._read_batch, files)
        return self._source(folder, joined(*train), test)

    def describe(self, file: Path) -> str:
        return f"{counted(len(self._read_batch(file)), 'image')} of 3 x 32 x 32"

    def unreadable_layout(self, root: Path) -> str | None:
        for folder in (root / "cifar-10-batches-py", root):
            if (folder / "data_batch_1").is_file():
                return f"{folder} contains CIFAR-10 in its Python layout (pickle files, which can run code)"
        return None

    def _read_batch(self, file: Path) -> Part:
        count = self._count_records(file)
        require_memory(count * self.record_bytes(file), str(file))
        records = np.fromfile(file, dtype=np.uint8).reshape(count, -1)
        images = np.ascontiguousarray(records[:, 1:]).reshape(-1, 3, 32, 32)
        return Part(images, self._labels(file, records[:, 0]))


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
            raise _damaged(test_images, f"has images of shape {test.inputs.shape[1:]}", need)
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
                raise _damaged(file, "has the wrong header", f"the magic number {0x800 + dims:#010x}")
            shape = tuple(map(int, header[1:]))
            size = math.prod(shape)
            require_memory(size, str(file))
            content = _read_at_most(stream, size + 1)
    except InputError:
        raise
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise _damaged(file, f"cannot be read ({error})", "an intact idx file") from None
    if len(content) != size or size == 0:
        found = "is empty" if size == 0 else f"has {'more' if len(content) > size else 'fewer'} bytes than declared"
        raise _damaged(file, found, f"{' x '.join(map(str, shape))} bytes")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def _read_at_most(stream: IO[bytes], size: int) -> bytearray:
    """Read up to `size` bytes in chunks, so that memory grows with the content and not with the declared size."""
    content = bytearray()
    while len(content) < size and (chunk := stream.read(min(_CHUNK, size - len(content)))):
        content += chunk
    return content


def _damaged(file: Path, found: str, need: str) -> InputError:
    return InputError(f"{file} {found}", need=need, do="fetch the data set again")


KNOWN_SETS: dict[str, KnownSet] = {
    "cifar10": Cifar10(
        "cifar10",
        folders=("cifar-10-batches-bin",),
        class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        class_names_file="batches.meta.txt",
        val_share=0.04,  # the paper uses 2,000 of 50,000
        url="https://www.cs.toronto.edu/~kriz/",
        checksums={"cifar-10-binary.tar.gz": "md5:c32a1d4ab5d03f1284b67883e8d87530"},
        unpacked_bytes=200_000_000,
    ),
    "stl10": Stl10(
        "stl10",
        folders=("stl10_binary",),
        class_names=("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"),
        class_names_file="class_names.txt",
        val_share=0.2,  # the paper uses 1,000 of 5,000
        url="http://ai.stanford.edu/~acoates/stl10/",
        checksums={"stl10_binary.tar.gz": "md5:91f7769df0f17e558f3565bffb0c7dfb"},
        unpacked_bytes=3_300_000_000,
    ),
    "mnist": Mnist(
        "mnist",
        folders=("mnist", "MNIST/raw"),
        class_names=tuple("0123456789"),
        val_share=0.1,
        url="https://ossci-datasets.s3.amazonaws.com/mnist/",
        checksums={
            "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "fashion-mnist": Mnist(
        "fashion-mnist",
        folders=("fashion-mnist", "FashionMNIST/raw"),
        class_names=(
            *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
            *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
        val_share=0.1,
        url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        checksums={
            "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
}
