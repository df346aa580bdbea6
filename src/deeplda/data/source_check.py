"""Check the files of a data source, including broken ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from deeplda.data.folder_options import FolderOptions
from deeplda.data.known_sets import KNOWN_SETS
from deeplda.data.layouts import KnownSet
from deeplda.data.mapped_rows import MappedRows
from deeplda.data.sources import find_source, locate, read_source, unreadable_layout
from deeplda.errors import InputError
from deeplda.formatting import counted
from deeplda.memory import TooLargeError

# Modules that need Pillow are imported where they are used: known sets and .npz files do not need it.

_CHECKED_AT_ONCE = 1_000


@dataclass(frozen=True)
class FileCheck:
    """The result of checking one file or folder: a description of what was found, and whether it is usable."""

    file: Path
    found: str
    ok: bool


def check_data(source: str | Path, data_dir: Path | None = None) -> list[FileCheck]:
    """Read every file of a source and report what was found, including broken files.

    For a known set, there is one row per file, plus one if intact files contradict each other. For a folder, there is
    one row per class and split, plus one per broken image; for a pack, the same and one per broken block. For an .npz
    file or a table, there is one row per split. Raises InputError only if the source itself does not exist.
    """
    place = find_source(source)
    if place.kind == "known":
        return _check_known(place.name, data_dir)
    try:
        if place.kind == "pack":
            return _check_pack(place.path)
        return _check_folder(place.path) if place.kind == "folder" else _check_samples(source, place.path)
    except (InputError, OSError) as error:
        return [FileCheck(place.path, str(error), False)]


def ignored_notes(source: str | Path) -> tuple[str, ...]:
    """Return sentences about the files in a folder of images that are not read; none for other sources."""
    place = find_source(source)
    if place.kind != "folder":
        return ()
    from deeplda.data.listing import list_images

    try:
        return list_images(place.path).notes
    except (InputError, OSError):  # `check_data` reports it
        return ()


def _check_known(name: str, data_dir: Path | None) -> list[FileCheck]:
    if name == "digits":
        return [FileCheck(Path(name), "bundled with scikit-learn", True)]
    known, folder = KNOWN_SETS[name], locate(name, data_dir)
    rows = [_check_file(file, known) for file in known.files(folder)]
    if all(row.ok for row in rows):
        try:
            known.read(folder)
        except TooLargeError:
            pass  # the files may still be intact
        except (InputError, OSError) as error:
            rows.append(FileCheck(folder, str(error), False))
    elif found := unreadable_layout(name, data_dir):
        rows.append(FileCheck(folder, found, False))
    return rows


def _check_file(file: Path, known: KnownSet) -> FileCheck:
    try:
        return FileCheck(file, known.describe(file), True) if file.is_file() else FileCheck(file, "missing", False)
    except (InputError, OSError) as error:
        return FileCheck(file, str(error), False)


def _check_folder(path: Path) -> list[FileCheck]:
    from deeplda.data.images import decode, in_threads
    from deeplda.data.listing import ImageFile, list_images

    def check(file: ImageFile) -> FileCheck:
        try:
            decode(file.path, channels=3)
        except InputError as error:
            return FileCheck(file.path, str(error), False)
        return FileCheck(file.path, "intact", True)

    listing = list_images(path)
    checked = in_threads(check, listing.files)
    counts = Counter((file.part, file.label) for file, row in zip(listing.files, checked, strict=True) if row.ok)
    rows = [
        FileCheck(path, f"{part}, {name}: {counted(counts[part, label], 'image')}", counts[part, label] > 0)
        for part, (label, name) in product(listing.parts, enumerate(listing.class_names))
    ]
    return rows + [row for row in checked if not row.ok]


def _check_pack(path: Path) -> list[FileCheck]:
    from deeplda.data.pack import damaged_blocks, open_pack

    pack = open_pack(path)
    counts = Counter(zip((folder.part for folder in pack.class_folders), pack.labels.tolist(), strict=True))
    rows = [
        FileCheck(path, f"{part}, {pack.class_names[label]}: {counted(count, 'image')}", True)
        for (part, label), count in counts.items()
    ]
    broken = [
        FileCheck(
            path, f"the pixels of {counted(block.stop - block.start, 'image')} from {first} on are damaged", False
        )
        for block, first in damaged_blocks(pack)
    ]
    return rows + broken


def _check_samples(source: str | Path, path: Path) -> list[FileCheck]:
    found = read_source(source, None, FolderOptions())
    shape = " x ".join(map(str, found.train.inputs.shape[1:]))
    for part in found.parts.values():
        # The values of samples in a file are checked when they are read.
        if isinstance(part.inputs, MappedRows):
            for start in range(0, len(part), _CHECKED_AT_ONCE):
                np.asarray(part.inputs[start : start + _CHECKED_AT_ONCE])
    return [
        FileCheck(path, f"{name}: {counted(len(part), 'sample')} of {shape}", True)
        for name, part in found.parts.items()
    ]
