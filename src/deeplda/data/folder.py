"""A folder of images: one sub-folder a class, below train/, val/ and test/ or not."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from deeplda.data.dataset import Part, Source
from deeplda.data.images import SUFFIXES, Header, decode, in_threads, read_header
from deeplda.errors import InputError, got, one_line
from deeplda.memory import require_memory

_PART_NAMES = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}
_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Listed:
    """One image file of a folder: where it is, its part and its class."""

    path: Path
    part: str
    label: int


@dataclass(frozen=True)
class Listing:
    """The image files of a folder, its parts and the names of its classes in order."""

    folder: Path
    parts: tuple[str, ...]
    class_names: tuple[str, ...]
    files: tuple[Listed, ...]

    def check_classes(self, files: Sequence[Listed]) -> None:
        """Raise InputError where a class has none of these files in one of the parts."""
        counts = Counter((file.part, file.label) for file in files)
        for part, (label, name) in product(self.parts, enumerate(self.class_names)):
            if not counts[part, label]:
                raise InputError(
                    got(
                        f"the class {name} of {self.folder} has no readable image in its {part} part",
                        need="at least one PNG, JPEG, BMP or WebP file",
                        do="add images or remove the folder",
                    )
                )


def read(folder: Path, image_size: int | None, skip_unreadable: bool) -> Source:
    """All images of a folder.

    Grey where every file is stored as grey (a palette counts as colour), else colour. With `image_size` P all are
    resized to P x P, else all must have one size. With `skip_unreadable` broken files are left out and listed.

    Raises InputError for a folder without classes, a class without images, classes that differ between parts, a
    broken file, differing sizes, and where the images do not fit in memory.
    """
    listing = list_images(folder)
    listing.check_classes(listing.files)
    headers = _attempt_all(read_header, [file.path for file in listing.files], skip_unreadable)
    sound = [(file, header) for file, header in zip(listing.files, headers, strict=True) if header is not None]
    listing.check_classes([file for file, _ in sound])
    channels = 1 if all(header.grey for _, header in sound) else 3
    height, width = (image_size, image_size) if image_size else _common_size(sound)
    require_memory(len(sound) * channels * height * width, f"{folder} at {height} x {width}")
    pixels = np.empty((len(sound), channels, height, width), dtype=np.uint8)

    def fill(place: int) -> bool:
        path = sound[place][0].path
        image = decode(path, channels, (height, width) if image_size else None)
        if image.shape[1:] != (height, width):  # a header that does not tell the truth
            raise InputError(_differing(sound[0][0].path, (height, width), path, image.shape[1:]))
        pixels[place] = image
        return True

    decoded = _attempt_all(fill, range(len(sound)), skip_unreadable)
    kept = {place: file for place, (file, _) in enumerate(sound) if decoded[place]}
    listing.check_classes(list(kept.values()))
    return _source(pixels, kept, listing)


def list_images(folder: Path) -> Listing:
    """The image files by part and class, in sorted order. Hidden files and folders are passed over.

    Raises InputError where there are no classes or the parts have different ones.
    """
    parts = _parts(folder)
    classes = {part: {path.name: path for path in _sub_folders(root)} for part, root in parts.items()}
    names = tuple(sorted(classes["train"]))
    if not names:
        raise InputError(
            got(
                f"{parts['train']} has no sub-folders",
                need="one sub-folder of images a class",
                do="sort the images so; if it is a class itself, rename it",
            )
        )
    for part, root in parts.items():
        if odd := sorted(set(classes[part]) ^ set(names)):
            raise InputError(
                got(
                    f"the class folders of {root} and {parts['train']} differ in {', '.join(odd)}",
                    need="the same classes in every part",
                    do="add or remove these folders",
                )
            )
    files = [
        Listed(path, part, label)
        for part in parts
        for label, name in enumerate(names)
        for path in image_files(classes[part][name])
    ]
    return Listing(folder, tuple(parts), names, tuple(files))


def _parts(folder: Path) -> dict[str, Path]:
    below = {path.name.lower(): path for path in _sub_folders(folder)}
    found: dict[str, Path] = {}
    for part, spellings in _PART_NAMES.items():
        there = [below[name] for name in spellings if name in below]
        if len(there) > 1:
            raise InputError(
                got(f"{folder} has both {there[0].name}/ and {there[1].name}/", need="one", do="merge or rename them")
            )
        if there:
            found[part] = there[0]
    if found and "train" not in found:
        raise InputError(
            got(
                f"{folder} has {next(iter(found.values())).name}/ but no train/",
                need="train/ beside it",
                do="add it; if that is a class itself, rename it",
            )
        )
    return found or {"train": folder}


def _sub_folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def image_files(folder: Path) -> list[Path]:
    """Image files in the folder and below it; links are followed, each real folder is entered once."""
    found: list[Path] = []
    entered: set[Path] = set()
    for where, below, names in os.walk(folder, followlinks=True):
        real = Path(where).resolve()
        below[:] = [] if real in entered else sorted(name for name in below if not name.startswith("."))
        if real not in entered:
            found += [Path(where, name) for name in sorted(names) if _is_image(name)]
        entered.add(real)
    return found


def _is_image(name: str) -> bool:
    return not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES


def _attempt_all(function: Callable[[_T], _R], items: Sequence[_T], skip: bool) -> list[_R | None]:
    """`function` of each item; None where it raises InputError and that may be skipped."""

    def attempt(item: _T) -> _R | None:
        try:
            return function(item)
        except InputError:
            if not skip:
                raise
            return None

    return in_threads(attempt, items)


def _common_size(sound: Sequence[tuple[Listed, Header]]) -> tuple[int, int]:
    first, like = sound[0]
    for file, header in sound:
        if (header.height, header.width) != (like.height, like.width):
            sizes = (like.height, like.width), (header.height, header.width)
            raise InputError(_differing(first.path, sizes[0], file.path, sizes[1]))
    return like.height, like.width


def _differing(one: Path, size: tuple[int, ...], other: Path, other_size: tuple[int, ...]) -> str:
    return got(
        f"{one} is {size[1]} x {size[0]} and {other} is {other_size[1]} x {other_size[0]} pixels",
        need="one size for all",
        do="pass --image-size, for example --image-size 64",
    )


def _source(pixels: NDArray[np.uint8], kept: dict[int, Listed], listing: Listing) -> Source:
    def part(name: str) -> Part:
        of_part = {place: file for place, file in kept.items() if file.part == name}
        labels = np.array([file.label for file in of_part.values()], dtype=np.int64)
        files = tuple(one_line(str(file.path.relative_to(listing.folder))) for file in of_part.values())
        # A copy, since a view would keep the pixels of all parts alive.
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
