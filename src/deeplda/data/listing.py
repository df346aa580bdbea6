"""List a folder of images: its splits, its classes, their files, and the files that are ignored."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from deeplda.data.dataset import check_class_names
from deeplda.data.images import HEIC_SUFFIXES, INSTALL_HEIC, READABLE, SUFFIXES, readable_suffixes
from deeplda.data.splitting import PARTS, PartName
from deeplda.errors import InputError
from deeplda.formatting import counted

_PART_NAMES: dict[PartName, tuple[str, ...]] = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}
# A folder with one of these files is a run or a sweep; a new one has only its lock.
_OUTPUT_FILES = ("run.toml", "sweep.toml", ".lock")
_MOST_SUFFIXES = 10
# os.walk is recursive and takes longer with every level.
_DEEPEST = 100


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image in a folder, with its split and its label.

    Attributes:
        root: the folder.
        class_folder: the path of its class folder within the folder.
        name: its path within its class folder.
    """

    root: Path
    class_folder: str
    name: str
    part: PartName
    label: int

    @property
    def path(self) -> Path:
        """The path of the file."""
        return Path(self.root, self.class_folder, self.name)

    @property
    def relative(self) -> str:
        """The path within the folder; bytes that are not UTF-8 are escaped."""
        return os.fsencode(f"{self.class_folder}/{self.name}").decode(errors="backslashreplace")


@dataclass(frozen=True)
class Listing:
    """The image files in a folder, its splits, and its class names in the order of their labels.

    Attributes:
        notes: sentences about the files that are ignored.
    """

    folder: Path
    parts: tuple[PartName, ...]
    class_names: tuple[str, ...]
    files: tuple[ImageFile, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, folder: Path, class_names: Sequence[str], files: Sequence[ImageFile]) -> Listing:
        """Return the listing of these files, which has the splits that they belong to."""
        present = {file.part for file in files}
        return cls(folder, tuple(part for part in PARTS if part in present), tuple(class_names), tuple(files))

    def require_all_classes(self, files: Iterable[ImageFile]) -> None:
        """Raise InputError if a class has none of these files in one of the splits."""
        counts = Counter((file.part, file.label) for file in files)
        for part, (label, name) in product(self.parts, enumerate(self.class_names)):
            if not counts[part, label]:
                what = f"the class {name} in {self.folder} has no readable image in its {part} split"
                do = "; ".join(["add images or remove the class's folder", *self.notes])
                raise InputError(what, need=f"at least one {READABLE} file", do=do)


def list_images(folder: Path) -> Listing:
    """List the image files by split and class, in sorted order, ignoring hidden files and folders and our own output.

    Raises InputError if there are no classes, or if the splits have different classes.
    """
    roots = _part_folders(folder)
    if roots and "train" not in roots:
        name = next(iter(roots.values())).name
        do = f"add train/ or, if {name} is itself a class, rename it"
        raise InputError(f"{folder} has {name}/ but no train/", need="both", do=do)
    roots = roots or {"train": folder}
    classes = {part: {path.name for path in _subfolders(root)} for part, root in roots.items()}
    for part, root in roots.items():
        if odd := sorted(classes[part] ^ classes["train"]):
            what = f"the class folders in {root} and {roots['train']} differ ({', '.join(odd)})"
            raise InputError(what, need="the same classes in every split", do="add or remove these folders")
    return _listed(folder, roots)


def list_labelled(folder: Path) -> Listing:
    """List the image files to evaluate a model on: those in test/ or, if there is no such folder, all of them.

    They may have other classes than the training data. Raises InputError if there are none.
    """
    roots = _part_folders(folder)
    return _listed(folder, {"test": roots["test"]} if "test" in roots else roots or {"train": folder})


def image_files(folder: Path) -> tuple[list[Path], tuple[str, ...]]:
    """Return the image files in a folder and its subfolders, and sentences about the files that are ignored.

    Runs and sweeps are not searched. Links are followed; each real folder is visited once.
    """
    images, others = _sorted_out(_walk(folder), readable_suffixes())
    return images, _ignored(others, {})


