"""Counts, means and centred within-class scatter of a labelled batch.

Sums and means are float64. Features are centred before they are multiplied (two passes), so an offset costs no
precision. The one large product is computed in the precision of the features, at least float32. If a batch is split
among ranks, counts, sums and then the scatter are added up over the ranks; the features themselves are never sent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from deeplda.core.distributed import Agreement, Ranks, Summary
from deeplda.core.transforms import has_tangent, is_batched, to_list, transforms_active
from deeplda.errors import got

_CHUNK_ELEMENTS = 2**17
_BLOCK = 512
_SMALL_PRODUCT = 2**22
# The square of this power of two is finite, and so large that the square of a scaled feature has full precision, unless
# the feature itself has lost digits to underflow.
_LARGEST_SCALE_EXPONENT = 511
# If the features of a dimension are smaller than this, the square of their last digit can underflow in float32.
_LEAST_FLOAT32 = 1e-12
# Sums of powers of features that are stored unscaled are at most about this, or at least its inverse.
_LARGEST_POWER = 1e290


@dataclass(frozen=True, slots=True)
class ClassMoments:
    """Counts, means and within-class scatter of a set of features.

    Attributes:
        classes: (C,) int64, the class ids present, ascending.
        counts: (C,) float64, the number of samples of each class.
        means: (C, d) float64, the mean of each class.
        within: (d, d) float64, the sum over all samples of (h - mean)(h - mean)', not divided by n.
    """

    classes: Tensor
    counts: Tensor
    means: Tensor
    within: Tensor

    def merge(self, other: ClassMoments) -> ClassMoments:
        """Return the exact moments of the union of both sets, using the formula of Chan, Golub and LeVeque.

        For each class in both sets, W = W_1 + W_2 + n_1 n_2 / (n_1 + n_2) (mu_2 - mu_1)(mu_2 - mu_1)'.
        Raises ValueError if the two sets have different numbers of dimensions.
        """
        d = self.means.shape[1]
        if other.means.shape[1] != d:
            raise ValueError(
                got(
                    f"the other moments have {other.means.shape[1]} dimensions",
                    need=f"{d}",
                    do="merge moments of the same features",
                )
            )
        classes, ours, theirs = union_of(self.classes, other.classes)
        counts, means = self.counts.new_zeros(len(classes)), self.means.new_zeros(len(classes), d)
        counts[ours], means[ours] = self.counts, self.means
        # Only the other set's classes change, and a batch often has few of many.
        before = counts[theirs]
        share = other.counts / (before + other.counts)
        difference = other.means - means[theirs]
        root = (before * share).sqrt()[:, None] * difference
        counts[theirs] += other.counts
        means[theirs] += share[:, None] * difference
        return ClassMoments(classes, counts, means, within=self.within + other.within + gram(root))

    def relabelled(self, ids: Tensor) -> ClassMoments:
        """Return the same moments with the class ids `ids` (C,), which are distinct, in place of `classes`."""
        classes, order = ids.sort()
        return ClassMoments(classes, self.counts[order], self.means[order], self.within)


def union_of(ours: Tensor, theirs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the union of two sets of class ids, ascending, and the positions of both sets' ids in it."""
    classes, place = torch.unique(torch.cat([ours, theirs]), return_inverse=True)
    return classes, *place.split([len(ours), len(theirs)])


