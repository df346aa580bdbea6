"""Pack a source of images by its name or path, and folders that are too large for memory into the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deeplda.data.folder_options import FolderOptions
from deeplda.data.image_parquet import ParquetImages, parquet_files
from deeplda.data.images import read_header
from deeplda.data.listing import Listing, list_images
from deeplda.data.pack_writer import OutdatedPackError, PackableImages, Packed, Watch, write_pack
from deeplda.data.packable_images import ArrayImages, FolderImages
from deeplda.data.sources import data_folder, find_source, read_source
from deeplda.errors import InputError
from deeplda.io import expanded
from deeplda.memory import fits_in_memory, gib
from deeplda.output_folder import OutputFolder


def _unwatched(blocks: Iterator[NDArray[np.uint8]], _images: int, _activity: str) -> Iterator[NDArray[np.uint8]]:
    return blocks


def pack_data(
    source: str | Path,
    out: str | Path,
    *,
    image_size: int | None = None,
    data_dir: Path | None = None,
    skip_unreadable: bool = False,
    strict: bool = False,
    watch: Watch = _unwatched,
) -> Packed:
    """Write the images of a source to the pack `out`, which `load_data` and `open_pack` read.

    If the pack exists, the images that were added to the source since are appended; if a process was killed while
    writing it, this continues where that one stopped.

    Args:
        source: a folder of images, an .npz file or known name with images, a Parquet file of images as Hugging Face
            writes them, or a folder of these.
        image_size: resize every image to this height and width; by default, they must all have the same size.
        data_dir, skip_unreadable, strict: as in `load_data`.
        watch: receives the blocks that are written, their number of images, and a description, to report progress.

    Raises InputError if the source cannot be read, or if the pack has images that were removed or changed since.
    """
    if image_size is not None and image_size < 1:
        raise InputError(f"image_size is {image_size}, need at least 1 pixel")
    options = FolderOptions(image_size, skip_unreadable, strict)
    return write_pack(expanded(out), _images(source, data_dir), options, watch)


def packed_if_large(
    folder: Path,
    *,
    options: FolderOptions,
    data_dir: Path | None,
    processes: int,
    note: Callable[[str], None],
    watch: Watch = _unwatched,
) -> Path:
    """Return the folder of images or, if it would take more than half of the memory, a pack of it in the cache.

    Args:
        processes: how many processes would keep the folder in memory.
        note: called with a sentence about the pack before it is written.

    Raises InputError if the folder cannot be listed or packed.
    """

    def fits(size: int) -> bool:
        return fits_in_memory(processes * size)

    size = _decoded_size(list_images(folder), options.image_size, fits)
    if fits(size):
        return folder
    pack = _cached(folder, options.image_size, data_dir)
    note(f"the pixels of {folder} take {gib(size)}, too much for the memory, so they are packed into {pack}")
    images = FolderImages(folder)
    try:
        write_pack(pack, images, options, watch, wait=True)
    except OutdatedPackError as error:
        note(f"{error}; packing them again now")
        with OutputFolder.open(pack.parent) as parent:
            parent.remove(pack.name)
        write_pack(pack, images, options, watch, wait=True)
    return pack


def _images(source: str | Path, data_dir: Path | None) -> PackableImages:
    path = expanded(source)
    if parquet_files(path):
        return ParquetImages(path)
    place = find_source(source)
    if place.kind == "pack":
        raise InputError(f"{source} is a pack already: pack the images that it was written from")
    if place.kind == "folder":
        return FolderImages(place.path)
    return ArrayImages(read_source(source, data_dir, replace(FolderOptions(), split="seed")))


def _decoded_size(listing: Listing, image_size: int | None, fits: Callable[[int], bool]) -> int:
    """Return the number of bytes that the images of a folder take in memory, without reading more than necessary.

    If they have different sizes, it is computed from one of them; reading the folder is an error then.
    """
    pixels = 0
    for file in listing.files:
        try:
            header = read_header(file.path)
        except InputError:
            continue
        height, width = (image_size, image_size) if image_size else header.size
        pixels = len(listing.files) * height * width
        # One colour image makes all of them take three channels. If these fit anyway, there is no need to look for it.
        if not header.grey or fits(3 * pixels):
            return 3 * pixels
    return pixels


def _cached(folder: Path, image_size: int | None, data_dir: Path | None) -> Path:
    """Return where the pack of a folder is: it depends on the folder's path and on the size of the images."""
    digest = hashlib.blake2b(f"{folder.resolve()}\0{image_size}".encode("utf-8", "surrogatepass"), digest_size=8)
    return data_folder(data_dir) / "packs" / digest.hexdigest() / f"{folder.resolve().name}.pack"
