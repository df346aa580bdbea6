"""Whether the files of a source are there and whole."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from deeplda.data import folder, npz
from deeplda.data.images import decode, in_threads
from deeplda.data.known import ON_DISK, locate
from deeplda.data.loading import check_names, find_source
from deeplda.errors import InputError
from deeplda.memory import TooLargeError


@dataclass(frozen=True)
class FileCheck:
    """One row: a file (or a folder of files), what is there in words, and whether it can be used."""

    file: Path
    found: str
    whole: bool


def check_data(source: str | Path, data_dir: Path | None = None) -> list[FileCheck]:
    """Read every file of a source and tell what is there, broken files included.

    Known set: a row a file, and one for what is wrong between files that are whole. Folder: a row for each class of
    each part, and one for each broken image. An .npz file: a row a part. Raises InputError only where the source itself
    does not exist.
    """
    found = find_source(source)
    if found == "digits":
        return [FileCheck(Path("digits"), "bundled with scikit-learn", True)]
    if isinstance(found, str):
        return _check_known(found, locate(found, data_dir))
    try:
        return _check_folder(found) if found.is_dir() else _check_npz(found)
    except (InputError, OSError) as error:
        return [FileCheck(found, str(error), False)]


def _check_known(name: str, place: Path) -> list[FileCheck]:
    rows = [_check_file(path, name) for path in ON_DISK[name].files(place)]
    if all(row.whole for row in rows):
        try:
            ON_DISK[name].read(place)
        except TooLargeError:
            # That says nothing of the files.
            pass
        except (InputError, OSError) as error:
            rows.append(FileCheck(place, str(error), False))
    return rows


def _check_file(path: Path, name: str) -> FileCheck:
    if not path.is_file():
        return FileCheck(path, "missing", False)
    try:
        return FileCheck(path, ON_DISK[name].describe(path), True)
    except (InputError, OSError) as error:
        return FileCheck(path, str(error), False)


def _check_folder(path: Path) -> list[FileCheck]:
    listing = folder.list_images(path)
    check_names(str(path), listing.class_names)
    counts: Counter[tuple[str, int]] = Counter()
    broken: list[FileCheck] = []
    for file, error in zip(listing.files, in_threads(_error_of, listing.files), strict=True):
        counts[file.part, file.label] += error is None
        if error is not None:
            broken.append(FileCheck(file.path, error, False))
    rows = [
        FileCheck(path, f"{part}, {name}: {counts[part, label]:,} images", counts[part, label] > 0)
        for part, (label, name) in product(listing.parts, enumerate(listing.class_names))
    ]
    return rows + broken


def _error_of(file: folder.Listed) -> str | None:
    try:
        decode(file.path, channels=3)
    except InputError as error:
        return str(error)
    return None


def _check_npz(path: Path) -> list[FileCheck]:
    source = npz.read(path)
    parts = {"train": source.train, "val": source.val, "test": source.test}
    return [
        FileCheck(path, f"{name}: {len(part):,} samples of {' x '.join(map(str, part.inputs.shape[1:]))}", True)
        for name, part in parts.items()
        if part is not None
    ]
