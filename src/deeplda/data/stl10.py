"""STL-10's labelled images in the binary layout: 5,000 + 8,000 colour images of 96 x 96."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deeplda.data.dataset import Labels, Part, Source
from deeplda.errors import InputError, got
from deeplda.io import read_small
from deeplda.memory import require_memory

FOLDERS = ("stl10_binary",)
CLASS_NAMES: tuple[str, ...] = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
VAL_SHARE = 0.2  # the paper's 1,000 of 5,000
_IMAGE_BYTES = 3 * 96 * 96


def files(folder: Path) -> list[Path]:
    """The four files that are read; the unlabelled images never are."""
    return [folder / name for name in ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin")]


def read(folder: Path) -> Source:
    """Train and test; validation is later 20 % of train (1,000 of the original 5,000)."""
    paths = files(folder)
    require_memory(sum(path.stat().st_size for path in paths), "stl10")
    train, test = _read_part(*paths[:2]), _read_part(*paths[2:])
    return Source("stl10", train, _class_names(folder), test=test, val_share=VAL_SHARE)


def describe(path: Path) -> str:
    """What a file holds, in words. Raises InputError where it is not whole."""
    if path.stem.endswith("_y"):
        return f"{len(_read_labels(path)):,} labels"
    return f"{_count_images(path):,} images of 3 x 96 x 96"


def _read_part(images_path: Path, labels_path: Path) -> Part:
    count, labels = _count_images(images_path), _read_labels(labels_path)
    if len(labels) != count:
        raise InputError(
            got(
                f"{labels_path} has {len(labels):,} labels",
                need=f"{count:,}, one for each image of {images_path.name}",
                do="fetch stl10 again",
            )
        )
    columns: NDArray[np.uint8] = np.fromfile(images_path, dtype=np.uint8).reshape(count, 3, 96, 96)
    # Each plane is stored column by column, so the two axes come out swapped.
    return Part(np.ascontiguousarray(columns.swapaxes(2, 3)), labels)


def _count_images(path: Path) -> int:
    size = path.stat().st_size
    if size == 0 or size % _IMAGE_BYTES:
        raise InputError(
            got(
                f"{path} has {size:,} bytes",
                need=f"a multiple of {_IMAGE_BYTES:,}, one image each",
                do="fetch it again",
            )
        )
    return size // _IMAGE_BYTES


def _read_labels(path: Path) -> Labels:
    require_memory(path.stat().st_size * np.dtype(np.int64).itemsize, str(path))
    labels = np.fromfile(path, dtype=np.uint8).astype(np.int64) - 1
    if (bad := labels[(labels < 0) | (labels > 9)]).size:
        raise InputError(got(f"{path} has the label {bad[0] + 1}", need="labels 1 to 10", do="fetch stl10 again"))
    return labels


def _class_names(folder: Path) -> tuple[str, ...]:
    path = folder / "class_names.txt"
    names = CLASS_NAMES
    if path.is_file():
        names = tuple(read_small(path).decode(errors="replace").split())
    if len(names) != 10:
        raise InputError(got(f"{path} has {len(names)} class names", need="10", do="fetch stl10 again"))
    return names
