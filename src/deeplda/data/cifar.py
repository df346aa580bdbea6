"""CIFAR-10 and CIFAR-100 in their binary layouts, CIFAR-100 as an .npz file, and the human labels of CIFAR-10N."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from deeplda.data.dataset import Labels, Part, Source, joined
from deeplda.data.layouts import KnownSet
from deeplda.data.npz import read_npz
from deeplda.errors import InputError
from deeplda.formatting import counted, percent
from deeplda.io import read_small
from deeplda.memory import require_memory

_SHAPE = (3, 32, 32)
_NPZ = "cifar100.npz"
_LABELS, _CLEAN = "cifar10n_labels.npz", "clean_label"
# Six arrays of 50,000 labels, stored as int64 without compression, take 2.4 MB.
_LARGEST_LABELS = 4 * 2**20


class Cifar(KnownSet):
    """A binary layout of records: label bytes, of which the last one is the class, and a 3 x 32 x 32 colour image.

    Attributes:
        batches: the names of the files; the last one is the test set.
        python_layout: the title of the data set, the folder of its Python layout, and files that this layout has.
    """

    batches: ClassVar[tuple[str, ...]]
    label_bytes: ClassVar[int]
    python_layout: ClassVar[tuple[str, str, tuple[str, ...]]]

    def files(self, folder: Path) -> list[Path]:
        return self._batch_files(folder)

    def record_bytes(self, file: Path) -> int:  # noqa: ARG002 (subclasses need it)
        return self.label_bytes + 3 * 32 * 32

    def read(self, folder: Path) -> Source:
        files = self._batch_files(folder)
        require_memory(sum(file.stat().st_size for file in files), self.name)
        *train, test = map(self._read_batch, files)
        return self._source(folder, joined(*train), test)

    def describe(self, file: Path) -> str:
        return f"{counted(len(self._read_batch(file)), 'image')} of 3 x 32 x 32"

    def unreadable_layout(self, root: Path) -> str | None:
        title, subfolder, names = self.python_layout
        for folder in (root / subfolder, root):
            if all((folder / name).is_file() for name in names):
                return f"{folder} contains {title} in its Python layout (pickle files, which can run code)"
        return None

    def archive_members(self) -> frozenset[str]:
        return frozenset(filter(None, (*self.batches, self.class_names_file)))

    def _batch_files(self, folder: Path) -> list[Path]:
        return [folder / name for name in self.batches]

    def _read_batch(self, file: Path) -> Part:
        count = self._count_records(file)
        require_memory(count * self.record_bytes(file), str(file))
        records = np.fromfile(file, dtype=np.uint8).reshape(count, -1)
        images = np.ascontiguousarray(records[:, self.label_bytes :]).reshape(-1, *_SHAPE)
        return Part(images, self._labels(file, records[:, self.label_bytes - 1]))


class Cifar10(Cifar):
    """CIFAR-10 in its binary layout: 50,000 + 10,000 images of 10 classes."""

    batches = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
    label_bytes = 1
    python_layout = ("CIFAR-10", "cifar-10-batches-py", ("data_batch_1",))


class Cifar100(Cifar):
    """CIFAR-100 in its binary layout or as an .npz file: 50,000 + 10,000 images of 100 classes.

    The binary layout has a byte for one of 20 superclasses before the class, which is ignored. If the folder contains
    cifar100.npz, in the form that `read_npz` reads, that file is used instead.
    """

    batches = ("train.bin", "test.bin")
    label_bytes = 2
    python_layout = ("CIFAR-100", "cifar-100-python", ("meta", "train"))

    def files(self, folder: Path) -> list[Path]:
        return [folder / _NPZ] if (folder / _NPZ).is_file() else super().files(folder)

    def record_bytes(self, file: Path) -> int:
        return 1 if file.name == _NPZ else super().record_bytes(file)

    def read(self, folder: Path) -> Source:
        return self._read_npz(folder / _NPZ) if (folder / _NPZ).is_file() else super().read(folder)

    def describe(self, file: Path) -> str:
        if file.name != _NPZ:
            return super().describe(file)
        source = self._read_npz(file)
        return f"{len(source.train):,} + {counted(len(source.test or ()), 'image')} of 3 x 32 x 32"

    def _read_npz(self, file: Path) -> Source:
        source = read_npz(file)
        shape, classes = source.train.inputs.shape[1:], len(source.class_names)
        if shape != _SHAPE or classes != len(self.class_names) or source.test is None:
            test = "no test set" if source.test is None else "a test set"
            found = f"{file} has samples of shape {shape}, {classes} classes and {test}"
            need = f"shape {_SHAPE}, {len(self.class_names)} classes and a test set"
            raise InputError(found, need=need, do="write the file again, or remove it and fetch the data set")
        return replace(source, name=self.name, val_share=self.val_share)


@dataclass(frozen=True)
class Cifar10N(Cifar10):
    """CIFAR-10 with labels that people gave to the 50,000 training images (Wei et al. 2022), many of them wrong.

    The labels are in cifar10n_labels.npz in the data folder, in the order of CIFAR-10's own files. The test set keeps
    its clean labels. Source.strata are the clean labels, so the validation set has the same images as that of CIFAR-10.

    Attributes:
        key: the name of the array with the labels.
    """

    key: str = ""

    @classmethod
    def of(cls, images: Cifar10, name: str, key: str) -> Cifar10N:
        """Return CIFAR-10 with the labels stored under `key`."""
        return cls(**{**vars(images), "name": name, "images_of": images.name, "key": key})

    def files(self, folder: Path) -> list[Path]:
        return [*self._batch_files(folder), self._label_file(folder)]

    def record_bytes(self, file: Path) -> int:
        return 1 if file.name == _LABELS else super().record_bytes(file)

    def read(self, folder: Path) -> Source:
        source, file = super().read(folder), self._label_file(folder)
        clean, noisy = self._read_labels(file)
        if not np.array_equal(clean, source.train.labels):
            found = "has other clean labels than CIFAR-10"
            raise _bad_labels(file, found, "one label per training image, in the order of CIFAR-10's files")
        return replace(source, train=replace(source.train, labels=noisy), strata=clean)

    def describe(self, file: Path) -> str:
        if file.name != _LABELS:
            return super().describe(file)
        clean, noisy = self._read_labels(file)
        return f"{counted(len(noisy), 'label')}, {percent(np.mean(clean != noisy))} of which differ from the clean ones"

    def _label_file(self, folder: Path) -> Path:
        """Return the path of the label file, which is in the data folder: `folder` itself or its parent."""
        here = folder / _LABELS
        return here if here.is_file() or folder.name not in self.folders else folder.parent / _LABELS

    def _read_labels(self, file: Path) -> tuple[Labels, Labels]:
        """Return the clean labels and the human labels."""
        clean, noisy = _read_arrays(file, (_CLEAN, self.key))
        last = len(self.class_names) - 1
        for labels in (clean, noisy):
            if (wrong := labels[(labels < 0) | (labels > last)]).size:
                raise _bad_labels(file, f"has the label {wrong[0]}", f"labels 0 to {last}")
        if len(clean) != len(noisy):
            found = f"has {len(clean):,} labels in {_CLEAN} and {len(noisy):,} in {self.key}"
            raise _bad_labels(file, found, "as many labels in each")
        return clean.astype(np.int64), noisy.astype(np.int64)


def _read_arrays(file: Path, names: tuple[str, ...]) -> list[NDArray[Any]]:
    """Read one-dimensional integer arrays from an untrusted .npz file of at most `_LARGEST_LABELS` bytes.

    No more than this is unpacked, nothing is allocated by a declared size, and nothing is unpickled. Raises InputError
    if an array is missing, broken or of another kind, and OSError if the file is too large or not a regular file.
    """
    content = read_small(file, _LARGEST_LABELS)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return [_read_array(archive, name) for name in names]
    except Exception as error:  # zipfile, zlib and numpy raise many types of error for a broken file
        reason = error.args[0] if isinstance(error, KeyError) else error
        need = f"integer arrays of shape (N,) named {' and '.join(names)}"
        raise _bad_labels(file, f"cannot be read ({reason})", need) from None


def _read_array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    with archive.open(f"{name}.npy") as member:
        content = member.read(_LARGEST_LABELS)
    stream = io.BytesIO(content)
    version = npy.read_magic(stream)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read_header(stream)
    start = stream.tell()
    size = len(content) - start
    if dtype.kind not in "iu" or len(shape) != 1 or not 0 < size == shape[0] * dtype.itemsize:
        raise ValueError(f"{name} is declared as {dtype} {shape} and has {size:,} bytes")
    return np.frombuffer(content, dtype, offset=start)


def _bad_labels(file: Path, found: str, need: str) -> InputError:
    return InputError(f"{file} {found}", need=need, do="replace the file")
