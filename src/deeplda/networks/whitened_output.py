"""An output layer that makes the outputs of a network uncorrelated, so that none of them can copy another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor, nn

from deeplda.core.distributed import Ranks
from deeplda.errors import InputError, got
from deeplda.formatting import counted

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Outputs = Literal["whitened"]

# The ridge on the covariance, relative to the mean variance of the outputs, and its lower bound.
_RIDGE, _LEAST_RIDGE = 1e-5, 1e-12


class WhitenedOutput(nn.Module):
    """Map rows (n, d) to rows with mean 0 and total covariance I: L^-1 (h - mean), where L L' is the covariance.

    Put it after the last layer of a network that is trained with alpha < 1. Without it, such a loss rewards outputs
    that are copies of each other: k copies of an output multiply its eigenvalue by k / (1 + (k - 1) alpha).

    In training mode, mean and covariance are those of the batch, and their gradient is part of the layer's gradient. If
    a batch is split among the ranks of a process group, they are those of the complete batch: each rank passes its
    part, which may be empty, and forward and backward take two exchanges each, of 1 + d and d d numbers. Under
    DistributedDataParallel, the gradient of the parameters is then that of one process with all samples. In eval mode,
    the running mean and covariance are used, as a fixed linear map, which can be exported.

    The covariance has a ridge of 1e-5 of the mean variance. An exact copy of an output becomes an output with about
    this variance, which the ridge `lam` of the loss, by default 1e-3, makes worthless; with lam = 0, copies would pay.

    A batch should have several times as many samples as outputs. The statistics are computed in float64, and the
    result has the precision of the rows, at least float32.

    Args:
        width: d, the number of outputs.
        momentum: the weight of the newest batch in the running statistics.
        process_group: the ranks among which each batch is split; None means the default group, if there is one.

    Attributes:
        local: set it to True to use the samples of this process alone, even in a process group.

    Buffers: mean (d,) and covariance (d, d), the running statistics; whitening (d, d), L^-T as of the last change to
    eval mode.

    Raises ValueError if the rows do not have `width` columns, or if a training batch has fewer than two samples.
    """

    mean: Tensor
    covariance: Tensor
    whitening: Tensor

    def __init__(self, width: int, *, momentum: float = 0.4, process_group: ProcessGroup | None = None) -> None:
        super().__init__()
        if width < 1:
            raise InputError(f"width is {width}, need at least 1: pass the number of outputs")
        if not 0 < momentum <= 1:
            raise InputError(f"momentum must be greater than 0 and at most 1, got {momentum}")
        self.width, self.momentum, self.process_group, self.local = width, momentum, process_group, False
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("covariance", torch.eye(width))
        self.register_buffer("whitening", torch.eye(width))

    def forward(self, rows: Tensor) -> Tensor:
        """Whiten rows (n, d)."""
        if rows.ndim != 2 or rows.shape[1] != self.width:
            shape = tuple(rows.shape)
            raise ValueError(got(f"rows has shape {shape}", need=f"(n, {self.width})", do="flatten the outputs"))
        if not self.training:
            return (rows - self.mean) @ self.whitening
        with torch.autocast(rows.device.type, enabled=False):
            return self._whiten_batch(rows)

    def train(self, mode: bool = True) -> Self:
        """Set the mode. In eval mode, the map is fixed, with the running statistics at this moment."""
        if not mode:
            self._freeze()
        return super().train(mode)

    def extra_repr(self) -> str:
        return f"{self.width}, momentum={self.momentum:g}"

    def _whiten_batch(self, rows: Tensor) -> Tensor:
        ranks = None if self.local else Ranks.of(self.process_group)
        exact = rows.to(_exact(rows))
        totals = _total(torch.cat([exact.new_tensor([len(exact)]), exact.sum(0)]), ranks)
        count = totals[0].detach()
        if count < 2:
            what = f"the batch has {counted(int(count), 'sample')}"
            raise ValueError(got(what, need="at least two in training mode", do="use larger batches"))
        mean = totals[1:] / count
        centred = exact - mean
        covariance = _total(centred.T @ centred, ranks) / count
        with torch.no_grad():
            self.mean.lerp_(mean.to(self.mean), self.momentum)
            self.covariance.lerp_(covariance.to(self.covariance), self.momentum)
        whitened: Tensor = torch.linalg.solve_triangular(_root(covariance), centred.T, upper=False).T
        return whitened.to(torch.promote_types(rows.dtype, torch.float32))

    @torch.no_grad()
    def _freeze(self) -> None:
        root = _root(self.covariance.to(_exact(self.covariance)))
        identity = torch.eye(self.width, dtype=root.dtype, device=root.device)
        self.whitening.copy_(torch.linalg.solve_triangular(root.T, identity, upper=True))


def whitened_output(outputs: Outputs | None, embedding_dim: int) -> WhitenedOutput | None:
    """Return the layer after the head of a built-in network, or None if its outputs stay as they are."""
    if outputs not in (None, "whitened"):
        raise InputError(f"outputs is {outputs!r}, need 'whitened': check the spelling, or omit outputs")
    return None if outputs is None else WhitenedOutput(embedding_dim)


def _exact(values: Tensor) -> torch.dtype:
    """Return the precision of the statistics; Apple's devices have no float64."""
    return torch.float32 if values.device.type == "mps" else torch.float64


def _root(covariance: Tensor) -> Tensor:
    """Return L with L L' = covariance + ridge I, (d, d); NaN is passed on, because the loss reports it better."""
    ridge = (_RIDGE * covariance.diagonal().mean()).clamp(min=_LEAST_RIDGE)
    identity = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    root: Tensor = torch.linalg.cholesky_ex(covariance + ridge * identity)[0]
    return root


def _total(part: Tensor, ranks: Ranks | None) -> Tensor:
    if ranks is None:
        return part
    total: Tensor = _SumOverRanks.apply(part, ranks)  # type: ignore[no-untyped-call]  # not typed in torch
    return total


class _SumOverRanks(torch.autograd.Function):
    """The sum over ranks. Every rank's result depends on every part, so the gradient is the sum over ranks as well."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return ranks.total(part)[0].clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        return ctx.ranks.total(upstream.contiguous())[0].clone(), None