def class_moments(features: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> ClassMoments:
    """Compute counts, means and within-class scatter of `features` (n, d) with `labels` (n,).

    A sample with weight 2 in `sample_weight` (n,) counts as two equal samples, and one with weight 0 not at all, so
    counts are sums of weights. The result has no gradient. Raises ValueError or TypeError unless the input is a
    labelled batch of finite numbers whose squares neither overflow nor underflow: the largest magnitude must be from
    1e-145 to 1e145, or 0.
    """
    features, labels, weights = weighted_samples(features, labels, sample_weight)
    check_batch(features, labels, weights)
    with full_precision(features):
        batch = CentredBatch.of(features, labels, weights)
        batch.check_power(2)
        return ClassMoments(
            classes=batch.classes,
            counts=batch.counts,
            means=batch.means / batch.scale,
            within=batch.scatter() / batch.scale**2,
        )


class CentredBatch(NamedTuple):
    """A batch in the form that the objective needs: features minus their class mean, times a power of two.

    The power of two brings features of extreme magnitude near 1 without changing a digit; for all others it is 1. If
    the batch is split among ranks, `class_of`, `rows` and `weights` describe this rank's part, and everything else
    describes the complete batch.

    Attributes:
        ids: (C,), the class ids, ascending; a range if they are 0 to C - 1, because a tensor takes time to make.
        class_of: (rows,), the position in `ids` of each row's class.
        counts: (C,) float64, the number of samples of each class, or the sum of their weights.
        means: (C, d) float64, the class means of the scaled features.
        rows: (rows, d), scaled features minus the mean of their class, in the precision of the large products.
        scale: the power of two.
        largest: the largest magnitude of the scaled features.
        n: the number of samples.
        ranks: the ranks among which the batch is split; None if it is local.
        weights: (rows,) float64, the sample weights, all positive; None if all are 1.
    """

    ids: Tensor | range
    class_of: Tensor
    counts: Tensor
    means: Tensor
    rows: Tensor
    scale: float
    largest: float
    n: int
    ranks: Ranks | None
    weights: Tensor | None = None

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, weights: Tensor | None = None) -> Self:
        """Centre a local batch that has passed `check_batch`; call it within `full_precision`."""
        part = _Part.of(features, labels, weights)
        return cls._of(part, part.counts, Agreement(part.ids, part.rows.shape[0], part.largest, None))

    @classmethod
    def across(cls, features: Tensor, labels: Tensor, weights: Tensor | None, ranks: Ranks, options: str) -> Self:
        """Centre a batch that is split among `ranks`, given this rank's part, which may be empty.

        The text `options` must be the same on all ranks. Either every rank raises the same error, or none does.
        """
        if isinstance(features, Tensor) and features.device.type == ranks.carrier.type:
            # The device of the features need not be the current device.
            ranks = replace(ranks, carrier=features.device)
        try:
            check_batch(features, labels, weights, least=0)
            with full_precision(features):
                part = _Part.of(features, labels, weights)
        except Exception as error:
            ranks.agree(Summary.failed(error), options)
            raise
        n, d = part.rows.shape
        classes = _as_tensor(part.ids, part.counts)
        summary = Summary(classes, n, d, str(part.rows.dtype), part.largest)
        with full_precision(features):
            whole = ranks.agree(summary, options)
            place = torch.searchsorted(_as_tensor(whole.ids, classes), classes)
            counts = part.counts.new_zeros(len(whole.ids)).index_copy_(0, place, part.counts)
            return cls._of(part._replace(class_of=place[part.class_of]), counts, whole)

    @classmethod
    def _of(cls, part: _Part, counts: Tensor, whole: Agreement) -> Self:
        """Centre `part`; `part.class_of` and `counts` refer to `whole.ids`."""
        scale = _scale(whole.largest)
        rows = part.rows.double() if _is_exact(part.rows, whole.n, scale) else _at_least_float32(part.rows)
        rows = rows * scale if scale != 1.0 else rows
        sums, totals = _class_sums(rows, part.class_of, part.weights, len(whole.ids)), counts.double()
        if whole.ranks is not None:
            totals, sums = whole.ranks.total(totals, sums)
        means = sums / totals.unsqueeze(1)
        if rows.dtype == torch.float32 and _has_tiny_dimension(means):
            return cls._of(part._replace(rows=part.rows.double()), counts, whole)
        centred = _centre(rows, means, part.class_of)
        largest = whole.largest * scale
        return cls(whole.ids, part.class_of, totals, means, centred, scale, largest, whole.n, whole.ranks, part.weights)

    def check_power(self, power: int) -> None:
        """Raise ValueError if sums of the `power`-th powers of the unscaled features would overflow or underflow."""
        largest, most = self.largest / self.scale, _LARGEST_POWER ** (1 / power)
        if largest and not 1 / most < largest < most:
            raise ValueError(
                got(
                    f"features has a largest magnitude of {largest:.3g}",
                    need=f"{1 / most:.0e} to {most:.0e}, because its power of {power} is stored",
                    do="scale the features",
                )
            )

    @property
    def classes(self) -> Tensor:
        """The class ids, ascending, (C,) int64."""
        return _as_tensor(self.ids, self.counts)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of samples, dimensions and classes, (n, d, C)."""
        return self.n, self.rows.shape[1], len(self.ids)

    @property
    def total(self) -> float:
        """The sum of the sample weights, which is n without weights."""
        return self.n if self.weights is None else float(self.counts.sum())

    def scatter(self, weights: Tensor | None = None, *, exact: bool = False) -> Tensor:
        """Return the sum over the rows of weight * row row', (d, d) float64.

        The weight of a row is that of its sample times that of its class in `weights` (C,).

        With `exact`, the product is also computed in float64, for matrices that are too ill-conditioned for the
        features' precision.
        """
        rows = self.rows.double() if exact else self.rows
        column = self._weights_of_rows(weights, rows.dtype)
        product = gram(rows) if column is None else rows.T @ (rows * column)
        return self._over_ranks(product.double())

    def variances(self, weights: Tensor | None = None) -> Tensor:
        """Return the diagonal of `scatter`, (d,) float64, without computing the product."""
        squares = self.rows.square()
        if (column := self._weights_of_rows(weights, squares.dtype)) is not None:
            squares *= column
        return self._over_ranks(squares.sum(0, dtype=torch.float64))

    def by_row(self, values: Tensor, dtype: torch.dtype) -> Tensor:
        """Expand `values` (C,), one per class, to a column (n, 1), one per row."""
        return values.to(dtype)[self.class_of, None]

    def _weights_of_rows(self, weights: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        """Return the weights of samples and classes, multiplied, as a column (n, 1); None if there are none."""
        if self.weights is None:
            return None if weights is None else self.by_row(weights, dtype)
        product = self.weights if weights is None else self.weights * weights[self.class_of]
        return product.to(dtype)[:, None]

    def _over_ranks(self, part: Tensor) -> Tensor:
        return part if self.ranks is None else self.ranks.total(part)[0]


class _Part(NamedTuple):
    """One process's uncentred part of a batch, with the part's own class ids and counts, as in `CentredBatch`."""

    rows: Tensor
    ids: Tensor | range
    class_of: Tensor
    counts: Tensor
    largest: float
    weights: Tensor | None = None

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, weights: Tensor | None) -> Self:
        labels = labels.long()
        if features.is_mps:  # without float64
            features, labels, weights = features.cpu(), labels.cpu(), None if weights is None else weights.cpu()
        part = cls(features, *_classes(labels), _largest(features))
        if weights is None:
            return part
        weights = weights.double()
        counts = torch.zeros_like(part.counts, dtype=torch.float64).index_add_(0, part.class_of, weights)
        return part._replace(counts=counts, weights=weights)


def gram(rows: Tensor) -> Tensor:
    """Return rows' rows. For a wide matrix, compute only the blocks on and below the diagonal, then mirror them."""
    d = rows.shape[1]
    if d <= _BLOCK:
        return rows.t().mm(rows)
    product = rows.new_empty(d, d)
    for start in range(0, d, _BLOCK):
        stop = min(start + _BLOCK, d)
        torch.mm(rows[:, start:].T, rows[:, start:stop], out=product[start:, start:stop])
        product[start:stop, stop:] = product[stop:, start:stop].T
    return product


