"""Find a data source by name or path, and load it."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from deeplda.data.dataset import (
    Data,
    ImageOutline,
    Part,
    Source,
    check_class_names,
    complete,
    joined,
    missing_parts,
)
from deeplda.data.folder_options import FolderOptions, FolderSplit
from deeplda.data.known_sets import KNOWN_SETS, read_digits
from deeplda.data.mapped_rows import MappedRows
from deeplda.data.npz import read_npz
from deeplda.data.pack_index import is_pack
from deeplda.data.stored_split import StoredSplit
from deeplda.data.table_formats import READABLE, table_format
from deeplda.errors import InputError
from deeplda.extras import require
from deeplda.formatting import counted
from deeplda.io import expanded
from deeplda.memory import require_memory
from deeplda.user_code import is_code

if TYPE_CHECKING:
    from deeplda.data.table_encoding import TableEncoder

# Modules that need Pillow or pyarrow are imported where they are used: digits, known sets and .npz files need neither.

KNOWN = ("digits", *KNOWN_SETS)


class Place(NamedTuple):
    """Where a source is: a known name, the user's function as "module.path:name", or the path of a file or folder."""

    kind: Literal["known", "code", "table", "npz", "pack", "folder"]
    name: str

    @property
    def path(self) -> Path:
        """The path of a file or folder."""
        return Path(self.name)


