"""CIFAR-10 in its binary and in its Python layout: 50,000 + 10,000 colour images of 32 x 32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deeplda.data.dataset import Labels, Part, Source
from deeplda.data.inert_pickle import PickledArray, load_inert
from deeplda.errors import InputError, got
from deeplda.io import read_small
from deeplda.memory import require_memory

FOLDERS = ("cifar-10-batches-bin", "cifar-10-batches-py")
CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
VAL_SHARE = 0.04  # the paper's 2,000 of 50,000
_STEMS = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
_PIXELS = 3 * 32 * 32


def files(folder: Path) -> list[Path]:
    """The six batches, in whichever layout the folder has (binary where it has neither)."""
    binary = [folder / f"{stem}.bin" for stem in _STEMS]
    pickled = [folder / stem for stem in _STEMS]
    return pickled if any(map(Path.is_file, pickled)) and not any(map(Path.is_file, binary)) else binary


def read(folder: Path) -> Source:
    """Train and test; validation is later 4 % of train (2,000 of the original 50,000)."""
    paths = files(folder)
    require_memory(sum(path.stat().st_size for path in paths), "cifar10")
    batches = [read_batch(path) for path in paths]
    train = Part(
        np.concatenate([images for images, _ in batches[:-1]]), np.concatenate([labels for _, labels in batches[:-1]])
    )
    return Source("cifar10", train, _class_names(folder), test=Part(*batches[-1]), val_share=VAL_SHARE)


def read_batch(path: Path) -> tuple[NDArray[np.uint8], Labels]:
    """Images, N x 3 x 32 x 32, and labels of one batch file. Raises InputError where it is not whole."""
    images, labels = _read_binary(path) if path.suffix == ".bin" else _read_pickled(path)
    if (bad := labels[(labels < 0) | (labels > 9)]).size:
        raise InputError(got(f"{path} has the label {bad[0]}", need="labels 0 to 9", do="fetch cifar10 again"))
    return images, labels


def describe(path: Path) -> str:
    """What a batch file holds, in words; raises as `read_batch`."""
    return f"{len(read_batch(path)[1]):,} images of 3 x 32 x 32"


def _read_binary(path: Path) -> tuple[NDArray[np.uint8], Labels]:
    size, record = path.stat().st_size, 1 + _PIXELS
    if size == 0 or size % record:
        raise InputError(
            got(
                f"{path} has {size:,} bytes", need=f"a multiple of {record:,}, one record an image", do="fetch it again"
            )
        )
    require_memory(size, str(path))
    records = np.fromfile(path, dtype=np.uint8).reshape(-1, record)
    return np.ascontiguousarray(records[:, 1:]).reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def _read_pickled(path: Path) -> tuple[NDArray[np.uint8], Labels]:
    batch = load_inert(path)
    data, labels = (batch.get("data"), batch.get("labels")) if isinstance(batch, dict) else (None, None)
    images = data.as_uint8() if isinstance(data, PickledArray) else None
    if (
        images is None
        or not isinstance(labels, list)
        or not all(isinstance(label, int) and abs(label) < 2**31 for label in labels)
        or images.shape != (len(labels), _PIXELS)
        or not labels
    ):
        raise InputError(
            got(
                f"{path} has no images and labels that match",
                need=f"a batch of CIFAR-10: 'data', uint8 N x {_PIXELS:,}, and 'labels', a list of N integers",
                do="fetch cifar10 again",
            )
        )
    return images.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


def _class_names(folder: Path) -> tuple[str, ...]:
    names: object = CLASS_NAMES
    if (text := folder / "batches.meta.txt").is_file():
        names = read_small(text).decode(errors="replace").split()
    elif (pickled := folder / "batches.meta").is_file():
        meta = load_inert(pickled)
        names = meta.get("label_names") if isinstance(meta, dict) else None
    if not isinstance(names, list | tuple) or len(names) != 10 or not all(isinstance(name, str) for name in names):
        raise InputError(got(f"batches.meta in {folder} has no ten class names", need="ten", do="fetch cifar10 again"))
    return tuple(names)