def weighted_samples(features: Tensor, labels: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Drop the samples with weight 0. Arguments that are not a weighted batch are returned for `check_batch` to reject.

    The features that remain are differentiable functions of all features.
    """
    if weights is None or not all(map(_is_dense, (features, labels, weights))):
        return features, labels, weights
    fits = features.ndim == 2 and weights.shape == labels.shape == features.shape[:1]
    if not fits or not weights.device == labels.device == features.device or (kept := weights != 0).all():
        return features, labels, weights
    return features[kept], labels[kept], weights[kept]


def check_batch(features: Tensor, labels: Tensor, weights: Tensor | None = None, *, least: int = 1) -> None:
    """Check that `features` is an (n, d) batch of real floats with n >= `least`, and that `labels` has n integers.

    If there are `weights`, they must be n positive numbers.

    Raises TypeError if a type, layout or dtype is wrong, ValueError if a shape or device is wrong, and RuntimeError if
    the features are differentiated in forward mode, in which torch's derivative of Pillai's statistic is wrong.
    """
    _check_dense("features", features)
    _check_dense("labels", labels)
    if features.is_meta:
        what, do = "features is on the meta device, without values", "move the network and its inputs to a real device"
        raise TypeError(got(what, need="numbers", do=do))
    if not features.is_floating_point():
        raise TypeError(got(f"features has dtype {features.dtype}", need="floating point", do="pass features.float()"))
    if has_tangent(features):
        raise RuntimeError(
            got("features has a forward-mode tangent", need="reverse mode", do="use backward() or torch.func.grad")
        )
    if features.dtype.itemsize < 2:
        raise TypeError(got(f"features has dtype {features.dtype}", need="16 bits or more", do="pass features.float()"))
    if labels.is_floating_point() or labels.is_complex():
        do = "pass labels.argmax(1)" if labels.ndim == 2 and labels.shape[1] > 1 else "pass labels.long()"
        raise TypeError(got(f"labels has dtype {labels.dtype}", need="integer class ids", do=do))
    if features.ndim != 2:
        do = "pass features.flatten(1)" if features.ndim > 2 else "pass features.view(-1, 1)"
        raise ValueError(got(f"features has shape {tuple(features.shape)}", need="(n, d)", do=do))
    n, d = features.shape
    if n < least or d == 0:
        raise ValueError(
            got(
                f"features has shape {(n, d)}",
                need="at least one sample and one dimension",
                do="skip empty batches",
            )
        )
    if labels.shape != (n,):
        do = "pass labels.squeeze(1)" if labels.shape == (n, 1) else "pass one class id for each row of features"
        raise ValueError(got(f"labels has shape {tuple(labels.shape)}", need=f"({n},)", do=do))
    if labels.device != features.device:
        raise ValueError(
            got(
                f"labels is on {labels.device}",
                need=f"{features.device}, the device of features",
                do="pass labels.to(features.device)",
            )
        )
    if weights is not None:
        _check_weights(weights, features)


def _check_weights(weights: Tensor, features: Tensor) -> None:
    """Raise TypeError or ValueError unless `weights` has a positive number for each row of features."""
    if not isinstance(weights, Tensor) or weights.is_complex() or weights.dtype == torch.bool or weights.requires_grad:
        kind = f"of type {type(weights).__name__}"
        if isinstance(weights, Tensor):
            kind = "a tensor that requires a gradient" if weights.requires_grad else f"of dtype {weights.dtype}"
        do = "pass torch.as_tensor(sample_weight), detached and in floating point"
        raise TypeError(got(f"sample_weight is {kind}", need="a tensor of constant numbers", do=do))
    _check_dense("sample_weight", weights)
    if weights.shape != features.shape[:1] or weights.device != features.device:
        what = f"sample_weight has shape {tuple(weights.shape)} and is on {weights.device}"
        need = f"({len(features)},) on {features.device}"
        raise ValueError(got(what, need=need, do="pass one weight for each row of features, on their device"))
    low, high = map(float, torch.aminmax(weights)) if len(weights) else (1.0, 1.0)
    # Beyond these limits, products in float32 could overflow, or all be lost.
    if not (low > 0 and 1e-30 <= high <= 1e30):
        what = f"sample_weight has values from {low:g} to {high:g}"
        need = "finite numbers >= 0, of which the largest is between 1e-30 and 1e30"
        raise ValueError(got(what, need=need, do="only their ratios matter, so divide them by their mean"))


def _is_dense(value: object) -> bool:
    return isinstance(value, Tensor) and value.layout == torch.strided and not (value.is_nested or is_batched(value))


def _check_dense(name: str, value: object) -> None:
    """Raise TypeError unless a value is a tensor that is one dense array."""
    if not isinstance(value, Tensor):
        raise TypeError(
            got(f"{name} is of type {type(value).__name__}", need="a tensor", do=f"pass torch.as_tensor({name})")
        )
    if transforms_active() and is_batched(value):
        what, do = "is batched by torch.vmap", "call the loss in a loop, because batches can have different classes"
    elif value.is_nested:
        what, do = "is a nested tensor", f"pass torch.cat({name}.unbind()) for one batch"
    elif value.layout != torch.strided:
        what, do = f"has layout {value.layout}", f"pass {name}.to_dense()"
    else:
        return
    raise TypeError(got(f"{name} {what}", need="a dense tensor", do=do))


def full_precision(features: Tensor, *, temporary: bool = False) -> AbstractContextManager[object]:
    """Disable autograd, and autocast on the device of `features`, which would round matrix products.

    If all results are `temporary`, inference mode is used, in which small operations take a tenth less time. Its
    tensors cannot be used in autograd or changed in place afterwards, but copies of them can.
    """
    mode = torch.inference_mode() if temporary and not transforms_active() else torch.no_grad()
    device = "cpu" if features.is_cpu else features.device.type
    return _without_autocast(device, mode) if torch.is_autocast_enabled(device) else mode


@contextmanager
def _without_autocast(device: str, mode: AbstractContextManager[object]) -> Iterator[None]:
    with mode, torch.autocast(device, enabled=False):
        yield


def _is_exact(features: Tensor, n: int, scale: float) -> bool:
    """Return whether large products are in float64, for n samples, of which `features` (rows, d) are a part.

    By default, they are in the precision of the features, at least float32. They are in float64 if that costs next to
    nothing, if the features are so large or small that they are scaled, or if PyTorch is set to round the factors of
    float32 products.
    """
    return n * features.shape[1] ** 2 < _SMALL_PRODUCT or scale != 1.0 or _products_are_rounded()


def _at_least_float32(features: Tensor) -> Tensor:
    return features.float() if features.dtype.itemsize < 4 else features


def _has_tiny_dimension(means: Tensor) -> bool:
    """Return whether a dimension, given the class means (C, d), may be so small that its squares underflow in float32.

    A small dimension has small means, and these are the same on all ranks. Means of exactly 0 are those of a dead
    dimension.
    """
    largest = means.abs().amax(0)
    # Usually the cheap comparison is enough.
    return float(largest.min()) < _LEAST_FLOAT32 and bool(((largest < _LEAST_FLOAT32) & (largest > 0)).any())


def _products_are_rounded() -> bool:
    """Return whether `torch.set_float32_matmul_precision` or a backend setting lets PyTorch round products."""
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # backends have different settings
        return True


def _largest(features: Tensor) -> float:
    """Return the largest magnitude of the features, or 0 if there are none. Raises ValueError unless all are finite."""
    if not features.shape[0]:
        return 0.0
    low, high = torch.aminmax(features)
    largest = max(-float(low), float(high))
    if not math.isfinite(largest):
        nan, inf = int(features.isnan().sum()), int(features.isinf().sum())
        raise ValueError(
            got(
                f"features has {nan} NaN and {inf} infinite values among {features.numel()}",
                need="finite numbers",
                do="check for a learning rate that is too high or an overflow in half precision",
            )
        )
    return largest


def _classes(labels: Tensor) -> tuple[Tensor | range, Tensor, Tensor]:
    """Return the class ids (C,), ascending, the position of each label among them, and the size of each class (C,).

    Raises ValueError if a label is negative.
    """
    n = labels.shape[0]
    lowest, highest = map(int, torch.aminmax(labels)) if n else (0, 0)
    if lowest < 0:
        raise ValueError(
            got(
                f"labels contains {lowest}", need="class ids >= 0", do="drop unlabelled samples or renumber the classes"
            )
        )
    if highest < n:
        counts = torch.bincount(labels)
        # Usually the classes are numbered from 0 and all are present, so there is nothing to sort.
        if all(to_list(counts)):
            return range(highest + 1), labels, counts
    classes, index, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    return classes, index, counts


def _as_tensor(ids: Tensor | range, like: Tensor) -> Tensor:
    """Return class ids (C,) as a tensor on the device of `like`."""
    return ids if isinstance(ids, Tensor) else torch.arange(len(ids), device=like.device)


def _scale(largest: float) -> float:
    """Return the power of two that brings the largest feature near 1; 1 for ordinary magnitudes."""
    if largest == 0 or 1e-6 < largest < 1e6:
        return 1.0
    return math.ldexp(1.0, min(-math.frexp(largest)[1], _LARGEST_SCALE_EXPONENT))


def _chunks(rows: Tensor, *others: Tensor) -> Iterable[tuple[Tensor, ...]]:
    """Split rows and tensors of the same length into pieces whose float64 copies fit in the CPU cache.

    There is only one piece if the rows are not on the CPU.
    """
    n, d = rows.shape
    if rows.device.type != "cpu" or n * d <= _CHUNK_ELEMENTS:
        return ((rows, *others),)
    step = max(1, _CHUNK_ELEMENTS // d)
    return zip(*(torch.split(tensor, step) for tensor in (rows, *others)), strict=True)


def _class_sums(rows: Tensor, index: Tensor, weights: Tensor | None, classes: int) -> Tensor:
    """Return the sum of the rows of each class, times their weights, (C, d) float64."""
    sums = rows.new_zeros(classes, rows.shape[1], dtype=torch.float64)
    if rows.dtype == torch.float64 and weights is None:  # needs no copies, and thus no chunks
        return sums.index_add_(0, index, rows)
    for part, at, *weight in _chunks(rows, index, *(() if weights is None else (weights,))):
        sums.index_add_(0, at, part.double() * weight[0][:, None] if weight else part.double())
    return sums


def _centre(rows: Tensor, means: Tensor, index: Tensor) -> Tensor:
    """Return the rows minus the mean of their class, subtracted in float64 and rounded once."""
    if rows.dtype == torch.float64:
        return rows - means.index_select(0, index)
    parts = [(part.double() - means.index_select(0, at)).to(rows.dtype) for part, at in _chunks(rows, index)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)
