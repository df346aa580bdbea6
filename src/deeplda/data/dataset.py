"""The common form of all data: labelled samples, split into training, validation and test sets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deeplda.data.full_pass import FullPass
from deeplda.data.mapped_rows import MappedRows, joined_rows
from deeplda.data.sparse_rows import SparseRows
from deeplda.data.splitting import Digests, PartName
from deeplda.errors import InputError
from deeplda.memory import require_memory

if TYPE_CHECKING:
    from deeplda.data.stored_split import StoredSplit
    from deeplda.data.table_encoding import TableEncoder

Inputs = NDArray[np.uint8] | NDArray[np.float32] | MappedRows | SparseRows
Labels = NDArray[np.int64]
Weights = NDArray[np.float64]

# Fractions of the training samples that are split off if a source has no validation or test set of its own.
TEST_SHARE = 0.15
VAL_SHARE = 0.15


@dataclass(frozen=True, eq=False)
class Part:
    """The samples and labels of one split of a data set (training, validation or test).

    Attributes:
        inputs: uint8 images, N x C x H x W in the range 0..255, or float32 feature vectors, N x features. The images of
            a pack stay in its file (`MappedRows`), and those of a sparse matrix stay there (`SparseRows`).
        labels: (N,) int64, indices into the `class_names` of the data.
        files: the path of each sample's file, as printable text; None if samples do not come from separate files.
        digests: (N,), the digest of each sample's file; None if samples do not come from separate files.
        rows: (N,), the row of each sample in its table, counted from 1; None if samples do not come from a table.
        weights: (N,) float64, positive: a sample with weight 2 counts as two samples. None if all samples count once.
        places: (N,), the index that each sample had before corrections dropped some; None without corrections.
    """

    inputs: Inputs
    labels: Labels
    files: tuple[str, ...] | None = None
    digests: Digests | None = None
    rows: Labels | None = None
    weights: Weights | None = None
    places: NDArray[np.intp] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: NDArray[np.intp]) -> Part:
        """Return the samples at these indices: a copy, unless they are in a file, from which nothing is read."""
        files = None if self.files is None else tuple(self.files[index] for index in indices)
        digests = None if self.digests is None else self.digests[indices]
        rows = None if self.rows is None else self.rows[indices]
        weights = None if self.weights is None else self.weights[indices]
        places = None if self.places is None else self.places[indices]
        return Part(taken(self.inputs, indices), self.labels[indices], files, digests, rows, weights, places)

    def balanced(self) -> Part:
        """Return the samples with weights under which every class has the same total, and n samples count n times.

        A sample of class c weighs n / (C n_c), times the weight that it had; n and n_c are sums of weights then.
        """
        counts = np.bincount(self.labels, self.weights)
        factors = counts.sum() / (np.count_nonzero(counts) * counts[self.labels])
        return replace(self, weights=factors if self.weights is None else self.weights * factors)


def taken(inputs: Inputs, indices: NDArray[np.intp]) -> Inputs:
    """Return the samples at these indices: a copy, unless they are in a file, from which nothing is read."""
    return inputs.take(indices) if isinstance(inputs, MappedRows | SparseRows) else inputs[indices]


def joined(*parts: Part) -> Part:
    """Concatenate the samples of several splits. Weights are left out.

    Samples in a file stay there, unless the splits are different arrays of the file.
    """
    inputs = [part.inputs for part in parts]
    mapped = [rows for rows in inputs if isinstance(rows, MappedRows)]
    stays = joined_rows(mapped) if len(mapped) == len(inputs) else None
    if stays is None:
        what = "the samples of several arrays together"
        require_memory(
            sum(rows.dtype.itemsize * math.prod(rows.shape) for rows in mapped), what, do="use fewer samples"
        )
    files = [part.files for part in parts if part.files is not None]
    digests = [part.digests for part in parts if part.digests is not None]
    return Part(
        np.concatenate([np.asarray(rows) for rows in inputs]) if stays is None else stays,
        np.concatenate([part.labels for part in parts]),
        tuple(itertools.chain(*files)) if len(files) == len(parts) else None,
        np.concatenate(digests) if len(digests) == len(parts) else None,
    )


@dataclass(frozen=True, eq=False)
class Source:
    """The contents of a source as read from disk, before missing splits are created.

    Attributes:
        val_share: fraction of the training set used for validation if there is a test set but no validation set.
        strata: (N,), labels of the training set by which to stratify the split, if not by `train.labels`.
        left_out: the unreadable files that were skipped.
        notes: sentences for the user about ignored files, duplicates, groups and changes.
        split: the images of a folder and their parts, if they were split by content.
        changed: whether the images are not those of the stored split with which they were read.
        table: the encoding of the rows, if the source is a table.
    """

    name: str
    train: Part
    class_names: tuple[str, ...]
    val: Part | None = None
    test: Part | None = None
    val_share: float = VAL_SHARE
    left_out: tuple[str, ...] = ()
    strata: Labels | None = None
    notes: tuple[str, ...] = ()
    split: StoredSplit | None = None
    changed: bool = False
    table: TableEncoder | None = None

    @cached_property
    def parts(self) -> dict[PartName, Part]:
        """The sets that the source has itself, by name."""
        parts: dict[PartName, Part | None] = {"train": self.train, "val": self.val, "test": self.test}
        return {name: part for name, part in parts.items() if part is not None}


@dataclass(frozen=True, eq=False)
class ImageOutline:
    """What is known about a source of images before its pixels are read.

    Attributes:
        sizes: (height, width) of some of the images, (N, 2).
        images: the number of images in the training set.
        classes: the number of classes.
    """

    sizes: NDArray[np.int64]
    images: int
    classes: int


@dataclass(frozen=True, eq=False)
class Data:
    """The training, validation and test sets of one data source, and the names of its classes.

    Attributes:
        left_out: the unreadable files that were skipped.
        notes: sentences for the user about ignored files, duplicates, groups and changes.
        split: the images of a folder and their parts, if they were split by content; a run stores it.
        changed: whether the images are not those of the stored split with which they were read.
        table: the encoding of the rows, if the source is a table; the model card stores it.
    """

    name: str
    train: Part
    val: Part
    test: Part
    class_names: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    split: StoredSplit | None = None
    changed: bool = False
    table: TableEncoder | None = None

    @property
    def images(self) -> bool:
        """Whether the inputs are images rather than feature vectors."""
        return self.train.inputs.ndim == 4

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample: (C, H, W) or (features,)."""
        return self.train.inputs.shape[1:]

    def without_validation(self) -> Data:
        """Return the same data with the validation set merged into the training set."""
        return replace(self, train=joined(self.train, self.val), val=self.val.take(np.arange(0)))

    @cached_property
    def _full_pass(self) -> FullPass:
        return FullPass(self.class_names, self.train, self.val, self.test, by_content=self.split is not None)

    @property
    def fingerprint(self) -> str:
        """Hex digest of the class names and of every split's samples and labels; it depends on their order.

        If the samples are files that were split by their content, the digests of the files stand for them. So it is
        the same whether the images are in memory or in a pack, and it does not take a pass over the pixels.
        """
        return self._full_pass.fingerprint


