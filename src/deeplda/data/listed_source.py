"""Split listed images, whose pixels are in memory or in a pack, anew or as a run has stored it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from deeplda.data.dataset import Labels, Part, Source, taken
from deeplda.data.folder_options import FolderOptions, Grown
from deeplda.data.folder_split import matched, split_folder, split_grown
from deeplda.data.listing import ImageFile, Listing
from deeplda.data.mapped_rows import MappedRows
from deeplda.data.splitting import PARTS, Digests, PartCodes, PartName
from deeplda.data.stored_split import Changes, StoredSplit
from deeplda.errors import InputError, one_line
from deeplda.formatting import counted

# The number of broken files that are listed by name.
_MOST_LISTED = 10


@dataclass(frozen=True, eq=False)
class Samples:
    """The images that could be read, with their files and digests, and the errors of the other files."""

    files: Sequence[ImageFile]
    pixels: NDArray[np.uint8] | MappedRows
    digests: Digests
    errors: Mapping[ImageFile, InputError]

    @property
    def labels(self) -> Labels:
        """The label of each image, (N,)."""
        return np.array([file.label for file in self.files], dtype=np.int64)


def new_source(listing: Listing, samples: Samples, options: FolderOptions) -> Source:
    """Return the images with a new split, by content or, as in earlier versions, by `dataset.complete`.

    Raises InputError if they cannot be split.
    """
    notes = (*listing.notes, *broken_notes(listing, samples.errors))
    if options.split == "seed":
        codes = np.array([PARTS.index(file.part) for file in samples.files], dtype=np.int8)
        return replace(_source(listing, samples, codes, listing.parts), notes=notes)
    found = listing, samples.files, samples.digests, options.group_by, options.seed
    before = options.split.before if isinstance(options.split, Grown) else None
    assignment, more = split_grown(*found, before) if before else split_folder(*found)
    channels, height, width = samples.pixels.shape[1:]
    files = tuple(file.relative for file in samples.files)
    return replace(
        _source(listing, samples, assignment.parts, PARTS),
        notes=(*notes, *more),
        split=StoredSplit(listing.class_names, (channels, height, width), files, assignment),
    )


def stored_source(
    listing: Listing, stored: StoredSplit, options: FolderOptions, read: Callable[[Sequence[ImageFile]], Samples]
) -> Source:
    """Return the images of a run in the parts that it stored, and new ones in its test part.

    Raises InputError if, with `options.exact`, an image of the run is missing or changed.
    """
    listing, notes = _with_classes(listing, stored.class_names)
    if options.exact:
        listing, added = _only_stored(listing, stored)
        notes += added
    samples = read(listing.files)
    names = [file.relative for file in samples.files]
    changes = stored.compare(names, samples.digests)
    if options.exact:
        _require_unchanged(listing, samples, names, changes)
    codes, kept = matched(
        listing, samples.files, samples.digests, stored, changes, group_by=options.group_by, seed=options.seed
    )
    if changes:
        notes.append(f"{listing.folder} has changed: {changes.sentence(int((kept & changes.new).sum()))}")
    places = np.flatnonzero(kept)
    own = replace(
        samples,
        files=[samples.files[place] for place in places.tolist()],
        pixels=cast("NDArray[np.uint8] | MappedRows", taken(samples.pixels, places)),
        digests=samples.digests[places],
    )
    return replace(
        _source(listing, own, codes[places], PARTS),
        notes=(*listing.notes, *notes, *broken_notes(listing, samples.errors)),
        split=stored,
        changed=bool(changes),
    )


def labelled_source(listing: Listing, samples: Samples) -> tuple[Source, str]:
    """Return a source whose training part are all of these images, to evaluate a model on, and "test" or "all"."""
    source = _source(listing, samples, np.zeros(len(samples.files), dtype=np.int8), PARTS[:1])
    notes = (*listing.notes, *broken_notes(listing, samples.errors))
    return replace(source, notes=notes), "test" if listing.parts == ("test",) else "all"


def broken_notes(listing: Listing, errors: Mapping[ImageFile, InputError]) -> list[str]:
    """Return sentences about the first broken files, and the number of the others."""
    notes = [f"skipped: {error}" for error in list(errors.values())[:_MOST_LISTED]]
    if len(errors) > _MOST_LISTED:
        rest = f"{len(errors) - _MOST_LISTED:,} more broken files"
        notes.append(f"skipped: {rest}; deeplda data check {listing.folder} lists all of them")
    return notes


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
    kept = {name: file for file in listing.files if (name := file.relative) in known}
    if missing := [file for file in stored.files if file not in kept]:
        raise _not_the_same(listing.folder, f"{counted(len(missing), 'image')} missing, such as {missing[0]}")
    notes = []
    if added := len(listing.files) - len(kept):
        # Telling broken images from new ones would take decoding them.
        what = f"{counted(added, 'image')} in {listing.folder} with which the run was not started"
        notes.append(f"ignored: {what} (broken, or added since)")
    # In the stored order, because the batches depend on it.
    return replace(listing, files=tuple(kept[file] for file in stored.files)), notes


def _require_unchanged(listing: Listing, samples: Samples, names: list[str], changes: Changes) -> None:
    """Raise InputError if a file of a stored split is broken or has another content."""
    for error in samples.errors.values():
        raise _not_the_same(listing.folder, str(error))
    if not changes.same.all():
        what = f"{counted(int((~changes.same).sum()), 'image')} changed, such as {names[changes.same.argmin()]}"
        raise _not_the_same(listing.folder, what)


def _not_the_same(folder: Path, what: str) -> InputError:
    return InputError(f"{folder} has changed since the run started ({what}): restore its images, or start a new run")


def _source(listing: Listing, samples: Samples, codes: PartCodes, names: Collection[PartName]) -> Source:
    labels = samples.labels

    def part(name: PartName) -> Part | None:
        if name not in names:
            return None
        places = np.flatnonzero(codes == PARTS.index(name))
        own = (samples.files[place] for place in places.tolist())
        files = tuple(one_line(f"{file.class_folder}/{file.name}") for file in own)
        # Selecting by indices copies pixels in memory; a view would keep those of all splits.
        return Part(taken(samples.pixels, places), labels[places], files, samples.digests[places])

    train, name = part("train"), listing.folder.resolve().name
    assert train is not None
    left_out = tuple(str(file.path) for file in listing.files if file in samples.errors)
    return Source(name, train, listing.class_names, val=part("val"), test=part("test"), left_out=left_out)