def load_data(
    source: str | Path = "digits",
    *,
    data_dir: Path | None = None,
    image_size: int | None = None,
    split_seed: int = 0,
    skip_unreadable: bool = False,
    strict: bool = False,
    group_by: str | None = None,
    target: str | None = None,
    split: FolderSplit = "content",
    exact: bool = False,
) -> Data:
    """Read a source and return its training, validation and test sets.

    Args:
        source: a known name (`KNOWN`), a folder of images, a pack, a table (a .csv, .tsv, .parquet, .feather or .arrow
            file), an .npz file, or a function of your own as "module.path:name", which is imported and called
            (`read_own`). A known name takes precedence over a folder of the same name; write ./digits for the
            folder. The images of a pack stay in its file.
        data_dir: the folder that contains the known data sets. The default is the environment variable DEEPLDA_DATA
            or, if it is not set, the user's cache folder.
        image_size: resize every image to this height and width.
        split_seed: seed for the stratified split that creates missing sets. If validation and test sets are both
            missing, the samples are split 70/15/15. If only the validation set is missing, it is taken from the
            training set (CIFAR-10 and CIFAR-10N 4 %, STL-10 20 %, CIFAR-100, MNIST and Fashion-MNIST 10 %, others
            15 %). If only the test set is missing, 15 % of the training set becomes the test set. CIFAR-10N is
            stratified by the clean labels, so its sets contain the same images as those of CIFAR-10. A folder of
            images or a pack is split by the content of the files, so that images added later do not move others.
        skip_unreadable: skip any number of broken files in a folder; by default, at most 5 % of a class. They are
            listed in `Data.left_out`.
        strict: raise an error at the first broken file instead.
        group_by: for a folder, a regular expression that is searched in the path of each file within its class folder.
            Images for which its first capture group (or the whole match) is the same, such as those of one patient,
            stay in one set. For a table, the name of a column; rows with the same value stay in one set.
        target: for a table, the column with the classes; by default, the last column.
        split: for a folder, the split that a run stored, which its images keep, `Grown` for a new run that starts from
            such a run, or "seed" for the random split of earlier versions.
        exact: raise an error if the folder no longer has the images of a stored split, and ignore any others.

    Raises:
        InputError: if the source does not exist, is broken, or does not fit in memory.
    """
    if image_size is not None and image_size < 1:
        raise InputError(f"image_size is {image_size}, need at least 1 pixel")
    if split_seed < 0:
        raise InputError(f"split_seed is {split_seed}, need at least 0")
    options = FolderOptions(
        image_size, skip_unreadable, strict, seed=split_seed, group_by=group_by, split=split, exact=exact
    )
    with _reading(source):
        found = read_source(source, data_dir, options, target)
    check_class_names(found.name, found.class_names)
    if image_size is not None:
        found = _resized(found, (image_size, image_size), do="leave out --image-size")
    return complete(found, split_seed)


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labelled samples to evaluate a model on, with labels in the order of its classes.

    Attributes:
        split: "test" if the source has a test set of its own, which the samples are, and otherwise "all".
        notes: sentences for the user about ignored files and classes.
    """

    part: Part
    split: str
    notes: tuple[str, ...]


def load_labelled(
    source: str | Path,
    *,
    class_names: tuple[str, ...],
    sample_shape: tuple[int, ...],
    table: TableEncoder | None = None,
    data_dir: Path | None = None,
) -> Labelled:
    """Read samples to evaluate a model of these classes and this sample shape on.

    These are the test set of a source or, if it has none, all of its samples. Images are resized to the shape that the
    model needs; files in a folder are also converted to its number of channels. The rows of a table are encoded by
    `table`. Samples of other classes are left out.

    Raises InputError if the source does not exist, is broken or does not fit in memory, or if it has no sample of a
    known class and the right shape.
    """
    with _reading(source):
        found, split = _read_labelled(source, data_dir, sample_shape, table)
    if len(sample_shape) == 3 and found.train.inputs.ndim == 4:
        found = _resized(found, (sample_shape[1], sample_shape[2]), do="")
    if found.train.inputs.shape[1:] != sample_shape:
        what = f"{source} has samples of shape {found.train.inputs.shape[1:]}"
        raise InputError(f"{what}, but the model needs {sample_shape}: choose other data")
    number = {name: label for label, name in enumerate(class_names)}
    labels = np.array([number.get(name, -1) for name in found.class_names], dtype=np.int64)[found.train.labels]
    kept = np.flatnonzero(labels >= 0)
    if not len(kept):
        names = ", ".join(found.class_names[:5])
        raise InputError(f"{source} has no sample of a class that the model knows; its classes are {names}")
    unknown = Counter(found.train.labels[labels < 0].tolist())
    notes = [
        f"left out: the class {found.class_names[label]} ({counted(count, 'sample')}), which the model does not have"
        for label, count in unknown.items()
    ]
    part = replace(found.train, labels=labels).take(kept)
    return Labelled(part, split, (*found.notes, *notes))


def outline_images(source: str | Path) -> ImageOutline | None:
    """Return the outline of a folder or an .npz file of images; None for other sources.

    Images in a folder are not decoded. Raises InputError if the source does not exist or is broken.
    """
    place = find_source(source)
    if place.kind not in ("folder", "npz"):
        return None
    with _reading(source):
        if place.kind == "folder":
            from deeplda.data.folder import outline_folder

            return outline_folder(place.path)
        found = read_npz(place.path)
    if found.train.inputs.ndim != 4:
        return None
    return ImageOutline(
        sizes=np.array([found.train.inputs.shape[2:]], dtype=np.int64),
        images=len(found.train) - sum(missing_parts(len(found.train), found.parts).values()),
        classes=len(found.class_names),
    )


def find_source(source: str | Path) -> Place:
    """Return where a source is. Raises InputError if there is no such source."""
    if source in KNOWN:
        return Place("known", str(source))
    path = expanded(source)
    if path.is_dir():
        return Place("pack" if is_pack(path) else "folder", str(path))
    if path.is_file():
        if path.suffix.lower() == ".npz":
            return Place("npz", str(path))
        if table_format(path):
            return Place("table", str(path))
        raise InputError(f"{source} is a file, need a folder of images, a pack, a table ({READABLE}) or an .npz file")
    if is_code(source):
        return Place("code", source)
    need = "a known name, a folder, a pack, a table, an .npz file or a function as module.path:name"
    raise InputError(f"{source} does not exist", need=need, do=nearest_known(str(source)))


def nearest_known(text: str) -> str:
    """Return a hint for an unknown name: the most similar known name, or all of them."""
    close = difflib.get_close_matches(text.lower(), KNOWN, n=1)
    return f"did you mean {close[0]}?" if close else f"the known names are {', '.join(KNOWN)}"


def data_folder(data_dir: Path | None) -> Path:
    """Return the folder of the known data sets: `data_dir`, else $DEEPLDA_DATA, else the user's cache folder."""
    if chosen := data_dir or os.environ.get("DEEPLDA_DATA"):
        return expanded(chosen)
    import pooch

    return Path(pooch.os_cache("deeplda"))


def locate(name: str, data_dir: Path | None) -> Path:
    """Return the folder with all or the most files of a known set: one of its own folders, or the data folder itself.

    If no files exist, this is the folder that `fetch` would write to.
    """
    root, known = data_folder(data_dir), KNOWN_SETS[name]
    candidates = [root / folder for folder in known.folders]
    # MNIST and Fashion-MNIST use the same file names, so do not mistake one data set's folder for the other's.
    foreign = {folder for other in KNOWN_SETS.values() for folder in other.folders} - {*known.folders}
    if not root.absolute().as_posix().endswith(tuple(f"/{folder}" for folder in foreign)):
        candidates.append(root)
    found = {folder: [file.is_file() for file in known.files(folder)] for folder in candidates}
    return max(candidates, key=lambda folder: (all(found[folder]), sum(found[folder])))


def is_here(name: str, data_dir: Path | None = None) -> bool:
    """Return whether a known set's files exist with plausible sizes. Unlike `check_data`, this does not read them."""
    return name == "digits" or KNOWN_SETS[name].looks_complete(locate(name, data_dir))