def complete(source: Source, seed: int) -> Data:
    """Split the missing sets off the training set, stratified by class or by `source.strata`.

    If there is no test set, a fraction `TEST_SHARE` of the samples becomes the test set and, if there is no validation
    set either, a fraction `VAL_SHARE` becomes the validation set (70/15/15). If there is a test set but no validation
    set, a fraction `source.val_share` of the training samples becomes the validation set.

    Raises InputError if there are fewer than two classes, or if no sample can be spared for a missing set.
    """
    train, val, test = source.train, source.val, source.test
    strata = train.labels if source.strata is None else source.strata
    if not source.changed:
        _require_two_classes(train, source)
    rng = np.random.Generator(np.random.PCG64(seed))
    # Both sizes are fractions of all samples, so compute them before splitting anything off.
    test_size = part_size(len(train), TEST_SHARE)
    val_size = part_size(len(train), source.val_share if test is not None else VAL_SHARE)
    if test is None:
        train, test, strata = _split_off(train, strata, test_size, rng, source.name, "test")
    if val is None:
        train, val, _ = _split_off(train, strata, val_size, rng, source.name, "validation")
    if not source.changed:
        _require_two_classes(train, source)  # a split by other labels may take all samples of a class
    return Data(
        source.name,
        train,
        val,
        test,
        source.class_names,
        left_out=source.left_out,
        notes=source.notes,
        split=source.split,
        changed=source.changed,
        table=source.table,
    )


def _require_two_classes(train: Part, source: Source) -> None:
    if len(np.unique(train.labels)) < 2:
        found = source.class_names[train.labels[0]] if len(train) else "none"
        what = f"{source.name} has training samples of only one class ({found})"
        raise InputError(what, need="at least two classes", do="add samples of another class")


def part_size(samples: int, share: float) -> int:
    """Return the number of samples to split off, at least one."""
    return max(1, int(samples * share + 0.5))


def missing_shares(parts: Collection[PartName]) -> dict[PartName, float]:
    """Return the fraction of the training samples to split off for each part; 0 for a part that a source has itself."""
    shares: dict[PartName, float] = {"test": TEST_SHARE, "val": VAL_SHARE}
    return {part: 0.0 if part in parts else share for part, share in shares.items()}


def missing_parts(samples: int, parts: Collection[PartName]) -> dict[PartName, int]:
    """Return how many training samples to split off for each part; 0 for a part that a source has itself."""
    return {part: part_size(samples, share) if share else 0 for part, share in missing_shares(parts).items()}


def too_few(name: str, samples: int, classes: int, kind: str, *, linked: bool = False) -> InputError:
    """Return the error for training samples of which none can be spared for another set.

    If they are `linked`, they have the same content or group, and only all of them together can be in another set.
    """
    what = f"{name} has {samples} training samples in {classes} classes, too few to split off a {kind} set"
    need = f"at least two samples {'of different content and group ' if linked else ''}in some class"
    return InputError(what, need=need, do=f"add samples or provide a {kind} set")


def _split_off(
    part: Part, strata: Labels, size: int, rng: np.random.Generator, name: str, kind: str
) -> tuple[Part, Part, Labels]:
    """Return the remaining samples, the `size` samples that were split off, and the strata of the remaining ones."""
    # Imported here because it imports torch, which is not needed to list data sets.
    from deeplda.sampling import stratified_split

    rest, taken = stratified_split(strata, size, rng)
    if not len(taken):
        raise too_few(name, len(part), len(np.unique(strata)), kind)
    return part.take(rest), part.take(taken), strata[rest]


def check_class_names(source: str, class_names: Sequence[str]) -> None:
    """Raise InputError if a class name cannot be stored as UTF-8, such as a folder name in a different encoding."""
    for name in class_names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InputError(f"a class in {source} is named {name!r}", need="UTF-8", do="rename the class") from None
