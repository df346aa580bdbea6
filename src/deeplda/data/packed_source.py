"""The images of a pack as a source, split like those of the folder that was packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from deeplda.data.dataset import Source
from deeplda.data.folder_options import FolderOptions, Grown
from deeplda.data.listed_source import Samples, labelled_source, new_source, stored_source
from deeplda.data.listing import ImageFile, Listing
from deeplda.data.mapped_rows import MappedRows
from deeplda.data.pack import Pack, open_pack
from deeplda.data.stored_split import StoredSplit
from deeplda.errors import InputError


def read_pack(path: Path, options: FolderOptions) -> Source:
    """Return the images of a pack, which stay in its file, in three sets.

    Raises InputError if the pack is incomplete or damaged, if its images cannot be split or, with a stored split, if
    they have another shape or, if it is exact, are not the same.
    """
    pack = open_pack(path)
    listing = _listing(pack)
    stored = options.split
    before = stored.before if isinstance(stored, Grown) and options.image_size is None else stored
    if isinstance(before, StoredSplit) and pack.images.shape[1:] != before.shape:
        found, wanted = (" x ".join(map(str, shape)) for shape in (pack.images.shape[1:], before.shape))
        raise InputError(f"{path} has images of {found} pixels, but those of the run have {wanted}: pack them again")
    if not isinstance(stored, StoredSplit):
        return replace(new_source(listing, _samples(pack, listing.files), options), left_out=pack.skipped)

    def read(files: Sequence[ImageFile]) -> Samples:
        return _samples(pack, files)

    return replace(stored_source(listing, stored, options, read), left_out=pack.skipped)


def read_packed_labelled(path: Path) -> tuple[Source, str]:
    """Return the test images of a pack or, if it has none, all of its images as the training part of a source.

    The second result is "test" or "all".
    """
    pack = open_pack(path)
    listing = _listing(pack)
    if "test" in listing.parts:
        listing = replace(listing, parts=("test",), files=tuple(file for file in listing.files if file.part == "test"))
    return labelled_source(listing, _samples(pack, listing.files))


def _listing(pack: Pack) -> Listing:
    """Return the images of a pack as a listing of the folder that was packed."""
    own = zip(pack.class_folders, pack.files, pack.labels.tolist(), strict=True)
    files = [
        ImageFile(pack.path, folder.path, file[len(folder.path) + 1 :], folder.part, label)
        for folder, file, label in own
    ]
    return Listing.of(pack.path, pack.class_names, files)


def _samples(pack: Pack, files: Sequence[ImageFile]) -> Samples:
    """Return these images of a pack, without reading their pixels."""
    place = {file: index for index, file in enumerate(pack.files)}
    places = np.array([place[f"{file.class_folder}/{file.name}"] for file in files], dtype=np.intp)
    return Samples(files, MappedRows(pack.images, places), pack.digests[places], {})
