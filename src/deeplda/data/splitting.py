"""Split samples by the hash of their content, so that samples added later never move others to another part.

Everything here works on arrays with one entry per sample: digests of the contents, labels and, optionally, digests of
the groups (a patient, a video, a customer) whose samples must stay together. Samples with the same content or the same
group are linked, directly or through others, and linked samples always go to the same part.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from deeplda.errors import InputError

PartName = Literal["train", "val", "test"]
PARTS: tuple[PartName, ...] = get_args(PartName)
TRAIN, VAL, TEST = range(3)
# (N,), 32 hexadecimal digits each; an empty one stands for a sample without a group.
Digests = NDArray[np.bytes_]
# (N,), indices into PARTS.
PartCodes = NDArray[np.int8]
Labels = NDArray[np.int64]
DIGEST_DTYPE = "S32"


@dataclass(frozen=True, eq=False)
class Assignment:
    """The parts to which samples were assigned, with the digests that determine where added samples go."""

    digests: Digests
    groups: Digests
    parts: PartCodes


def content_hash() -> hashlib.blake2b:
    """Return the hash function of contents, to which nothing was added yet."""
    return hashlib.blake2b(digest_size=16)


def content_digest(content: bytes | memoryview) -> bytes:
    """Return the digest of a file's content: 32 hexadecimal digits."""
    found = content_hash()
    found.update(content)
    return found.hexdigest().encode()


def group_digests(names: Sequence[str], pattern: str) -> Digests:
    """Return the digest of the group of each name (N,), empty for a name in which the pattern is not found.

    The group is the text of the pattern's first capture group or, if it has none, of the whole match. Raises InputError
    if the pattern is not a regular expression, or if it is found in none of the names.
    """
    try:
        found = [re.search(pattern, name) for name in names]
    except re.error as error:
        raise InputError(f"group_by is {pattern!r}, need a regular expression ({error})") from None
    texts = [None if match is None else (match.groups() or (match[0],))[0] for match in found]
    if names and not any(texts):
        what = f"group_by is {pattern!r}, which is found in none of {len(names):,} file names, such as {names[0]!r}"
        raise InputError(f"{what}: correct the pattern, or omit it")
    digests = [content_digest(text.encode("utf-8", "surrogatepass")) if text else b"" for text in texts]
    return np.array(digests, dtype=DIGEST_DTYPE)


def without_groups(samples: int) -> Digests:
    """Return the group digests of samples that have no groups."""
    return np.zeros(samples, dtype=DIGEST_DTYPE)


def split_by_content(
    digests: Digests, labels: Labels, groups: Digests, *, seed: int, test_size: int, val_size: int
) -> PartCodes:
    """Assign about `test_size` samples to test and `val_size` to validation, proportionally per class.

    Within each class, samples are taken in the order of a hash of their content (or group) and the seed, first for test
    and then for validation. The sizes are exact unless linked samples do not fit; these are taken only as a whole, and
    never the last training samples of a class. A class whose linked sets are all larger than its quota gives its
    smallest one.
    """
    # Imported here because it imports torch, which is not needed to list data sets.
    from deeplda.sampling import allocate

    parts = np.zeros(len(labels), dtype=np.int8)
    units = _Units.of(digests, labels, groups, seed)
    left = np.bincount(labels)
    for code, size in ((TEST, test_size), (VAL, val_size)):
        present = np.flatnonzero(left)
        quotas = np.zeros_like(left)
        quotas[present] = allocate(left[present], size) if size else 0
        for unit in units.chosen(quotas, left, free=parts == TRAIN):
            parts[unit] = code
    return parts


def assign_added(
    known: Assignment, digests: Digests, groups: Digests, *, seed: int, test_share: float, val_share: float
) -> PartCodes:
    """Assign samples that were added after a split; the known samples keep their parts.

    A sample that is linked to known ones goes to their part; if they are in several parts, to the training part if it
    is one of them, and otherwise to validation, so that no test sample is linked to one that was trained on. All others
    go to test with probability `test_share` and to validation with probability `val_share`, depending only on the seed
    and the digest.
    """
    start = len(known.digests)
    linked = _linked(np.concatenate([known.digests, digests]), np.concatenate([known.groups, groups]))
    most_trained = np.full(linked.max(initial=-1) + 1, len(PARTS), dtype=np.int8)
    np.minimum.at(most_trained, linked[:start], known.parts)
    place = _smallest(_keys(digests, groups, seed), linked[start:]) / 2**64
    parts = np.where(place < test_share, TEST, np.where(place < test_share + val_share, VAL, TRAIN))
    of_known = most_trained[linked[start:]]
    return np.where(of_known < len(PARTS), of_known, parts).astype(np.int8)


