"""The split of a folder of images as a run stores it, and how the folder has changed since.

The file split.jsonl starts with a line about the data (classes and shape of the samples), followed by one line per
image: its path within the folder, the digest of its content, its part and, with `group_by`, the digest of its group.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from deeplda.data.splitting import DIGEST_DTYPE, PARTS, Assignment, Digests, PartName, without_groups
from deeplda.errors import InputError
from deeplda.formatting import counted
from deeplda.io import read_small

SPLIT_FILE = "split.jsonl"
# About a million images with long names.
_LARGEST_FILE = 2**28
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
_Side = Annotated[int, Field(ge=1, lt=2**31)]


class _Header(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    version: Literal[1]
    images: int
    classes: list[str]
    shape: tuple[Literal[1, 3], _Side, _Side]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    file: str
    hash: _Digest
    part: PartName
    group: _Digest | Literal[""] = ""


@dataclass(frozen=True, eq=False)
class StoredSplit:
    """The images that a run was started with, in their order, and the part of each.

    Attributes:
        class_names: the names of the classes in the order of their labels.
        shape: (C, H, W) of the samples.
        files: the path of each image within the folder.
        assignment: the digests, groups and parts of the images.
    """

    class_names: tuple[str, ...]
    shape: tuple[int, int, int]
    files: tuple[str, ...]
    assignment: Assignment

    def to_jsonl(self) -> str:
        """Return the contents of split.jsonl."""
        header = {"version": 1, "images": len(self.files), "classes": self.class_names, "shape": self.shape}
        columns = self.assignment.digests, self.assignment.parts, self.assignment.groups
        # One line at a time, because there may be hundreds of thousands of them.
        lines = (
            {"file": file, "hash": digest.decode(), "part": PARTS[part]} | ({"group": group.decode()} if group else {})
            for file, digest, part, group in zip(self.files, *columns, strict=True)
        )
        return "".join(f"{json.dumps(line)}\n" for line in chain([header], lines))

    def compare(self, files: Sequence[str], digests: Digests) -> Changes:
        """Compare the stored images with those that are in the folder now."""
        place = {file: index for index, file in enumerate(self.files)}
        before = np.array([place.get(file, -1) for file in files], dtype=np.intp)
        known = np.isin(digests, self.assignment.digests)
        changed = (before >= 0) & ~known
        same = (before >= 0) & (self.assignment.digests[before] == digests)
        # An image that was moved or renamed is neither new nor removed.
        elsewhere = np.isin(self.assignment.digests, digests[~same])
        removed = tuple(file for file in sorted(set(self.files).difference(files)) if not elsewhere[place[file]])
        return Changes(before, same, known, changed, removed)


@dataclass(frozen=True, eq=False)
class Changes:
    """How the images in a folder differ from those of a stored split.

    Attributes:
        before: (N,), the index in the stored split of the image with the same path, or -1.
        same: (N,), whether that image also has the same content.
        known: (N,), whether the content of each image is that of a stored one.
        changed: (N,), whether an image has the path of a stored one and a content that is not stored.
        removed: the stored paths whose contents are no longer in the folder under any name, except changed ones.
    """

    before: NDArray[np.intp]
    same: NDArray[np.bool_]
    known: NDArray[np.bool_]
    changed: NDArray[np.bool_]
    removed: tuple[str, ...]

    @property
    def new(self) -> NDArray[np.bool_]:
        """Whether each image was added, (N,)."""
        return ~self.known & (self.before < 0)

    def __bool__(self) -> bool:
        return bool(self.changed.any() or self.new.any() or self.removed)

    def sentence(self, new_in_test: int | None = None) -> str:
        """Return the numbers of new, removed and changed images as text."""
        new = f"{counted(int(self.new.sum()), 'new image')}"
        if new_in_test is not None and self.new.any():
            new += f" ({new_in_test:,} of them in the test part)"
        return f"{new}, {len(self.removed):,} removed, {int(self.changed.sum()):,} changed"


def read_split(file: Path) -> StoredSplit:
    """Read split.jsonl. Raises InputError if it is missing or damaged."""
    try:
        first, *rest = read_small(file, _LARGEST_FILE).splitlines()
        header = _Header.model_validate_json(first)
        found = Assignment(
            digests=np.zeros(len(rest), dtype=DIGEST_DTYPE),
            groups=without_groups(len(rest)),
            parts=np.zeros(len(rest), dtype=np.int8),
        )
        files = tuple(_read_line(line, place, found) for place, line in enumerate(rest))
        if len(files) != header.images or len(set(files)) != header.images or not files:
            raise ValueError("the number of images is wrong")
        if len(set(header.classes)) != len(header.classes):
            raise ValueError("a class occurs twice")
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror}): restore it, or train again") from None
    except ValueError as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise InputError(f"{file} is damaged ({reason}): restore it, or train again") from None
    return StoredSplit(tuple(header.classes), header.shape, files, found)


def _read_line(text: bytes, place: int, found: Assignment) -> str:
    """Store what a line says about an image at its place in the arrays, and return its file."""
    line = _Line.model_validate_json(text)
    found.digests[place], found.groups[place], found.parts[place] = line.hash, line.group, PARTS.index(line.part)
    return line.file
