"""Write images to a pack, in one pass and bounded memory; a writer that is killed is resumed by the next one.

pack_index.py describes the files. Running the writer again appends the images that were added in the meantime; bytes
that were written are never moved or changed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedRandom
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deeplda.data.folder import check_broken
from deeplda.data.folder_options import FolderOptions
from deeplda.data.listed_source import Samples
from deeplda.data.listing import ImageFile, Listing
from deeplda.data.pack_index import IMAGES_FILE, INDEX_FILE, ClassFolder, PackIndex, is_pack, read_index
from deeplda.errors import InputError
from deeplda.formatting import counted
from deeplda.memory import gib
from deeplda.output_folder import OutputFolder

# A block has about this many bytes, and at most this many images.
_BLOCK_BYTES, _MOST_IMAGES = 2**24, 2_048
_LOCK = ".lock"

# Yields the blocks of images unchanged, and reports progress on this activity over this many images.
Watch = Callable[[Iterator[NDArray[np.uint8]], int, str], Iterator[NDArray[np.uint8]]]


class PackableImages(Protocol):
    """Images that can be packed: those of a folder, of arrays, or of Parquet files."""

    @property
    def listing(self) -> Listing:
        """The images with their classes and parts, in the order in which they are packed."""

    def shape(self, files: Sequence[ImageFile], image_size: int | None) -> tuple[int, int, int] | None:
        """Return the (C, H, W) to which images are decoded; None if none of them can be read.

        Raises InputError if the images have different sizes and `image_size` is None.
        """

    def digests(self, files: Sequence[ImageFile]) -> list[bytes | None]:
        """Return the digest of the content of each image; None if it cannot be read."""

    def read(self, files: Sequence[ImageFile], shape: tuple[int, int, int], *, resize: bool) -> Samples:
        """Decode images to `shape`."""


class OutdatedPackError(InputError):
    """A pack has images that are no longer in its source, or that have changed there."""


@dataclass(frozen=True)
class Packed:
    """What was written: the number of new images and of all images in the pack, and sentences for the user."""

    added: int
    images: int
    notes: tuple[str, ...]


def write_pack(
    path: Path, source: PackableImages, options: FolderOptions, watch: Watch, *, wait: bool = False
) -> Packed:
    """Write the images to a new pack, resume an incomplete one, or append the images that a complete one lacks.

    If another process is writing the pack, raises InputError or, with `wait`, waits for it.

    Raises InputError if images of the pack were removed or changed, if others do not fit its shape, if too many files
    are broken, or if the disk is too small; and OSError if it cannot be written.
    """
    listing = source.listing
    listing.require_all_classes(listing.files)
    with OutputFolder.open(path) as output, output.locked(_LOCK, wait=wait):
        if others := sorted(output.names() - {_LOCK, IMAGES_FILE, INDEX_FILE}):
            what = f"{path} contains {others[0]!r}, which is not part of a pack"
            raise InputError(what, need="a new or empty folder, or a pack", do="choose another one")
        index = read_index(path) if is_pack(path) else None
        if index is not None:
            new = _require_same(path, source, index)
            _require_fitting(path, source, index, new, options.image_size)
        else:
            new = list(listing.files)
            index = PackIndex(_first_shape(source, options.image_size), resized=options.image_size is not None)
            output.append_lines(INDEX_FILE, index.start())
        _require_space(path, len(new) * index.image_bytes)
        before = len(index.names)
        blocks = _blocks(output, source, index, new)
        for _ in watch(blocks, len(new), f"packing {listing.folder.name}") if new else blocks:
            pass
        if not index.is_complete:
            skipped = _require_readable(source, index, options)
            output.append_lines(INDEX_FILE, index.end(listing.class_names, skipped))
        notes = (*listing.notes, *(f"skipped: {reason}" for reason in index.skipped.values()))
        return Packed(len(index.names) - before, len(index.names), notes)


def _blocks(
    output: OutputFolder, source: PackableImages, index: PackIndex, files: Sequence[ImageFile]
) -> Iterator[NDArray[np.uint8]]:
    """Write images block by block, and yield the blocks.

    Files that were skipped before come last, and no block is written if they still cannot be read. So the blocks of a
    writer that was interrupted and resumed are those of one that was not.
    """
    again = [file for file in files if file.relative in index.skipped]
    untried = [file for file in files if file.relative not in index.skipped]
    size = max(1, min(_MOST_IMAGES, _BLOCK_BYTES // index.image_bytes))
    with output.resumable(IMAGES_FILE) as stream:
        _cut(output.path, stream, len(index.names) * index.image_bytes)
        for several in (untried, again):
            for start in range(0, len(several), size):
                samples = source.read(several[start : start + size], index.shape, resize=index.resized)
                if samples.files or several is untried:
                    _append(output, stream, source.listing, index, samples)
                yield np.asarray(samples.pixels)


def _append(output: OutputFolder, stream: BufferedRandom, listing: Listing, index: PackIndex, samples: Samples) -> None:
    """Write a block: first the pixels, and once they are on disk, the line of the index."""
    pixels = np.ascontiguousarray(samples.pixels)
    stream.write(pixels.data)
    stream.flush()
    os.fsync(stream.fileno())
    images = [
        (ClassFolder(_text(file.class_folder), listing.class_names[file.label], file.part), _text(file.name), digest)
        for file, digest in zip(samples.files, samples.digests.tolist(), strict=True)
    ]
    skipped = {file.relative: str(error) for file, error in samples.errors.items()}
    output.append_lines(INDEX_FILE, index.block(images, skipped, hashlib.sha256(pixels.data).hexdigest()))


def _cut(path: Path, stream: BufferedRandom, size: int) -> None:
    """Remove what an interrupted writer left after the last block, and continue there."""
    if stream.seek(0, os.SEEK_END) < size:
        raise InputError(f"{path / IMAGES_FILE} is too short for its index: remove {path}, and pack the images again")
    stream.truncate(size)
    stream.seek(size)


def _text(name: str) -> str:
    """Return a name as text; bytes that are not UTF-8 are escaped, as in `ImageFile.relative`."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _first_shape(source: PackableImages, image_size: int | None) -> tuple[int, int, int]:
    shape = source.shape(source.listing.files, image_size)
    if shape is None:
        source.listing.require_all_classes(())
        raise AssertionError("a listing has classes")
    return shape


