"""Read a pack: images in a memory-mapped file, with labels, names and checksums. The writer is in pack_writer.py."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deeplda.data.dataset import Labels, check_class_names
from deeplda.data.pack_index import IMAGES_FILE, Block, ClassFolder, read_index
from deeplda.data.splitting import Digests
from deeplda.errors import InputError, unreadable
from deeplda.io import expanded, open_regular
from deeplda.memory import require_memory

_CHUNK = 2**22


@dataclass(frozen=True, eq=False)
class Pack:
    """An open pack.

    Attributes:
        path: the folder.
        images: uint8, N x C x H x W, read-only. The array is memory-mapped: pixels are read from disk when they are
            used, and the system can drop them again.
        labels: (N,) int64, indices into `class_names`.
        class_names: the names of the classes.
        files: the path of each image in the folder that was packed.
        class_folders: the class folder of each image.
        digests: (N,), the digest of each image's file.
        blocks: consecutive images whose pixels have one checksum.
        skipped: the paths of files that could not be read when the images were packed.
    """

    path: Path
    images: NDArray[np.uint8]
    labels: Labels
    class_names: tuple[str, ...]
    files: tuple[str, ...]
    class_folders: tuple[ClassFolder, ...]
    digests: Digests
    blocks: tuple[Block, ...]
    skipped: tuple[str, ...]


def open_pack(path: str | Path) -> Pack:
    """Open a pack that `deeplda data pack` has written, without reading its pixels.

    The index is verified by its checksums, the pixels are not; `deeplda data check` does that.

    Raises InputError if the pack is incomplete, damaged, or cannot be read.
    """
    folder = expanded(path)
    index = read_index(folder)
    end = index.completion if index else None
    if index is None or end is None:
        do = "run the deeplda data pack command again, which continues where it stopped"
        raise InputError(f"{folder} is incomplete: {do}")
    check_class_names(str(folder), end.class_names)
    files, class_folders = tuple(index.files())[: end.images], tuple(index.folders[: end.images])
    number = {name: label for label, name in enumerate(end.class_names)}
    if not files or len(set(files)) != len(files):
        raise _damaged(folder, "it has no images, or several with the same name")
    if len(number) != len(end.class_names) or not {place.class_name for place in class_folders} <= {*number}:
        raise _damaged(folder, "its images and classes contradict each other")
    return Pack(
        folder,
        _mapped(folder, (end.images, *index.shape)),
        np.array([number[place.class_name] for place in class_folders], dtype=np.int64),
        end.class_names,
        files,
        class_folders,
        index.digests[: end.images],
        tuple(index.blocks[: end.blocks]),
        tuple(end.skipped),
    )


def damaged_blocks(pack: Pack) -> Iterator[tuple[Block, str]]:
    """Read all pixels of a pack, and yield the blocks whose checksum is wrong, each with the path of its first image.

    Raises OSError if they cannot be read.
    """
    with open_regular(pack.path / IMAGES_FILE) as stream:
        for block in pack.blocks:
            found, rest = hashlib.sha256(), (block.stop - block.start) * pack.images[0].size
            while rest and (chunk := stream.read(min(_CHUNK, rest))):
                found.update(chunk)
                rest -= len(chunk)
            if found.hexdigest() != block.sha256:
                yield block, (pack.files[block.start] if block.stop > block.start else "the end")


def _mapped(folder: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Map the pixels of a pack. Their number is checked against the size of the file first."""
    file, needed = folder / IMAGES_FILE, math.prod(shape)
    # A single image is read at once, whatever the size that an untrusted index declares.
    do = "pack the images again with a smaller --image-size"
    require_memory(math.prod(shape[1:]), f"an image in {folder}", do=do)
    try:
        with open_regular(file) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size < needed:
                raise _damaged(folder, f"{IMAGES_FILE} has {size:,} bytes instead of {needed:,}")
            return np.memmap(stream, dtype=np.uint8, mode="r", shape=shape)
    except OSError as error:
        raise unreadable(file, error, "pack the images again") from None


def _damaged(folder: Path, reason: str) -> InputError:
    return InputError(f"{folder} is damaged ({reason}): restore it, or pack the images again")
