"""Read a folder of images, with one subfolder per class, optionally inside train/, val/ and test/."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from deeplda.data.dataset import Labels, Part, Source
from deeplda.data.folder_options import FolderOptions, Grown
from deeplda.data.folder_split import matched, split_folder, split_grown
from deeplda.data.images import Header, decode_and_digest, file_digest, in_threads, read_header
from deeplda.data.listing import ImageFile, Listing, list_images, list_labelled
from deeplda.data.splitting import DIGEST_DTYPE, PARTS, Digests, PartCodes, PartName
from deeplda.data.stored_split import Changes, StoredSplit
from deeplda.errors import InputError, one_line
from deeplda.formatting import counted
from deeplda.memory import TooLargeError, require_memory

# The fraction of a class's files that may be broken.
_BROKEN_SHARE = 0.05
# The number of broken files that are listed by name.
_MOST_LISTED = 10
_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
_Errors = Mapping[ImageFile, InputError]


@dataclass(frozen=True, eq=False)
class _Samples:
    """The images that were decoded, with their files and digests, and the errors of the other files."""

    files: Sequence[ImageFile]
    pixels: NDArray[np.uint8]
    digests: Digests
    errors: _Errors

    @property
    def labels(self) -> Labels:
        return np.array([file.label for file in self.files], dtype=np.int64)


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
        return _read_stored(listing, options.split, options)
    listing.require_all_classes(listing.files)
    headers, errors = _attempt_all(read_header, {file: file.path for file in listing.files})
    _check_broken(listing, errors, options)
    listing.require_all_classes(headers)
    before = options.split.before if isinstance(options.split, Grown) else None
    shape = _sample_shape(headers, options.image_size, before)
    samples = _decoded(listing.folder, list(headers), shape, resize=bool(options.image_size or before))
    errors |= samples.errors
    _check_broken(listing, errors, options)
    listing.require_all_classes(samples.files)
    left_out = tuple(str(file.path) for file in listing.files if file in errors)
    notes = (*listing.notes, *_broken_notes(listing, errors))
    if options.split == "seed":
        codes = np.array([PARTS.index(file.part) for file in samples.files], dtype=np.int8)
        return replace(_source(listing, samples, codes, listing.parts), left_out=left_out, notes=notes)
    found = listing, samples.files, samples.digests, options.group_by, options.seed
    assignment, more = split_grown(*found, before) if before else split_folder(*found)
    return replace(
        _source(listing, samples, assignment.parts, PARTS),
        left_out=left_out,
        notes=(*notes, *more),
        split=StoredSplit(listing.class_names, shape, tuple(map(listing.relative, samples.files)), assignment),
    )


def read_labelled(folder: Path, shape: tuple[int, ...]) -> tuple[Source, str]:
    """Read the images in test/ or, without such a folder, all images in a folder, to evaluate a model on them.

    They are the training part of the result, with C x H x W given by `shape`; unreadable files are skipped. The second
    result is "test" or "all". Raises InputError if the folder has no classes or no readable image, or if the images do
    not fit in memory.
    """
    listing = list_labelled(folder)
    samples = _decoded(folder, listing.files, shape, resize=True)
    if not samples.files:
        what = f"{folder} has no readable image in its class folders"
        raise InputError("; ".join([what, *listing.notes, *map(str, list(samples.errors.values())[:1])]))
    notes = (*listing.notes, *_broken_notes(listing, samples.errors))
    left_out = tuple(str(file.path) for file in samples.errors)
    source = _source(listing, samples, np.zeros(len(samples.files), dtype=np.int8), PARTS[:1])
    return replace(source, left_out=left_out, notes=notes), "test" if listing.parts == ("test",) else "all"


def image_sizes(folder: Path, most: int | None = None) -> NDArray[np.int64]:
    """Return the (height, width) of the upright images in a folder, (N, 2), from their headers.

    Files whose headers cannot be read are left out. With `most`, at most that many files are read, evenly spread over
    the folder. Raises InputError as `list_images` does.
    """
    files = list_images(folder).files
    places = np.arange(len(files)) if most is None else np.unique(np.linspace(0, len(files) - 1, most).astype(int))
    headers, _ = _attempt_all(read_header, {files[place]: files[place].path for place in places if files})
    return np.array([header.size for header in headers.values()], dtype=np.int64).reshape(-1, 2)


def folder_changes(folder: Path, stored: StoredSplit) -> str | None:
    """Return how a folder differs from a stored split, or None if it does not; only added images are decoded."""
    listing = list_images(folder)
    known = set(stored.files)
    digests, _ = _attempt_all(
        lambda file: file_digest(file.path) if listing.relative(file) in known else decode_and_digest(file.path, 1)[1],
        {file: file for file in listing.files},
    )
    files = [listing.relative(file) for file in digests]
    changes = stored.compare(files, np.array(list(digests.values()), dtype=DIGEST_DTYPE))
    return changes.sentence() if changes else None


def _read_stored(listing: Listing, stored: StoredSplit, options: FolderOptions) -> Source:
    """Read a folder whose images were split before."""
    listing, notes = _with_classes(listing, stored.class_names)
    if options.exact:
        listing, added = _only_stored(listing, stored)
        notes += added
    samples = _decoded(listing.folder, listing.files, stored.shape, resize=True)
    names = [listing.relative(file) for file in samples.files]
    changes = stored.compare(names, samples.digests)
    if options.exact:
        _require_unchanged(listing, samples, names, changes)
    codes, kept = matched(
        listing, samples.files, samples.digests, stored, changes, group_by=options.group_by, seed=options.seed
    )
    if changes:
        notes.append(f"{listing.folder} has changed: {changes.sentence(int((kept & changes.new).sum()))}")
    own = replace(
        samples,
        files=[file for file, is_kept in zip(samples.files, kept, strict=True) if is_kept],
        pixels=samples.pixels[kept],
        digests=samples.digests[kept],
    )
    return replace(
        _source(listing, own, codes[kept], PARTS),
        left_out=tuple(str(file.path) for file in samples.errors),
        notes=(*listing.notes, *notes, *_broken_notes(listing, samples.errors)),
        split=stored,
        changed=bool(changes),
    )


def _with_classes(listing: Listing, class_names: tuple[str, ...]) -> tuple[Listing, list[str]]:
    """Return the listing with these classes in this order, and notes about the classes that it has beyond them."""
    number = {name: label for label, name in enumerate(class_names)}
    others = Counter(file.label for file in listing.files if listing.class_names[file.label] not in number)
    notes = [
        f"ignored: the class {listing.class_names[label]} ({counted(count, 'image')}), which the model does not have"
        for label, count in others.items()
    ]
    files = [
        replace(file, label=number[listing.class_names[file.label]])
        for file in listing.files
        if file.label not in others
    ]
    return replace(listing, class_names=class_names, files=tuple(files)), notes


def _only_stored(listing: Listing, stored: StoredSplit) -> tuple[Listing, list[str]]:
    """Return the listing without files that are not in the stored split, and a note about them."""
    known = set(stored.files)
    kept = {listing.relative(file): file for file in listing.files if listing.relative(file) in known}
    if missing := [file for file in stored.files if file not in kept]:
        raise _not_the_same(listing.folder, f"{counted(len(missing), 'image')} missing, such as {missing[0]}")
    notes = []
    if added := len(listing.files) - len(kept):
        notes.append(f"ignored: {counted(added, 'image')} added to {listing.folder} after the run was started")
    # In the stored order, because the batches depend on it.
    return replace(listing, files=tuple(kept[file] for file in stored.files)), notes


def _require_unchanged(listing: Listing, samples: _Samples, names: list[str], changes: Changes) -> None:
    """Raise InputError if a file of a stored split is broken or has another content."""
    for error in samples.errors.values():
        raise _not_the_same(listing.folder, str(error))
    if not changes.same.all():
        what = f"{counted(int((~changes.same).sum()), 'image')} changed, such as {names[changes.same.argmin()]}"
        raise _not_the_same(listing.folder, what)


def _not_the_same(folder: Path, what: str) -> InputError:
    return InputError(f"{folder} has changed since the run started ({what}): restore its images, or start a new run")


def _attempt_all(
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


def _decoded(folder: Path, files: Sequence[ImageFile], shape: tuple[int, ...], *, resize: bool) -> _Samples:
    """Decode images to C x H x W, and compute their digests."""
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
            raise _different_sizes(files[0].path, size, files[place].path, image.shape[1:])
        pixels[place] = image
        return digest

    digests, errors = _attempt_all(fill, {file: place for place, file in enumerate(files)})
    kept = [place for place, file in enumerate(files) if file in digests] if errors else slice(None)
    return _Samples(tuple(digests), pixels[kept], np.array(list(digests.values()), dtype=DIGEST_DTYPE), errors)


def _check_broken(listing: Listing, errors: _Errors, options: FolderOptions) -> None:
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


def _broken_notes(listing: Listing, errors: _Errors) -> list[str]:
    notes = [f"skipped: {error}" for error in list(errors.values())[:_MOST_LISTED]]
    if len(errors) > _MOST_LISTED:
        rest = f"{len(errors) - _MOST_LISTED:,} more broken files"
        notes.append(f"skipped: {rest}; deeplda data check {listing.folder} lists all of them")
    return notes


def _sample_shape(
    headers: Mapping[ImageFile, Header], image_size: int | None, before: StoredSplit | None
) -> tuple[int, int, int]:
    """Return C x H x W of the samples, where an earlier run, if there is one, determines what the user left open."""
    channels = 1 if all(header.grey for header in headers.values()) else 3
    if image_size:
        return before.shape[0] if before else channels, image_size, image_size
    return before.shape if before else (channels, *_common_size(headers))


def _common_size(headers: Mapping[ImageFile, Header]) -> tuple[int, int]:
    (first, expected), *_ = headers.items()
    for file, header in headers.items():
        if header.size != expected.size:
            raise _different_sizes(first.path, expected.size, file.path, header.size)
    return expected.size


def _different_sizes(one: Path, size: tuple[int, ...], other: Path, other_size: tuple[int, ...]) -> InputError:
    what = f"{one} is {size[1]} x {size[0]} and {other} is {other_size[1]} x {other_size[0]} pixels"
    do = "pass --image-size, for example --image-size 64"
    return InputError(what, need="the same size for all images", do=do)


def _source(listing: Listing, samples: _Samples, codes: PartCodes, names: Collection[PartName]) -> Source:
    labels = samples.labels

    def part(name: PartName) -> Part | None:
        if name not in names:
            return None
        places = np.flatnonzero(codes == PARTS.index(name))
        own = (samples.files[place] for place in places.tolist())
        files = tuple(one_line(str(file.path.relative_to(listing.folder))) for file in own)
        # Indexing with an array copies the pixels; a view would keep the pixels of all splits in memory.
        return Part(samples.pixels[places], labels[places], files, samples.digests[places])

    train = part("train")
    assert train is not None
    return Source(listing.folder.resolve().name, train, listing.class_names, val=part("val"), test=part("test"))
