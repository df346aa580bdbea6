"""MNIST and Fashion-MNIST: idx files, packed with gzip or not; 60,000 + 10,000 grey images of 28 x 28."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from deeplda.data.dataset import Part, Source
from deeplda.errors import InputError, got
from deeplda.memory import require_memory

FOLDERS = {"mnist": ("mnist", "MNIST/raw"), "fashion-mnist": ("fashion-mnist", "FashionMNIST/raw")}
CLASS_NAMES = {
    "mnist": tuple("0123456789"),
    "fashion-mnist": (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
}
VAL_SHARE = 0.1
_PIECE = 2**22
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def files(folder: Path) -> list[Path]:
    """The four files under the names they have here, `.gz` where there is none."""
    return [next(filter(Path.is_file, _variants(folder, name)), folder / f"{name}.gz") for name in FILES]


def read(name: str, folder: Path) -> Source:
    """Train and test of "mnist" or "fashion-mnist"; validation is later 10 % of train."""
    train_images, train_labels, test_images, test_labels = files(folder)
    train, test = _read_part(train_images, train_labels), _read_part(test_images, test_labels)
    if train.inputs.shape[1:] != test.inputs.shape[1:]:
        raise InputError(
            got(
                f"{test_images} has images of shape {test.inputs.shape[1:]}",
                need=f"{train.inputs.shape[1:]} as in {train_images.name}",
                do=f"fetch {name} again",
            )
        )
    return Source(name, train, CLASS_NAMES[name], test=test, val_share=VAL_SHARE)


def describe(path: Path) -> str:
    """What a file holds, in words. Raises InputError where it is not whole."""
    array = read_idx(path, 3 if "images" in path.name else 1)
    return (
        f"{len(array):,} images of {array.shape[1]} x {array.shape[2]}" if array.ndim == 3 else f"{len(array):,} labels"
    )


def read_idx(path: Path, dims: int) -> NDArray[np.uint8]:
    """The array of an idx file of bytes with `dims` dimensions.

    No more than the size the header declares is ever unpacked. Raises InputError where magic number or size is wrong.
    """
    try:
        with cast(IO[bytes], gzip.open(path) if path.suffix == ".gz" else path.open("rb")) as file:
            header = np.frombuffer(file.read(4 + 4 * dims), dtype=">u4")
            if len(header) != 1 + dims or header[0] != 0x800 + dims:
                raise InputError(_broken(path, "has another header", f"the magic number {0x800 + dims:#010x}"))
            shape = tuple(map(int, header[1:]))
            size = math.prod(shape)
            require_memory(size, str(path))
            content = _read_up_to(file, size + 1)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(_broken(path, f"cannot be read ({error})", "a whole idx file")) from None
    if len(content) != size or size == 0:
        found = "is empty" if size == 0 else f"has {'more' if len(content) > size else 'less'} than its header says"
        raise InputError(_broken(path, found, f"{' x '.join(map(str, shape))} bytes"))
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def _read_up_to(file: IO[bytes], size: int) -> bytearray:
    """At most so many bytes, in pieces: memory is taken for what is there, not for what a header declares."""
    content = bytearray()
    while len(content) < size and (piece := file.read(min(_PIECE, size - len(content)))):
        content += piece
    return content


def _read_part(images_path: Path, labels_path: Path) -> Part:
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1).astype(np.int64)
    if len(images) != len(labels):
        raise InputError(_broken(labels_path, f"has {len(labels):,} labels", f"{len(images):,}, one for each image"))
    if labels.max() > 9:
        raise InputError(_broken(labels_path, f"has the label {labels.max()}", "labels 0 to 9"))
    return Part(images[:, None], labels)


def _variants(folder: Path, name: str) -> list[Path]:
    dotted = name.replace("-idx", ".idx")
    return [folder / variant for variant in (name, f"{name}.gz", dotted, f"{dotted}.gz")]


def _broken(path: Path, found: str, need: str) -> str:
    return got(f"{path} {found}", need=need, do="fetch it again")