def _listed(folder: Path, roots: dict[PartName, Path]) -> Listing:
    """List the images of each class in the folders of the splits."""
    classes = {part: {path.name: path for path in _subfolders(root)} for part, root in roots.items()}
    class_names = tuple(sorted(set[str]().union(*classes.values())))
    if not class_names:
        do = "sort the images into subfolders or, if this folder is itself a class, rename it"
        root = next(iter(roots.values()))
        raise InputError(f"{root} has no subfolders", need="one subfolder of images per class", do=do)
    check_class_names(str(folder), class_names)
    readable, files, ignored = readable_suffixes(), list[ImageFile](), list[Path]()
    for part, (label, name) in product(roots, enumerate(class_names)):
        if name in classes[part]:
            class_folder = classes[part][name]
            images, others = _sorted_out(_walk(class_folder), readable)
            within = class_folder.relative_to(folder).as_posix()
            # --group-by recognises groups by the path within the class folder.
            names = (path.relative_to(class_folder).as_posix() for path in images)
            files += [ImageFile(folder, within, file, part, label) for file in names]
            ignored += others
    loose, others = _sorted_out((path for root in {folder, *roots.values()} for path in _files_in(root)), readable)
    where = {f"in no class folder, such as {loose[0].name}": len(loose)} if loose else {}
    return Listing(folder, tuple(roots), class_names, tuple(files), _ignored(ignored + others, where))


def _walk(folder: Path) -> Iterator[Path]:
    """Yield all files in a folder and its subfolders except hidden ones, runs and sweeps.

    Raises InputError if the subfolders are nested too deeply.
    """
    visited: set[Path] = set()
    for where, below, names in os.walk(folder, followlinks=True):
        if len(Path(where).parts) - len(folder.parts) > _DEEPEST:
            raise InputError(f"{folder} has more than {_DEEPEST} levels of folders: move the images further up")
        real = Path(where).resolve()
        if real in visited:
            below.clear()
            continue
        visited.add(real)
        below[:] = sorted(name for name in below if not _is_ignored(Path(where, name)))
        yield from (Path(where, name) for name in sorted(names) if not name.startswith("."))


def _files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))


def _sorted_out(files: Iterable[Path], readable: frozenset[str]) -> tuple[list[Path], list[Path]]:
    """Return the files with a readable suffix, and the others."""
    images: list[Path] = []
    others: list[Path] = []
    for file in files:
        (images if file.suffix.lower() in readable else others).append(file)
    return images, others


def _ignored(files: Iterable[Path], where: dict[str, int]) -> tuple[str, ...]:
    """Return one sentence per suffix about ignored files, and per place in `where` about ignored images."""
    counts = Counter(file.suffix.lower() for file in files)
    lines = [f"ignored: {counted(count, 'image')} {place}" for place, count in where.items()]
    for suffix, count in counts.most_common(_MOST_SUFFIXES):
        what = f"{counted(count, f'{suffix} file')}" if suffix else f"{counted(count, 'file')} without an extension"
        reason = f"HEIC needs an extra package: {INSTALL_HEIC}" if suffix in HEIC_SUFFIXES else "not a readable format"
        lines.append(f"ignored: {what} ({reason})")
    if rest := counts.total() - sum(count for _, count in counts.most_common(_MOST_SUFFIXES)):
        lines.append(f"ignored: {counted(rest, 'file')} with other extensions (not a readable format)")
    return tuple(lines)


def _part_folders(folder: Path) -> dict[PartName, Path]:
    """Return the subfolder of each split, such as train/; empty if there are none."""
    below = {path.name.lower(): path for path in _subfolders(folder)}
    found: dict[PartName, Path] = {}
    for part, spellings in _PART_NAMES.items():
        present = [below[name] for name in spellings if name in below]
        if len(present) > 1:
            both = f"{present[0].name}/ and {present[1].name}/"
            raise InputError(f"{folder} has both {both}", need="only one of them", do="merge or rename them")
        if present:
            found[part] = present[0]
    return found


def part_named(name: str) -> PartName | None:
    """Return the split that a name stands for, such as val for "validation"; None if it is not that of a split."""
    return next((part for part, spellings in _PART_NAMES.items() if name.lower() in spellings), None)


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
            elif Path(entry).suffix.lower() in SUFFIXES | HEIC_SUFFIXES:
                return False
    return found


def _is_output(folder: Path) -> bool:
    return any((folder / name).exists() for name in _OUTPUT_FILES)
