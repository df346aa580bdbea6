"""The index of a pack: which images it has, in lines that are only ever appended.

A pack is a folder of two files. images.bin has the pixels of all images one after the other, as uint8, C x H x W each.
pack-index.txt has one line per event: the start of the pack, each block of images that was written, and each time that
it was completed. A line is a SHA-256 checksum of all lines up to this one, a space, and a JSON object.

The pixels of a block are flushed to disk before its line is written. So whatever follows the last completion is the
rest of a writer that was killed or is still at work: readers ignore it, and the next writer continues after it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from deeplda.data.splitting import DIGEST_DTYPE, Digests, PartName
from deeplda.errors import InputError, unreadable
from deeplda.io import open_regular
from deeplda.memory import require_memory

IMAGES_FILE, INDEX_FILE = "images.bin", "pack-index.txt"
# About ten million images.
_LARGEST_INDEX = 2**30
# A block has at most 2,048 images, and a path 4,096 bytes.
_LONGEST_LINE = 2**26
# How much larger an index is in memory.
_COPIES = 4
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
_Checksum = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Side = Annotated[int, Field(ge=1, lt=2**31)]


_Shape = tuple[Literal[1, 3], _Side, _Side]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Start(_Line):
    """The first line.

    Attributes:
        resized: whether the images were resized to this shape; otherwise, all files have it.
    """

    version: Literal[1]
    shape: _Shape
    resized: bool


class _Block(_Line):
    """Images that follow those before them in images.bin.

    Attributes:
        folders: the class folders of these images, with class and part.
        images: for each image, the index of its class folder, its path within it, and the digest of its file.
        skipped: the errors of files that could not be read, by their paths.
        sha256: the checksum of the pixels.
    """

    folders: list[tuple[str, str, PartName]]
    images: list[tuple[Annotated[int, Field(ge=0)], str, _Digest]]
    skipped: dict[str, str]
    sha256: _Checksum


class _End(_Line):
    """The pack is complete up to here.

    Attributes:
        images: how many there are.
        classes: the names of the classes in the order of the labels.
        skipped: the errors of all files that could not be read, by their paths.
    """

    images: int
    classes: list[str]
    skipped: dict[str, str]


_later_line: TypeAdapter[_Block | _End] = TypeAdapter(_Block | _End)


class ClassFolder(NamedTuple):
    """A folder of images of one class and one part."""

    path: str
    class_name: str
    part: PartName


class Block(NamedTuple):
    """Consecutive images whose pixels have one checksum: the indices of the first one and after the last one."""

    start: int
    stop: int
    sha256: str


class Completion(NamedTuple):
    """The state of a pack when it was complete.

    Attributes:
        images, blocks: how many there were.
        class_names: the names of the classes in the order of the labels.
        skipped: the errors of files that could not be read, by their paths.
    """

    images: int
    blocks: int
    class_names: tuple[str, ...]
    skipped: Mapping[str, str]


@dataclass
class PackIndex:
    """The contents of an index.

    Attributes:
        shape: (C, H, W) of the images.
        resized: whether images were resized to this shape.
        folders, names: the class folder of each image, and its path within it.
        blocks: the blocks of images.
        skipped: the errors of files that could not be read, by their paths.
        completion: the state at the last completion; None if there was none.
        checksum: that of all lines.
    """

    shape: tuple[int, int, int]
    resized: bool
    checksum: str = ""
    folders: list[ClassFolder] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    completion: Completion | None = None
    _digests: list[Digests] = field(default_factory=list)

    @property
    def image_bytes(self) -> int:
        """The size of one image in bytes."""
        return math.prod(self.shape)

    @property
    def digests(self) -> Digests:
        """The digest of each image's file, (N,)."""
        return np.concatenate([np.empty(0, dtype=DIGEST_DTYPE), *self._digests])

    @property
    def is_complete(self) -> bool:
        """Whether nothing was written after the last completion."""
        return self.completion is not None and self.completion.blocks == len(self.blocks)

    def files(self) -> Iterator[str]:
        """Yield the path of each image."""
        return (f"{folder.path}/{name}" for folder, name in zip(self.folders, self.names, strict=True))

    def start(self) -> bytes:
        """Return the first line of a new index."""
        return self._line(_Start(version=1, shape=cast(_Shape, self.shape), resized=self.resized))

    def block(self, images: Iterable[tuple[ClassFolder, str, bytes]], skipped: Mapping[str, str], sha256: str) -> bytes:
        """Add images that were written, each with its class folder, name and digest, and return the line to append."""
        numbers: dict[ClassFolder, int] = {}
        listed = [(numbers.setdefault(folder, len(numbers)), name, digest.decode()) for folder, name, digest in images]
        folders = [(folder.path, folder.class_name, folder.part) for folder in numbers]
        block = _Block(folders=folders, images=listed, skipped=dict(skipped), sha256=sha256)
        self._add_block(block)
        return self._line(block)

    def end(self, class_names: Iterable[str], skipped: Mapping[str, str]) -> bytes:
        """Mark the pack as complete, and return the line to append."""
        end = _End(images=len(self.names), classes=list(class_names), skipped=dict(skipped))
        self._add_end(end)
        return self._line(end)

    def _line(self, content: _Line) -> bytes:
        text = json.dumps(content.model_dump(mode="json"), ensure_ascii=False, separators=(",", ":")).encode()
        self.checksum = _checksum(self.checksum, text)
        return b"%s %s\n" % (self.checksum.encode(), text)

    def _add_block(self, block: _Block) -> None:
        folders = [ClassFolder(*folder) for folder in block.folders]
        self.blocks.append(Block(len(self.names), len(self.names) + len(block.images), block.sha256))
        self.folders += [folders[number] for number, _, _ in block.images]
        self.names += [name for _, name, _ in block.images]
        self._digests.append(np.array([digest for _, _, digest in block.images], dtype=DIGEST_DTYPE))
        self.skipped |= block.skipped
        for number, name, _ in block.images:
            self.skipped.pop(f"{folders[number].path}/{name}", None)

    def _add_end(self, end: _End) -> None:
        if end.images != len(self.names):
            raise ValueError(f"it declares {end.images:,} images, but lists {len(self.names):,}")
        self.skipped = dict(end.skipped)
        self.completion = Completion(len(self.names), len(self.blocks), tuple(end.classes), end.skipped)


