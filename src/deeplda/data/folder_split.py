"""Decide which images of a folder belong to training, validation and test, for a new run and for an earlier one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deeplda.data.dataset import TEST_SHARE, VAL_SHARE, part_size, too_few
from deeplda.data.listing import ImageFile, Listing
from deeplda.data.splitting import (
    PARTS,
    TEST,
    TRAIN,
    VAL,
    Assignment,
    Digests,
    PartCodes,
    assign_added,
    conflicting_duplicates,
    group_digests,
    split_by_content,
    without_groups,
)
from deeplda.data.stored_split import Changes, StoredSplit
from deeplda.formatting import counted

# The number of duplicates that are listed by name.
_MOST_LISTED = 5


def split_folder(
    listing: Listing, files: Sequence[ImageFile], digests: Digests, group_by: str | None, seed: int
) -> tuple[Assignment, list[str]]:
    """Split the images of a folder by content, and return their parts and notes about duplicates and groups.

    Images in val/ and test/ stay there; a missing part is split off the training images, `TEST_SHARE` and `VAL_SHARE`
    of them. Raises InputError if the pattern `group_by` cannot be used, or if no image can be spared.
    """
    groups, notes = _groups(files, group_by)
    labels = np.array([file.label for file in files], dtype=np.int64)
    codes = _own_parts(files)
    own = np.flatnonzero(codes == TRAIN)
    sizes = {
        part: part_size(len(own), share) if part not in listing.parts else 0
        for part, share in (("test", TEST_SHARE), ("val", VAL_SHARE))
    }
    found = split_by_content(
        digests[own], labels[own], groups[own], seed=seed, test_size=sizes["test"], val_size=sizes["val"]
    )
    for code, name, kind in ((TEST, "test", "test"), (VAL, "val", "validation")):
        if sizes[name] and not (found == code).any():
            linked = group_by is not None or len(np.unique(digests[own])) < len(own)
            raise too_few(listing.folder.name, len(own), len(np.unique(labels[own])), kind, linked=linked)
    codes[own] = found
    notes += _duplicate_notes(listing, files, digests, labels)
    notes += _shared_notes(digests, codes, "images have the same content as a training image")
    notes += _shared_notes(groups, codes, "images belong to a group with training images")
    return Assignment(digests, groups, codes), notes


def matched(
    listing: Listing,
    files: Sequence[ImageFile],
    digests: Digests,
    stored: StoredSplit,
    changes: Changes,
    *,
    group_by: str | None,
    seed: int,
) -> tuple[PartCodes, NDArray[np.bool_]]:
    """Return the parts (N,) of the images in a folder that was split before, and which of them belong to the run (N,).

    An image with a known path and content has its stored part. A known content under another path has the part of that
    content, and a changed image keeps its part unless its content or group was trained on. All others are assigned by
    their folder or their hash. New images belong to the run only in its test part: the run was not trained on them.
    """
    groups, _ = _groups(files, group_by) if files else (without_groups(0), [])
    shares = [0.0 if part in listing.parts else share for part, share in (("test", TEST_SHARE), ("val", VAL_SHARE))]
    linked = assign_added(stored.assignment, digests, groups, seed=seed, test_share=1.0, val_share=0.0)
    hashed = assign_added(stored.assignment, digests, groups, seed=seed, test_share=shares[0], val_share=shares[1])
    own = _own_parts(files)
    # Linked images take the part of the images that they are linked to, the others that of their folder, if it is not
    # the one that was split.
    codes = np.where(own == TRAIN, hashed, np.minimum(own, linked)).astype(np.int8)
    before = stored.assignment.parts[changes.before]
    codes[changes.changed] = np.minimum(before, linked)[changes.changed]
    codes[changes.same] = before[changes.same]
    # A copy of an image that is still in its place would count twice.
    moved = changes.known & ~changes.same & ~np.isin(digests, digests[changes.same])
    return codes, changes.same | moved | (~changes.known & (codes == TEST))


def _own_parts(files: Sequence[ImageFile]) -> PartCodes:
    return np.array([PARTS.index(file.part) for file in files], dtype=np.int8)


def _groups(files: Sequence[ImageFile], group_by: str | None) -> tuple[Digests, list[str]]:
    if group_by is None:
        return without_groups(len(files)), []
    groups = group_digests([file.name for file in files], group_by)
    alone = int((groups == b"").sum())
    note = f"group_by found {counted(len(np.unique(groups[groups != b''])), 'group')} in {counted(len(files), 'image')}"
    return groups, [f"{note}; {alone:,} without a match are groups of their own" if alone else note]


def _duplicate_notes(
    listing: Listing, files: Sequence[ImageFile], digests: Digests, labels: NDArray[np.int64]
) -> list[str]:
    conflicts = conflicting_duplicates(digests, labels)
    if not conflicts:
        return []
    shown = [" = ".join(listing.relative(files[index]) for index in same) for same in conflicts[:_MOST_LISTED]]
    more = ["..."] if len(conflicts) > _MOST_LISTED else []
    what = f"{counted(len(conflicts), 'image')} with identical copies in other classes"
    return [f"{what}: {', '.join(shown + more)}; remove the wrong copies"]


def _shared_notes(digests: Digests, codes: PartCodes, what: str) -> list[str]:
    """Return notes if training shares digests with validation or test, which only parts of the user's own can."""
    trained = np.unique(digests[(codes == TRAIN) & (digests != b"")])
    counts = {part: int(np.isin(digests[codes == PARTS.index(part)], trained).sum()) for part in ("val", "test")}
    return [
        f"{count:,} of the {part} {what}: the {part} scores may be too good" for part, count in counts.items() if count
    ]
