"""Folders of images, with one subfolder per class, optionally inside train/, val/ and test/."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from deeplda.data.dataset import Part, Source
from deeplda.data.images import READABLE, SUFFIXES, Header, decode, in_threads, read_header
from deeplda.errors import InputError, one_line
from deeplda.memory import require_memory

_PART_NAMES = {"train": ("train", "training"), "val": ("val", "valid", "validation"), "test": ("test", "testing")}
# A folder with one of these files is a run or a sweep; a new one has only its lock.
_OUTPUT_FILES = ("run.toml", "sweep.toml", ".lock")
_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True)
class ImageFile:
    """An image file in a folder, with its split ("train", "val" or "test") and its label."""

    path: Path
    part: str
    label: int


@dataclass(frozen=True)
class Listing:
    """The image files in a folder, its splits, and its class names in the order of their labels."""

    folder: Path
    parts: tuple[str, ...]
    class_names: tuple[str, ...]
    files: tuple[ImageFile, ...]

    def require_all_classes(self, files: Iterable[ImageFile]) -> None:
        """Raise InputError if a class has none of these files in one of the splits."""
        counts = Counter((file.part, file.label) for file in files)
        for part, (label, name) in product(self.parts, enumerate(self.class_names)):
            if not counts[part, label]:
                what = f"the class {name} in {self.folder} has no readable image in its {part} split"
                need = f"at least one {READABLE} file"
                raise InputError(what, need=need, do="add images or remove the class's folder")


def read_folder(folder: Path, image_size: int | None, skip_unreadable: bool) -> Source:
    """Read all images in a folder.

    The result is greyscale if every file is greyscale (a palette image counts as colour), and colour otherwise. With
    `image_size`, images are resized to that height and width; otherwise, they must all have the same size. With
    `skip_unreadable`, broken files are skipped and listed in `left_out`.

    Raises InputError if the folder has no classes, a class has no images, the splits have different classes, a file is
    broken, image sizes differ, or the images do not fit in memory.
    """
    listing = list_images(folder)
    listing.require_all_classes(listing.files)
    headers = _attempt_all(read_header, [file.path for file in listing.files], skip_unreadable)
    sound = [(file, header) for file, header in zip(listing.files, headers, strict=True) if header is not None]
    listing.require_all_classes(file for file, _ in sound)
    channels = 1 if all(header.grey for _, header in sound) else 3
    height, width = (image_size, image_size) if image_size else _common_size(sound)
    require_memory(len(sound) * channels * height * width, f"{folder} at {height} x {width}")
    pixels = np.empty((len(sound), channels, height, width), dtype=np.uint8)

    def fill(index: int) -> bool:
        path = sound[index][0].path
        image = decode(path, channels, (height, width) if image_size else None)
        if image.shape[1:] != (height, width):  # the header was wrong
            raise _different_sizes(sound[0][0].path, (height, width), path, image.shape[1:])
        pixels[index] = image
        return True

    decoded = _attempt_all(fill, range(len(sound)), skip_unreadable)
    kept = {index: file for index, (file, _) in enumerate(sound) if decoded[index]}
    listing.require_all_classes(kept.values())
    return _source(pixels, kept, listing)


def list_images(folder: Path) -> Listing:
    """List the image files by split and class, in sorted order, ignoring hidden files and folders and our own output.

    Raises InputError if there are no classes, or if the splits have different classes.
    """
    parts = _part_folders(folder)
    classes = {part: {path.name: path for path in _subfolders(root)} for part, root in parts.items()}
    names = tuple(sorted(classes["train"]))
    if not names:
        do = "sort the images into subfolders or, if this folder is itself a class, rename it"
        raise InputError(f"{parts['train']} has no subfolders", need="one subfolder of images per class", do=do)
    for part, root in parts.items():
        if odd := sorted(set(classes[part]) ^ set(names)):
            what = f"the class folders in {root} and {parts['train']} differ ({', '.join(odd)})"
            raise InputError(what, need="the same classes in every split", do="add or remove these folders")
    files = [
        ImageFile(path, part, label)
        for part, (label, name) in product(parts, enumerate(names))
        for path in image_files(classes[part][name])
    ]
    return Listing(folder, tuple(parts), names, tuple(files))


def image_files(folder: Path) -> list[Path]:
    """List the image files in a folder and its subfolders, but not in runs and sweeps.

    Links are followed; each real folder is visited once.
    """
    found: list[Path] = []
    visited: set[Path] = set()
    for where, below, names in os.walk(folder, followlinks=True):
        real = Path(where).resolve()
        if real in visited:
            below.clear()
            continue
        visited.add(real)
        below[:] = sorted(name for name in below if not _is_ignored(Path(where, name)))
        files = [Path(where, name) for name in sorted(names) if not name.startswith(".")]
        found += [file for file in files if file.suffix.lower() in SUFFIXES]
    return found


def _part_folders(folder: Path) -> dict[str, Path]:
    """Return the folder of each split; without subfolders such as train/, the folder itself is the training set."""
    below = {path.name.lower(): path for path in _subfolders(folder)}
    found: dict[str, Path] = {}
    for part, spellings in _PART_NAMES.items():
        present = [below[name] for name in spellings if name in below]
        if len(present) > 1:
            both = f"{present[0].name}/ and {present[1].name}/"
            raise InputError(f"{folder} has both {both}", need="only one of them", do="merge or rename them")
        if present:
            found[part] = present[0]
    if found and "train" not in found:
        name = next(iter(found.values())).name
        do = f"add train/ or, if {name} is itself a class, rename it"
        raise InputError(f"{folder} has {name}/ but no train/", need="both", do=do)
    return found or {"train": folder}


def _subfolders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not _is_ignored(path))


def _is_ignored(folder: Path) -> bool:
    """Return whether a folder is hidden, or is our own output: a run, a sweep, or a folder that contains only these."""
    if folder.name.startswith(".") or _is_output(folder):
        return True
    found = False
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir() and not entry.name.startswith("."):
                if not _is_output(Path(entry)):
                    return False
                found = True
            elif Path(entry).suffix.lower() in SUFFIXES:
                return False
    return found


def _is_output(folder: Path) -> bool:
    return any((folder / name).exists() for name in _OUTPUT_FILES)


def _attempt_all(function: Callable[[_T], _R], items: Sequence[_T], skip: bool) -> list[_R | None]:
    """Apply a function to each item in threads; with `skip`, return None for items that raise InputError."""

    def attempt(item: _T) -> _R | None:
        try:
            return function(item)
        except InputError:
            if not skip:
                raise
            return None

    return in_threads(attempt, items)


def _common_size(sound: Sequence[tuple[ImageFile, Header]]) -> tuple[int, int]:
    first, expected = sound[0]
    for file, header in sound:
        if header.size != expected.size:
            raise _different_sizes(first.path, expected.size, file.path, header.size)
    return expected.size


def _different_sizes(one: Path, size: tuple[int, ...], other: Path, other_size: tuple[int, ...]) -> InputError:
    what = f"{one} is {size[1]} x {size[0]} and {other} is {other_size[1]} x {other_size[0]} pixels"
    do = "pass --image-size, for example --image-size 64"
    return InputError(what, need="the same size for all images", do=do)


def _source(pixels: NDArray[np.uint8], kept: dict[int, ImageFile], listing: Listing) -> Source:
    def part(name: str) -> Part:
        of_part = {index: file for index, file in kept.items() if file.part == name}
        labels = np.array([file.label for file in of_part.values()], dtype=np.int64)
        files = tuple(one_line(str(file.path.relative_to(listing.folder))) for file in of_part.values())
        # Indexing with a list copies the pixels; a view would keep the pixels of all splits in memory.
        return Part(pixels[list(of_part)], labels, files)

    parts = {name: part(name) for name in listing.parts}
    used = {file.path for file in kept.values()}
    return Source(
        listing.folder.resolve().name,
        parts["train"],
        listing.class_names,
        val=parts.get("val"),
        test=parts.get("test"),
        left_out=tuple(str(file.path) for file in listing.files if file.path not in used),
    )
