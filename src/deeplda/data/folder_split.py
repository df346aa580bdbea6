"""Decide which images of a folder belong to training, validation and test, for a new run and for an earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from deeplda.data.dataset import missing_parts, missing_shares, too_few
from deeplda.data.listing import ImageFile, Listing
from deeplda.data.splitting import (
    PARTS,
    TEST,
    TRAIN,
    VAL,
    Assignment,
    Digests,
    Labels,
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
    codes[own] = _split_anew(listing, digests[own], labels[own], groups[own], seed)
    found = Assignment(digests, groups, codes)
    return found, notes + _checked(listing, files, labels, found)


def split_grown(
    listing: Listing, files: Sequence[ImageFile], digests: Digests, group_by: str | None, seed: int, before: StoredSplit
) -> tuple[Assignment, list[str]]:
    """Split a folder for a run that starts from an earlier one, and return the parts and notes as `split_folder` does.

    No image that the earlier run was trained on is tested: its images keep their parts, and added ones have the parts
    that `matched` gives them, so that both runs are tested on the same images. A class of which the earlier run had no
    image is split as in a new run.
    """
    groups, notes = _groups(files, group_by)
    labels = np.array([file.label for file in files], dtype=np.int64)
    changes = before.compare([file.relative for file in files], digests)
    codes, _ = matched(listing, files, digests, before, changes, group_by=group_by, seed=seed)
    old = changes.known | changes.changed
    # Once more, with the groups that this run's pattern finds in the images of the earlier one.
    known = _joined(before.assignment, Assignment(digests[old], groups[old], codes[old]))
    before = replace(before, assignment=known)
    codes, _ = matched(listing, files, digests, before, changes, group_by=group_by, seed=seed)
    own = _own_parts(files)
    fresh = (own == TRAIN) & ~np.isin(labels, labels[old])
    others = _joined(known, Assignment(digests[~fresh], groups[~fresh], codes[~fresh]))
    # Whatever the share, images that are linked to others go to their part.
    parts = [
        assign_added(others, digests[fresh], groups[fresh], seed=seed, test_share=share, val_share=0.0)
        for share in (0.0, 1.0)
    ]
    codes[fresh] = parts[0]
    if len(free := np.flatnonzero(fresh)[parts[0] != parts[1]]):
        codes[free] = _split_anew(listing, digests[free], labels[free], groups[free], seed)
    new = changes.sentence(int((changes.new & (codes == TEST)).sum()))
    notes.append(f"compared with the run that this one starts from, whose images keep their parts: {new}")
    if moved := int((codes < own).sum()):
        notes.append(f"{counted(moved, 'image')} in val or test folders stay in the part that the earlier run used")
    found = Assignment(digests, groups, codes)
    return found, notes + _checked(listing, files, labels, found)


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
    shares = missing_shares(listing.parts)
    linked = assign_added(stored.assignment, digests, groups, seed=seed, test_share=1.0, val_share=0.0)
    hashed = assign_added(
        stored.assignment, digests, groups, seed=seed, test_share=shares["test"], val_share=shares["val"]
    )
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


def _split_anew(listing: Listing, digests: Digests, labels: Labels, groups: Digests, seed: int) -> PartCodes:
    """Split images by content into training images and those parts for which there is no folder."""
    sizes = missing_parts(len(labels), listing.parts)
    return split_by_content(digests, labels, groups, seed=seed, test_size=sizes["test"], val_size=sizes["val"])


def _joined(one: Assignment, other: Assignment) -> Assignment:
    return Assignment(
        np.concatenate([one.digests, other.digests]),
        np.concatenate([one.groups, other.groups]),
        np.concatenate([one.parts, other.parts]),
    )


def _checked(listing: Listing, files: Sequence[ImageFile], labels: Labels, found: Assignment) -> list[str]:
    """Return notes about duplicates and groups in a split. Raises InputError if a part is empty."""
    for code, kind in ((TEST, "test"), (VAL, "validation")):
        if not (found.parts == code).any():
            own = _own_parts(files) == TRAIN
            linked = bool((found.groups != b"").any()) or len(np.unique(found.digests[own])) < own.sum()
            raise too_few(listing.folder.name, int(own.sum()), len(np.unique(labels[own])), kind, linked=linked)
    return [
        *_duplicate_notes(files, found.digests, labels),
        *_shared_notes(found.digests, found.parts, "images have the same content as a training image"),
        *_shared_notes(found.groups, found.parts, "images belong to a group with training images"),
    ]


def _groups(files: Sequence[ImageFile], group_by: str | None) -> tuple[Digests, list[str]]:
    if group_by is None:
        return without_groups(len(files)), []
    groups = group_digests([file.name for file in files], group_by)
    alone = int((groups == b"").sum())
    note = f"group_by found {counted(len(np.unique(groups[groups != b''])), 'group')} in {counted(len(files), 'image')}"
    return groups, [f"{note}; {alone:,} without a match are groups of their own" if alone else note]


def _duplicate_notes(files: Sequence[ImageFile], digests: Digests, labels: NDArray[np.int64]) -> list[str]:
    conflicts = conflicting_duplicates(digests, labels)
    if not conflicts:
        return []
    shown = [" = ".join(files[index].relative for index in same) for same in conflicts[:_MOST_LISTED]]
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