def _require_same(path: Path, source: PackableImages, index: PackIndex) -> list[ImageFile]:
    """Return the images of the source that are not in the pack. Raises OutdatedPackError if one in it has changed."""
    packed = dict(zip(index.files(), index.digests.tolist(), strict=True))
    files = {file.relative: file for file in source.listing.files}
    known = [name for name in packed if name in files]
    found = zip(known, source.digests([files[name] for name in known]), strict=True)
    wrong = [name for name in packed if name not in files] + [name for name, digest in found if packed[name] != digest]
    if wrong:
        what = f"{counted(len(wrong), 'image')} of {path} have changed in {source.listing.folder} or are missing there"
        raise OutdatedPackError(f"{what}, such as {wrong[0]}: pack the images into a new folder")
    return [file for name, file in files.items() if name not in packed]


def _require_fitting(
    path: Path, source: PackableImages, index: PackIndex, new: Sequence[ImageFile], image_size: int | None
) -> None:
    """Raise InputError if another size is requested, or if new images do not have the shape of those in the pack."""
    size = f"{index.shape[2]} x {index.shape[1]} pixels"
    if image_size is not None and not (index.resized and index.shape[1] == image_size):
        what = f"{path} has images of {size}{'' if index.resized else ', which were not resized'}"
        raise InputError(f"{what}: omit --image-size, or pack into a new folder")
    shape = source.shape(new, index.shape[1] if index.resized else None)
    if shape is None:
        return
    if shape[0] > index.shape[0]:
        raise InputError(f"{path} has greyscale images, but there are new colour images: pack into a new folder")
    if shape[1:] != index.shape[1:]:
        do = "pack them into a new folder with --image-size"
        raise InputError(f"{path} has images of {size}, but new ones have {shape[2]} x {shape[1]}: {do}")


def _require_space(path: Path, size: int) -> None:
    free = shutil.disk_usage(path).free
    if size > free:
        do = "free some, or choose another disk or a smaller --image-size"
        raise InputError(f"the images take {gib(size)}, but the disk of {path} has only {gib(free)} left: {do}")


def _require_readable(source: PackableImages, index: PackIndex, options: FolderOptions) -> dict[str, str]:
    """Return the errors of files that were skipped. Raises InputError if they are too many."""
    listing = source.listing
    skipped = {file: index.skipped[name] for file in listing.files if (name := file.relative) in index.skipped}
    check_broken(listing, {file: InputError(reason) for file, reason in skipped.items()}, options)
    listing.require_all_classes(file for file in listing.files if file not in skipped)
    return {file.relative: reason for file, reason in skipped.items()}
