"""The samples that a command is given: image files, folders, packs and .npz files, read in blocks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeplda.data.dataset import Inputs
from deeplda.data.mapped_rows import MappedRows
from deeplda.data.table_formats import READABLE as TABLES
from deeplda.data.table_formats import table_format
from deeplda.errors import InputError
from deeplda.model import Model
from deeplda.printing import say
from deeplda.user_code import is_code


class Stored(NamedTuple):
    """A sample in a pack or in an array of an .npz file."""

    rows: Inputs
    place: int
    name: str

    def __str__(self) -> str:
        return self.name


# An image file, or a sample in another file.
Sample = Path | Stored


class Block(NamedTuple):
    """Some of the samples.

    Attributes:
        samples: all of them, in their order.
        inputs: those that could be read, as inputs of the model.
        errors: the messages for the others, by their place in `samples`.
    """

    samples: Sequence[Sample]
    inputs: NDArray[np.uint8] | NDArray[np.float32]
    errors: dict[int, str]

    @property
    def readable(self) -> list[Sample]:
        """The samples that could be read, in the order of `inputs`."""
        return [sample for place, sample in enumerate(self.samples) if place not in self.errors]


def listed_samples(paths: Sequence[Path], model: Model) -> list[Sample]:
    """Return the given image files, and all samples in the given folders, packs and .npz files.

    Raises InputError if a path does not exist, if there are no samples, or if they are not of the kind that the model
    takes.
    """
    shape = model.card.sample_shape
    found: list[Sample] = []
    ignored: list[str] = []
    for path in paths:
        if is_code(str(path)) and not path.exists():
            do = "np.savez(path, x_test=inputs)" if len(shape) == 3 else "np.savez(path, features=inputs)"
            raise InputError(f"{path} is code, need files of samples: write the inputs with {do}")
        if path.is_file() and path.suffix.lower() == ".npz":
            found += _in_arrays(path, shape)
        elif len(shape) != 3 and path.exists():
            what = f"the model takes feature vectors of {shape[0]} numbers, but {path} is not an .npz file"
            raise InputError(f"{what}: write them with np.savez(path, features=...)")
        else:
            images, notes = _images(path, shape)
            found += images
            ignored += notes
    if not found:
        from deeplda.data.images import READABLE

        what = f"there are no images in {', '.join(map(str, paths))}, need {READABLE} files"
        raise InputError("; ".join([what, *ignored]))
    for note in ignored:
        say(note, file=sys.stderr)
    return found


def the_table(files: Sequence[Path]) -> Path:
    """Return the only file. Raises InputError if there are several, or if it is not a table."""
    if len(files) > 1:
        raise InputError(f"{len(files)} files were given, need one table: run the command once for each of them")
    (path,) = files
    if not path.is_file() or table_format(path) is None:
        what = "is not a table" if path.exists() else "does not exist"
        raise InputError(f"{path} {what}: the model was trained on a table, so pass a {TABLES} file")
    return path


def sample_blocks(samples: Sequence[Sample], model: Model) -> Iterator[Block]:
    """Read the samples in blocks of the model's batch size."""
    for start in range(0, len(samples), model.batch_size):
        some = samples[start : start + model.batch_size]
        yield Block(some, *read_samples(some, model.card.sample_shape))


def read_samples(
    samples: Sequence[Sample], shape: tuple[int, ...]
) -> tuple[NDArray[np.uint8] | NDArray[np.float32], dict[int, str]]:
    """Return the samples that could be read, (n, *shape), and the errors of the others by their index."""
    if len(shape) != 3:
        rows = [np.asarray(sample.rows[sample.place]) for sample in samples if isinstance(sample, Stored)]
        return np.array(rows, dtype=np.float32).reshape(-1, *shape), {}

    from deeplda.data.images import read_each, resize_arrays

    size = (shape[1], shape[2])
    files = [sample for sample in samples if isinstance(sample, Path)]
    pixels, errors = read_each(files, channels=shape[0], image_size=size) if files else (np.empty(0, np.uint8), {})
    of_files = iter([errors.get(place, row) for place, row in enumerate(pixels)])
    each: list[NDArray[np.uint8] | InputError] = [
        next(of_files)
        if isinstance(sample, Path)
        else resize_arrays(np.asarray(sample.rows[sample.place], np.uint8)[None], size)[0]
        for sample in samples
    ]
    read = [row for row in each if not isinstance(row, InputError)]
    broken = {place: str(row) for place, row in enumerate(each) if isinstance(row, InputError)}
    return np.array(read, dtype=np.uint8).reshape(-1, *shape), broken


def _images(path: Path, shape: tuple[int, ...]) -> tuple[list[Sample], Sequence[str]]:
    """Return an image file, or all images in a folder or pack, and notes about ignored files."""
    from deeplda.data.listing import image_files
    from deeplda.data.pack import open_pack
    from deeplda.data.pack_index import is_pack

    if is_pack(path):
        pack = open_pack(path)
        _require_channels(path, pack.images, shape)
        names = [str(pack.path / file) for file in pack.files]
        return [Stored(pack.images, place, name) for place, name in enumerate(names)], []
    if path.is_dir():
        images, notes = image_files(path)
        return [*images], notes
    if not path.is_file():
        what = "is neither a file nor a folder" if path.exists() else "does not exist"
        raise InputError(f"{path} {what}: pass image files, folders or packs")
    return [path], []


def _in_arrays(path: Path, shape: tuple[int, ...]) -> list[Sample]:
    """Return the samples in an .npz file, named by their arrays and their places in them."""
    from deeplda.data.npz import read_npz_samples

    found: list[Sample] = []
    for name, rows in read_npz_samples(path).items():
        if rows.ndim != len(shape) + 1 or (rows.ndim == 2 and rows.shape[1:] != shape):
            what = f"{name} in {path} has samples of shape {rows.shape[1:]}, but the model needs {shape}"
            raise InputError(f"{what}: pass other samples")
        _require_channels(path, rows, shape)
        found += [Stored(rows, place, f"{path}:{name}[{place}]") for place in range(len(rows))]
    return found


def _require_channels(path: Path, images: Inputs | MappedRows, shape: tuple[int, ...]) -> None:
    if images.shape[1] != shape[0]:
        what = f"{path} has images of {images.shape[1]} channels, but the model needs {shape[0]}"
        raise InputError(f"{what}: pass the files instead")
