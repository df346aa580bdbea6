"""Read a folder of images, with one subfolder per class, optionally inside train/, val/ and test/."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from deeplda.data.dataset import ImageOutline, Source, missing_parts
from deeplda.data.folder_options import FolderOptions, Grown
from deeplda.data.images import Header, decode_and_digest, file_digest, in_threads, read_header
from deeplda.data.listed_source import Samples, labelled_source, new_source, stored_source
from deeplda.data.listing import ImageFile, Listing, list_images, list_labelled
from deeplda.data.splitting import DIGEST_DTYPE
from deeplda.data.stored_split import StoredSplit
from deeplda.errors import InputError
from deeplda.formatting import counted
from deeplda.memory import TooLargeError, require_memory

# The fraction of a class's files that may be broken.
_BROKEN_SHARE = 0.05
# The number of headers that an outline reads.
_OUTLINED = 1_000
_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


def read_folder(folder: Path, options: FolderOptions) -> Source:
    """Read all images in a folder, and split them.

    The result is greyscale if every file is greyscale (a palette image counts as colour), and colour otherwise, unless
    an earlier run determines it.

    Raises InputError if the folder has no classes, a class has no images, the splits have different classes, too many
    files are broken, image sizes differ, or the images do not fit in memory; and, with an exact stored split, if the
    folder no longer has its images.
    """
    listing = list_images(folder)
    if isinstance(options.split, StoredSplit):
        stored = options.split

        def read(files: Sequence[ImageFile]) -> Samples:
            return decoded(folder, files, stored.shape, resize=True)

        return stored_source(listing, stored, options, read)
    listing.require_all_classes(listing.files)
    headers, errors = attempt_all(read_header, {file: file.path for file in listing.files})
    check_broken(listing, errors, options)
    listing.require_all_classes(headers)
    before = options.split.before if isinstance(options.split, Grown) else None
    shape = _sample_shape(headers, options.image_size, before)
    samples = decoded(folder, list(headers), shape, resize=bool(options.image_size or before))
    errors |= samples.errors
    check_broken(listing, errors, options)
    listing.require_all_classes(samples.files)
    return new_source(listing, replace(samples, errors=errors), options)


def read_labelled(folder: Path, shape: tuple[int, ...]) -> tuple[Source, str]:
    """Read the images in test/ or, without such a folder, all images in a folder, to evaluate a model on them.

    They are the training part of the result, with C x H x W given by `shape`; unreadable files are skipped. The second
    result is "test" or "all". Raises InputError if the folder has no classes or no readable image, or if the images do
    not fit in memory.
    """
    listing = list_labelled(folder)
    samples = decoded(folder, listing.files, shape, resize=True)
    if not samples.files:
        what = f"{folder} has no readable image in its class folders"
        raise InputError("; ".join([what, *listing.notes, *map(str, list(samples.errors.values())[:1])]))
    return labelled_source(listing, samples)


def outline_folder(folder: Path) -> ImageOutline:
    """Return the outline of a folder of images from its list of files and some of their headers.

    The sizes are those of at most `_OUTLINED` files, evenly spread over the folder, without those whose headers cannot
    be read. Raises InputError as `list_images` does.
    """
    listing = list_images(folder)
    files = listing.files
    places = np.unique(np.linspace(0, len(files) - 1, _OUTLINED).astype(int)) if files else ()
    headers, _ = attempt_all(read_header, {files[place]: files[place].path for place in places})
    own = sum(file.part == "train" for file in files)
    return ImageOutline(
        sizes=np.array([header.size for header in headers.values()], dtype=np.int64).reshape(-1, 2),
        images=own - sum(missing_parts(own, listing.parts).values()),
        classes=len(listing.class_names),
    )


def folder_changes(folder: Path, stored: StoredSplit) -> str | None:
    """Return how a folder differs from a stored split, or None if it does not; only added images are decoded."""
    listing = list_images(folder)
    known = set(stored.files)
    digests, _ = attempt_all(
        lambda file: file_digest(file.path) if file.relative in known else decode_and_digest(file.path, 1)[1],
        {file: file for file in listing.files},
    )
    files = [file.relative for file in digests]
    changes = stored.compare(files, np.array(list(digests.values()), dtype=DIGEST_DTYPE))
    return changes.sentence() if changes else None


def attempt_all(
    function: Callable[[_Item], _Found], items: Mapping[ImageFile, _Item]
) -> tuple[dict[ImageFile, _Found], dict[ImageFile, InputError]]:
    """Apply a function in threads, and return its results and the InputErrors that it raised, by file."""

    def attempt(item: _Item) -> _Found | InputError:
        try:
            return function(item)
        except InputError as error:
            return error

    found: dict[ImageFile, _Found] = {}
    errors: dict[ImageFile, InputError] = {}
    for file, result in zip(items, in_threads(attempt, items.values()), strict=True):
        if isinstance(result, InputError):
            errors[file] = result
        else:
            found[file] = result
    return found, errors


def decoded(folder: Path, files: Sequence[ImageFile], shape: tuple[int, ...], *, resize: bool) -> Samples:
    """Decode images to C x H x W, and compute their digests. Raises TooLargeError if they do not fit in memory."""
    channels, size = shape[0], (shape[1], shape[2])
    what = f"{folder} at {size[0]} x {size[1]}"
    require_memory(len(files) * channels * size[0] * size[1], what)
    try:
        pixels = np.empty((len(files), channels, *size), dtype=np.uint8)
    except (MemoryError, ValueError):  # less is allowed than the system has; ValueError: more than an array can hold
        raise TooLargeError(f"{what} does not fit in memory") from None

    def fill(place: int) -> bytes:
        image, digest = decode_and_digest(files[place].path, channels, size if resize else None)
        if image.shape[1:] != size:  # the header was wrong
            raise different_sizes(files[0].path, size, files[place].path, image.shape[1:])
        pixels[place] = image
        return digest

    digests, errors = attempt_all(fill, {file: place for place, file in enumerate(files)})
    kept = [place for place, file in enumerate(files) if file in digests] if errors else slice(None)
    return Samples(tuple(digests), pixels[kept], np.array(list(digests.values()), dtype=DIGEST_DTYPE), errors)


def check_broken(listing: Listing, errors: Mapping[ImageFile, InputError], options: FolderOptions) -> None:
    """Raise InputError if a class has too many broken files."""
    if options.strict:
        for error in errors.values():
            raise error
    if options.skip_unreadable:
        return
    sizes = Counter(file.label for file in listing.files)
    for label, count in Counter(file.label for file in errors).items():
        if count > _BROKEN_SHARE * sizes[label]:
            first = next(error for file, error in errors.items() if file.label == label)
            what = f"{count} of {counted(sizes[label], 'image')} of the class {listing.class_names[label]} are broken"
            do = f"replace or remove them, or pass --skip-unreadable; the first: {first}"
            raise InputError(what, need=f"at most {_BROKEN_SHARE:.0%}", do=do)


def _sample_shape(
    headers: Mapping[ImageFile, Header], image_size: int | None, before: StoredSplit | None
) -> tuple[int, int, int]:
    """Return C x H x W of the samples, where an earlier run, if there is one, determines what the user left open."""
    if before is None:
        return common_shape(headers, image_size)
    return (before.shape[0], image_size, image_size) if image_size else before.shape


def common_shape(headers: Mapping[ImageFile, Header], image_size: int | None) -> tuple[int, int, int]:
    """Return the (C, H, W) of images: one channel if all are greyscale, and the given or their common size.

    Raises InputError if no size is given and theirs differ.
    """
    channels = 1 if all(header.grey for header in headers.values()) else 3
    if image_size is not None:
        return channels, image_size, image_size
    (first, expected), *_ = headers.items()
    for file, header in headers.items():
        if header.size != expected.size:
            raise different_sizes(first.path, expected.size, file.path, header.size)
    return channels, *expected.size


def different_sizes(one: Path, size: tuple[int, ...], other: Path, other_size: tuple[int, ...]) -> InputError:
    """Return the error for images of different sizes, if no size is given to which they could be resized."""
    what = f"{one} is {size[1]} x {size[0]} and {other} is {other_size[1]} x {other_size[0]} pixels"
    do = "pass --image-size, for example --image-size 64"
    return InputError(what, need="the same size for all images", do=do)
