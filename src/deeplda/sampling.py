"""Sample selection: the batches of an epoch, subsamples and held-out sets."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Sampler

from deeplda.batch_rule import SamplerName, enough_samples, samples_in_subset
from deeplda.core.options import check_integer

Indices = NDArray[np.int64]
Labels = Sequence[int] | NDArray[Any] | Tensor


class _EpochBatchSampler(Sampler[list[int]], ABC):
    """A batch sampler whose batches depend only on the seed and the epoch."""

    def __init__(
        self,
        labels: Labels,
        batch_size: int,
        *,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        in_group = dist.is_available() and dist.is_initialized()
        self.num_replicas = (dist.get_world_size() if in_group else 1) if num_replicas is None else num_replicas
        self.rank = (dist.get_rank() if in_group else 0) if rank is None else rank
        self.labels, self.batch_size, self.seed, self.epoch = _as_labels(labels), batch_size, seed, 0
        self._check()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, counted from 0, whose batches the next iteration yields."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Return the number of batches per epoch, ceil(n / batch_size)."""
        return -(-len(self.labels) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.batches():
            yield batch.tolist()

    def batches(self) -> list[Indices]:
        """Return the batches of the epoch as arrays, which are faster to index with than lists."""
        complete = self._batches(np.random.default_rng([self.seed, self.epoch]))
        return [np.ascontiguousarray(batch[self.rank :: self.num_replicas]) for batch in complete]

    @abstractmethod
    def _batches(self, rng: np.random.Generator) -> list[Indices]:
        """Return the batches of an epoch, before they are split among the ranks."""

    def _smallest_batch(self) -> int:
        """Return a lower bound on the size of the batches of any epoch, before they are split among the ranks."""
        return min(map(len, self._batches(np.random.default_rng(0))))

    def _check(self) -> None:
        for name, least in (("batch_size", 1), ("seed", 0), ("num_replicas", 1), ("rank", 0)):
            check_integer(name, getattr(self, name), least)
        if self.rank >= self.num_replicas:
            raise ValueError(f"rank must be < num_replicas, got rank {self.rank} of {self.num_replicas}")
        least = self._smallest_batch()
        if least < self.num_replicas:
            raise ValueError(
                f"the smallest batch has {least} samples for {self.num_replicas} ranks, need at least one sample per "
                "rank: increase batch_size or use fewer ranks"
            )


class StratifiedBatchSampler(_EpochBatchSampler):
    """A sampler that represents every class proportionally in each batch, for `DataLoader(data, batch_sampler=...)`.

    The samples of each class are shuffled and dealt to the batches in turn. Each sample appears in exactly one batch,
    batch sizes differ by at most one, and a class with at least as many samples as there are batches is in every batch.
    The batches depend only on the seed and the epoch; call `set_epoch` before each epoch to get new ones.

    If there are too many classes for that, pass `samples_per_class`: the classes then take turns, and a batch has about
    this many samples of each of its classes. The samples of each class are split into groups of 2/3 to 3/2 of this
    size, or one smaller group if there are fewer, and the groups are dealt to the batches at random. The numbers of
    groups in the batches differ by at most one, so batch sizes differ by about one group. Groups of one class are in
    different batches if possible.

    Under torch.distributed, each rank yields its part of every batch, so `batch_size` is the size of the complete batch
    and `DeepLDALoss` computes the same value with any number of ranks.

    Args:
        labels: (n,), the class of each sample, as a list, an array or a tensor.
        batch_size: the number of samples per batch, over all ranks. The batches have this size or slightly less; with
            `samples_per_class`, this holds for their mean.
        samples_per_class: the approximate number of samples of each class in a batch, at most half of `batch_size`.
            1, the default, puts every class into every batch, as far as possible.
        seed: any non-negative integer; it must be the same on all ranks.
        num_replicas: the number of ranks. By default, the world size if torch.distributed is initialised, otherwise 1.
        rank: the rank of this process. By default, its global rank if torch.distributed is initialised, otherwise 0.

    Raises TypeError or ValueError if an argument is invalid or a batch has fewer samples than there are ranks.
    """

    def __init__(
        self,
        labels: Labels,
        batch_size: int,
        *,
        samples_per_class: int = 1,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        self.samples_per_class = samples_per_class
        super().__init__(labels, batch_size, seed=seed, num_replicas=num_replicas, rank=rank)

    def _check(self) -> None:
        check_integer("batch_size", self.batch_size, 1)
        check_integer("samples_per_class", self.samples_per_class, 1)
        if 1 < self.samples_per_class > self.batch_size / 2:
            half = f"at most half of batch_size {self.batch_size}"
            raise ValueError(f"samples_per_class must be {half}, got {self.samples_per_class}")
        super()._check()

    @property
    def always_two_classes(self) -> bool:
        """Whether it is certain that every batch has two classes or more, in every epoch.

        In groups, classes take up consecutive rounds of dealing. If three rounds of groups are not of the most common
        class, at least one round that reaches all batches is without it, and the same holds for all other classes.
        """
        counts = np.unique(self.labels, return_counts=True)[1]
        if self.samples_per_class == 1:
            return len(counts) > 1 and int(np.sort(counts)[-2]) >= len(self)
        groups = [self._group_count(int(count)) for count in counts]
        return sum(groups) - max(groups) >= 3 * len(self)

    def _smallest_batch(self) -> int:
        if self.samples_per_class == 1:
            return super()._smallest_batch()
        counts = np.unique(self.labels, return_counts=True)[1].tolist()
        numbers = [self._group_count(count) for count in counts]
        sizes = sorted(count // n for count, n in zip(counts, numbers, strict=True) for _ in range(n))
        return sum(sizes[: len(sizes) // len(self)])

    @cached_property
    def _samples_of_classes(self) -> list[Indices]:
        """The samples of each class, in the order of the classes."""
        return [np.flatnonzero(self.labels == c) for c in np.unique(self.labels)]

    def _batches(self, rng: np.random.Generator) -> list[Indices]:
        order_of_classes = rng.permutation(len(self._samples_of_classes))
        samples = [rng.permutation(self._samples_of_classes[c]) for c in order_of_classes]
        if self.samples_per_class == 1:
            order = np.concatenate(samples)
            return [order[start :: len(self)] for start in range(len(self))]
        groups = [group for of_class in samples for group in np.array_split(of_class, self._group_count(len(of_class)))]
        # Each round deals one group to every batch. The groups of a class are consecutive, so they meet in a batch only
        # if they are in different rounds.
        rounds = [rng.permutation(len(self)) for _ in range(0, len(groups), len(self))]
        batches: list[list[Indices]] = [[] for _ in range(len(self))]
        for group, batch in zip(groups, itertools.chain(*rounds), strict=False):
            batches[batch].append(group)
        return [np.concatenate(batch) for batch in batches]

    def _group_count(self, samples: int) -> int:
        return max(1, round(samples / self.samples_per_class))


class ShuffledBatchSampler(_EpochBatchSampler):
    """A sampler of batches in random order, with the same arguments as `StratifiedBatchSampler`.

    If the last batch is short, it is filled up with the first samples of the epoch, as in the original DLDA code.
    """

    def _batches(self, rng: np.random.Generator) -> list[Indices]:
        n, size = len(self.labels), self.batch_size
        order = rng.permutation(n)
        if len(self) > 1:
            order = np.concatenate([order, order[: len(self) * size - n]])
        return [order[start : start + size] for start in range(0, len(order), size)]


def build_sampler(
    name: SamplerName, labels: NDArray[np.int64], batch_size: int, *, seed: int, lda_width: int | None
) -> ShuffledBatchSampler | StratifiedBatchSampler:
    """Return the sampler with this name in the settings of a run. It yields complete batches, not the part of a rank.

    "auto" is stratified, with a subset of the classes in each batch if the batches are too small for all of them.

    Args:
        lda_width: the width of the features that an LDA loss is computed from, or None if the loss is a different one,
            which suits batches of any size.
    """
    if name == "shuffle":
        return ShuffledBatchSampler(labels, batch_size, seed=seed, num_replicas=1, rank=0)
    build = partial(StratifiedBatchSampler, labels, batch_size, seed=seed, num_replicas=1, rank=0)
    stratified = build()
    if name == "stratified" or lda_width is None or len(stratified) == 1:
        return stratified
    if enough_samples(first_batch_counts(stratified), lda_width):
        return stratified
    samples = samples_in_subset(len(np.unique(labels)), batch_size, lda_width)
    subset = None if samples is None else build(samples_per_class=samples)
    return subset if subset is not None and subset.always_two_classes else stratified


def first_batch_counts(sampler: _EpochBatchSampler) -> list[int]:
    """Return the number of samples of each class in the first batch of an epoch; classes without samples are left out.

    This is the batch of the sampler's own rank. In other batches the numbers are similar.
    """
    counts: list[int] = np.unique(sampler.labels[next(iter(sampler))], return_counts=True)[1].tolist()
    return counts


def _as_labels(labels: Labels) -> NDArray[Any]:
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.ndim != 1 or len(array) == 0:
        raise ValueError(f"labels has shape {array.shape}, need (n,) with n >= 1: pass one class id for each sample")
    if array.dtype.kind in "fc":
        raise TypeError(f"labels has dtype {array.dtype}, need integer class ids: convert them to integers")
    return array


def sufficient_batch_size(wanted: int, labels: NDArray[np.int64], *, two_classes: bool) -> int:
    """Return `wanted`, or a larger size if stratified batches of that size would be too small for the objective.

    An LDA objective needs two classes in every batch (`two_classes`), others only need two samples. If the loop trains
    on subclasses, `labels` are subclasses.

    The stratified sampler deals a class of k samples to k batches, so every batch has two classes as long as the
    second-largest class has at least as many samples as there are batches.
    """
    counts = np.sort(np.bincount(labels))
    most = int(counts[-2]) if two_classes else len(labels) // 2
    batches = min(-(-len(labels) // wanted), most)
    return -(-len(labels) // batches)


def stratified_sample(labels: NDArray[np.int64], size: int, seed: int) -> Indices:
    """Choose about `size` samples, proportionally but at least one per class; all of them if there are no more."""
    if len(labels) <= size:
        return np.arange(len(labels))
    rng = np.random.default_rng(seed)
    share = size / len(labels)
    places = [np.flatnonzero(labels == c) for c in np.unique(labels)]
    return np.sort(np.concatenate([rng.permutation(p)[: max(1, round(share * len(p)))] for p in places]))


def stratified_split(
    labels: NDArray[np.int64], size: int, rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Hold out `size` samples, proportionally per class; fewer only if a class would lose its last sample.

    Returns the indices of the remaining samples and of the held-out samples, both ascending.
    """
    classes, counts = np.unique(labels, return_counts=True)
    taken = np.zeros(len(labels), dtype=bool)
    for c, share in zip(classes, allocate(counts, size), strict=True):
        taken[rng.permutation(np.flatnonzero(labels == c))[:share]] = True
    return np.flatnonzero(~taken), np.flatnonzero(taken)


def allocate(counts: NDArray[np.intp], size: int) -> NDArray[np.intp]:
    """Split `size` among classes of `counts` samples by largest remainder, leaving at least one sample of each class.

    Each class gives its quota, counts * size / n, rounded up for the classes with the largest remainders (the first
    class if there is a tie) and down for the others. It gives more only if small classes cannot give their quota.
    """
    total = int(counts.sum())
    size = min(size, total - len(counts))
    share = counts * size // total
    order = np.argsort(-(counts * size % total), kind="stable")
    while (short := size - int(share.sum())) > 0:
        able = order[share[order] < counts[order] - 1]
        share[able[:short]] += 1
    return share