def is_pack(path: Path) -> bool:
    """Return whether a folder is a pack, complete or not."""
    return (path / INDEX_FILE).is_file()


def read_index(pack: Path) -> PackIndex | None:
    """Read the index of a pack, including what follows the last completion; None if it has not even a first line.

    Raises InputError if it cannot be read, or if a line is damaged.
    """
    file = pack / INDEX_FILE
    try:
        with open_regular(file) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > _LARGEST_INDEX:
                raise ValueError(f"it has {size:,} bytes, more than {_LARGEST_INDEX:,}")
            require_memory(size, str(file), copies=_COPIES, do="pack fewer images")
            return _parsed(stream)
    except OSError as error:
        raise unreadable(file, error, "pack the images again") from None
    except InputError:
        raise
    except ValueError as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise InputError(f"{file} is damaged ({reason}): restore it, or pack the images again") from None


def _parsed(stream: BufferedReader) -> PackIndex | None:
    lines = _checked_lines(stream)
    if (first := next(lines, None)) is None:
        return None
    checksum, text = first
    start = _Start.model_validate_json(text)
    index = PackIndex(start.shape, start.resized, checksum)
    for checksum, text in lines:
        index.checksum = checksum
        line = _later_line.validate_json(text)
        if isinstance(line, _End):
            index._add_end(line)
        elif any(number >= len(line.folders) for number, _, _ in line.images):
            raise ValueError("an image has no folder")
        else:
            index._add_block(line)
    return index


def _checked_lines(stream: BufferedReader) -> Iterator[tuple[str, bytes]]:
    """Yield the checksum and the JSON text of each line; a line that is cut off is the end.

    Raises ValueError if a checksum is wrong.
    """
    checksum = ""
    while line := stream.readline(_LONGEST_LINE):
        if not line.endswith(b"\n"):
            if len(line) == _LONGEST_LINE:
                raise ValueError("a line is too long")
            return
        stored, _, text = line[:-1].partition(b" ")
        checksum = _checksum(checksum, text)
        if stored != checksum.encode():
            raise ValueError("the checksum of a line is wrong")
        yield checksum, text


def _checksum(before: str, text: bytes) -> str:
    return hashlib.sha256(before.encode() + text).hexdigest()