def conflicting_duplicates(digests: Digests, labels: Labels) -> list[NDArray[np.intp]]:
    """Return the indices of samples with the same content but different labels, one array per content."""
    _, content = np.unique(digests, return_inverse=True)
    order = np.lexsort((labels, content))
    starts = np.flatnonzero(np.diff(content[order], prepend=-1))
    runs = np.split(order, starts[1:]) if len(order) else []
    return [np.sort(run) for run in runs if labels[run[0]] != labels[run[-1]]]


@dataclass(frozen=True, eq=False)
class _Units:
    """Sets of linked samples in the order of their keys, each with the label that most of its samples have."""

    members: list[NDArray[np.intp]]
    strata: list[int]
    labels: Labels

    @classmethod
    def of(cls, digests: Digests, labels: Labels, groups: Digests, seed: int) -> _Units:
        linked = _linked(digests, groups)
        keys = _smallest(_keys(digests, groups, seed), linked)
        order = np.lexsort((np.arange(len(labels)), linked, keys))
        starts = np.flatnonzero(np.diff(linked[order], prepend=-1))
        members = np.split(order, starts[1:]) if len(order) else []
        strata = [
            int(labels[unit[0]]) if len(unit) == 1 else int(np.bincount(labels[unit]).argmax()) for unit in members
        ]
        return cls(members, strata, labels)

    def chosen(
        self, quotas: NDArray[np.intp], left: NDArray[np.intp], free: NDArray[np.bool_]
    ) -> list[NDArray[np.intp]]:
        """Return the units to take for these quotas per class from the `free` samples, and update `left`.

        `left` counts the training samples of each class, of which at least one must remain.
        """
        chosen: list[NDArray[np.intp]] = []
        wanted, given = quotas.copy(), np.zeros_like(quotas)
        refused: dict[int, NDArray[np.intp]] = {}
        for unit, stratum in zip(self.members, self.strata, strict=True):
            if not free[unit[0]] or wanted[stratum] == 0:
                continue
            if len(unit) > wanted[stratum]:
                if stratum not in refused or len(unit) < len(refused[stratum]):
                    refused[stratum] = unit
            elif self._spare(unit, left):
                chosen.append(unit)
                wanted[stratum] -= len(unit)
                given[stratum] += len(unit)
        for stratum, unit in refused.items():
            if given[stratum] == 0 and self._spare(unit, left):
                chosen.append(unit)
        return chosen

    def _spare(self, unit: NDArray[np.intp], left: NDArray[np.intp]) -> bool:
        """Subtract a unit from the training samples, unless it has the last ones of a class."""
        if len(unit) == 1:
            label = self.labels[unit[0]]
            if left[label] < 2:
                return False
            left[label] -= 1
            return True
        rest = left - np.bincount(self.labels[unit], minlength=len(left))
        if ((rest == 0) & (left > 0)).any():
            return False
        left[:] = rest
        return True


def _linked(digests: Digests, groups: Digests) -> NDArray[np.intp]:
    """Return a number for each sample (N,) that is the same for samples linked by their content or group."""
    contents, content = np.unique(digests, return_inverse=True)
    if not (groups != b"").any():
        return content
    # Importing this takes a noticeable time, and most data has no groups.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    grouped = np.flatnonzero(groups != b"")
    names, group = np.unique(groups[grouped], return_inverse=True)
    nodes = len(contents) + len(names)
    edges = (np.ones(len(grouped), dtype=np.int8), (content[grouped], len(contents) + group))
    _, component = connected_components(coo_array(edges, shape=(nodes, nodes)), directed=False)
    found: NDArray[np.intp] = component[content].astype(np.intp)
    return found


def _keys(digests: Digests, groups: Digests, seed: int) -> NDArray[np.uint64]:
    """Return a hash of each sample's group or, if it has none, of its content (N,); it depends on the seed."""
    salted = hashlib.blake2b(digest_size=8, key=f"split {seed}".encode())
    keys = np.empty(len(digests), dtype=np.uint64)
    for place, text in enumerate(np.where(groups != b"", groups, digests).tolist()):
        hashed = salted.copy()
        hashed.update(text)
        keys[place] = int.from_bytes(hashed.digest(), "big")
    return keys


def _smallest(keys: NDArray[np.uint64], linked: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Return the smallest key among the linked samples of each sample (N,)."""
    found = np.full(linked.max(initial=-1) + 1, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(found, linked, keys)
    return found[linked]