def read_source(source: str | Path, data_dir: Path | None, options: FolderOptions, target: str | None = None) -> Source:
    """Read a source as it is, without the splits that it lacks. Raises InputError if it cannot be read."""
    place = find_source(source)
    if target is not None and place.kind != "table":
        raise InputError(f"target is {target!r}, but {source} is not a table: omit it")
    match place.kind:
        case "known":
            return read_digits() if place.name == "digits" else _read_known(place.name, data_dir)
        case "code":
            from deeplda.data.own_source import read_own

            return read_own(place.name)
        case "table":
            require("table", "reading a table")
            from deeplda.data.table_source import read_table

            return read_table(place.path, target=target, group_by=options.group_by, seed=options.seed)
        case "npz":
            if options.group_by is not None:
                what = f"group_by is {options.group_by!r}, but {source} is neither a table nor a folder"
                raise InputError(f"{what}: omit it, or write a table")
            return read_npz(place.path)
        case "pack":
            from deeplda.data.packed_source import read_pack

            return read_pack(place.path, options)
        case "folder":
            from deeplda.data.folder import read_folder

            return read_folder(place.path, options)


def _read_labelled(
    source: str | Path, data_dir: Path | None, shape: tuple[int, ...], table: TableEncoder | None
) -> tuple[Source, str]:
    """Return a source whose training part are the samples to evaluate on, and "test" or "all"."""
    place = find_source(source)
    if place.kind == "table":
        if table is None:
            raise InputError(f"{source} is a table, but the model was not trained on one: pass other data")
        require("table", "reading a table")
        from deeplda.data.table_source import read_labelled_table

        return read_labelled_table(place.path, table), "all"
    if place.kind == "pack":
        from deeplda.data.packed_source import read_packed_labelled

        return read_packed_labelled(place.path)
    if place.kind == "folder":
        if len(shape) != 3 or shape[0] not in (1, 3):
            kind = f"images of {shape[0]} channels" if len(shape) == 3 else "feature vectors"
            raise InputError(f"{source} is a folder of images, but the model takes {kind}: pass an .npz file")
        from deeplda.data.folder import read_labelled

        return read_labelled(place.path, shape)
    is_npz = place.kind == "npz"
    found = read_npz(place.path, test_alone=True) if is_npz else read_source(source, data_dir, FolderOptions())
    if found.test is not None:
        return replace(found, train=found.test, val=None, test=None), "test"
    return replace(found, train=joined(*found.parts.values()), val=None), "all"


@contextmanager
def _reading(source: str | Path) -> Iterator[None]:
    """Convert an error of the system in this block to an InputError that names the file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{error.filename or source} cannot be read ({error.strerror})") from None


def source_changes(source: str | Path, stored: StoredSplit) -> str | None:
    """Return how a folder or a pack differs from a stored split; None if it does not, or if it is neither."""
    place = find_source(source)
    if place.kind == "pack":
        from deeplda.data.pack import open_pack

        pack = open_pack(place.path)
        changes = stored.compare(pack.files, pack.digests)
        return changes.sentence() if changes else None
    if place.kind == "folder":
        from deeplda.data.folder import folder_changes

        return folder_changes(place.path, stored)
    return None


def _read_known(name: str, data_dir: Path | None) -> Source:
    known, folder = KNOWN_SETS[name], locate(name, data_dir)
    if missing := next((file for file in known.files(folder) if not file.is_file()), None):
        found = unreadable_layout(name, data_dir)
        what, need = (found, "the binary layout") if found else (f"{missing} does not exist", f"the files of {name}")
        where = f" --data-dir {data_dir}" if data_dir is not None else ""
        raise InputError(what, need=need, do=f"run deeplda data fetch {name}{where}")
    return known.read(folder)


def unreadable_layout(name: str, data_dir: Path | None) -> str | None:
    """Describe a known set that is present, but only in a layout that we do not read; return None otherwise."""
    known = KNOWN_SETS[name]
    any_file = any(map(Path.is_file, known.files(locate(name, data_dir))))
    return None if any_file else known.unreadable_layout(data_folder(data_dir))


def _resized(source: Source, size: tuple[int, int], do: str) -> Source:
    from deeplda.data.images import resize_arrays

    def resized(part: Part) -> Part:
        return replace(part, inputs=resize_arrays(cast("NDArray[np.uint8] | MappedRows", part.inputs), size))

    if source.train.inputs.ndim != 4:
        raise InputError(f"{source.name} contains feature vectors, which cannot be resized: {do}")
    if source.train.inputs.shape[2:] == size:
        return source
    pixels = source.train.inputs.shape[1] * size[0] * size[1]
    require_memory(sum(map(len, source.parts.values())) * pixels, f"{source.name} at {size[0]} x {size[1]}")
    found = {name: resized(part) for name, part in source.parts.items()}
    return replace(source, train=found["train"], val=found.get("val"), test=found.get("test"))
