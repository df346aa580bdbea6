"""Communication between the torch.distributed ranks among which a batch is split.

First, in `Ranks.agree`, each rank sends a few numbers about its part and the class ids in it, or reports an error.
After that, all ranks have the same information about the complete batch, and either all raise the same error or none
does. `Ranks.total` then adds up sums over the ranks. Features are never sent.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
import torch.distributed as dist
from torch import Tensor

from deeplda.errors import got

# Class ids sent with the first message; a second message is needed only if a rank has more.
_IDS = 256
_ERRORS: tuple[type[Exception], ...] = (TypeError, ValueError, RuntimeError)


class Summary(NamedTuple):
    """A summary of one rank's part of a batch.

    Attributes:
        classes: (C,) int64, the class ids in the part, ascending.
        n, d: the shape of the part; n may be 0.
        dtype: the dtype of the features.
        largest: the largest magnitude of the features.
        error: the error that the part raised, or None; if there is an error, the other fields are meaningless.
    """

    classes: Tensor
    n: int = 0
    d: int = 0
    dtype: str = ""
    largest: float = 0.0
    error: Exception | None = None

    @classmethod
    def failed(cls, error: Exception) -> Self:
        return cls(torch.zeros(0, dtype=torch.int64), error=error)


class Agreement(NamedTuple):
    """Information about the complete batch that is the same on all ranks.

    Attributes:
        ids: (C,) int64, the class ids on all ranks, ascending, on the device of this rank's ids. If the batch is local,
            they may be a range.
        n: the number of samples on all ranks.
        largest: the largest magnitude of the features.
        ranks: the ranks over which sums are added up; None if the batch is local.
    """

    ids: Tensor | range
    n: int
    largest: float
    ranks: Ranks | None


class _Header(NamedTuple):
    """The integers that start a rank's message. `length` counts its class ids or the bytes of its error message."""

    error: int
    length: int
    n: int
    d: int
    dtype: int
    options: int
    largest: int
    direct: int


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks among which a batch is split.

    Attributes:
        group: their process group; None for the default group.
        size: the number of ranks, at least two.
        carrier: the device on which tensors are exchanged.
        direct: the types of devices from whose memory a backend of the group can send directly.
    """

    group: dist.ProcessGroup | None
    size: int
    carrier: torch.device
    direct: frozenset[str]

    @classmethod
    def of(cls, group: dist.ProcessGroup | None) -> Self | None:
        """Return the ranks in `group` (None means the default group), or None if there are fewer than two.

        Raises ValueError if this process is not a member of `group`.
        """
        if not dist.is_available() or (group is None and not dist.is_initialized()):
            return None
        size = dist.get_world_size(group)
        if size < 1:
            raise ValueError(
                got(
                    "process_group does not include this process",
                    need="a group that this process belongs to",
                    do="call the loss only on the ranks in the group",
                )
            )
        if size == 1:
            return None
        backends = dict(pair.split(":") for pair in dist.get_backend_config(group).split(","))
        # Gloo routes everything through CPU memory.
        direct = frozenset(kind for kind, backend in backends.items() if backend != "gloo")
        return cls(group, size, torch.device("cpu" if "cpu" in backends else min(backends)), direct)

    @property
    def is_first(self) -> bool:
        """Whether this process is rank 0 of the group."""
        return dist.get_rank(self.group) == 0

    def agree(self, part: Summary, options: str) -> Agreement:
        """Combine the summaries of all ranks; the text `options` must be the same on all of them.

        This takes one exchange, or two if a rank has more than 256 classes. If a part has an error or the parts do not
        match, all ranks raise the same TypeError, ValueError or RuntimeError.
        """
        header, ids = self._header(part, options), part.classes.cpu()
        messages = self._gather(torch.cat([torch.tensor(header), _padded(ids[:_IDS], _IDS)]))
        headers = [_Header(*row) for row in messages[:, : len(header)].tolist()]
        self._check_errors(headers, part.error)
        self._check_alike(headers)
        most = max(h.length for h in headers)
        lists = messages[:, len(header) :] if most <= _IDS else self._gather(_padded(ids, most))
        classes = torch.unique(torch.cat([row[: h.length] for row, h in zip(lists, headers, strict=True)]))
        device = part.classes.device
        return Agreement(
            ids=classes.to(device),
            n=sum(h.n for h in headers),
            largest=max(_float_of(h.largest) for h in headers),
            ranks=replace(self, carrier=device) if all(h.direct for h in headers) else self,
        )

    def total(self, *parts: Tensor) -> list[Tensor]:
        """Return the sums of float64 tensors over the ranks, in one exchange."""
        flat = torch.cat([part.flatten() for part in parts]).to(self.carrier)
        dist.all_reduce(flat, group=self.group)
        pieces = torch.split(flat.to(parts[0].device), [part.numel() for part in parts])
        return [piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True)]

    def _header(self, part: Summary, options: str) -> _Header:
        return _Header(
            error=0 if part.error is None else _kind(part.error),
            length=len(part.classes) if part.error is None else len(_text(part.error)),
            n=part.n,
            d=part.d,
            dtype=zlib.crc32(part.dtype.encode()),
            options=zlib.crc32(options.encode()),
            largest=_bits_of(part.largest),
            direct=part.classes.device.type in self.direct,
        )

    def _gather(self, row: Tensor) -> Tensor:
        """Gather one row (k,) from each rank and return them as (ranks, k) on the CPU."""
        row = row.to(self.carrier)
        rows = row.new_empty(self.size, len(row))
        dist.all_gather(list(rows), row, group=self.group)
        return rows.cpu()

    def _check_errors(self, headers: Sequence[_Header], own: Exception | None) -> None:
        """If any rank failed, raise the first failing rank's error with its message."""
        failed = next((place for place, header in enumerate(headers) if header.error), None)
        if failed is None:
            return
        rank, header = self._global_rank(failed), headers[failed]
        text = torch.zeros(header.length, dtype=torch.uint8)
        if own is not None and rank == dist.get_rank():
            text = torch.tensor(list(_text(own)), dtype=torch.uint8)
        text = text.to(self.carrier)
        dist.broadcast(text, src=rank, group=self.group)
        raise _ERRORS[header.error - 1](f"on rank {rank}: {bytes(text.tolist()).decode()}") from own

    def _check_alike(self, headers: Sequence[_Header]) -> None:
        """Raise ValueError if the ranks differ where they must agree, or if no rank has any samples."""
        first = headers[0]
        for place, header in enumerate(headers):
            here, there = f"on rank {self._global_rank(place)}", f"on rank {self._global_rank(0)}"
            if header.d != first.d:
                what, do = f"features has {header.d} columns {here} but {first.d} {there}", "use the same network"
            elif header.dtype != first.dtype:
                what, do = f"features has a different dtype {here} than {there}", "use the same precision"
            elif header.options != first.options:
                what, do = f"the loss has different options {here} than {there}", "create it with the same options"
            else:
                continue
            raise ValueError(got(what, need="the same on all ranks", do=f"{do} everywhere"))
        if not any(header.n for header in headers):
            raise ValueError(
                got(
                    f"features has shape {(0, first.d)} on every rank",
                    need="at least one sample",
                    do="skip empty batches on all ranks",
                )
            )

    def _global_rank(self, place: int) -> int:
        """Return the global rank of a member of the group, which is the number shown in logs."""
        return place if self.group is None else dist.get_global_rank(self.group, place)


def _padded(ids: Tensor, length: int) -> Tensor:
    return torch.cat([ids, ids.new_zeros(length - len(ids))])


def _kind(error: Exception) -> int:
    """Return 1 plus the position of the error's type in `_ERRORS`; RuntimeError represents all other types."""
    return next((i for i, kind in enumerate(_ERRORS, start=1) if isinstance(error, kind)), len(_ERRORS))


def _text(error: Exception) -> bytes:
    return (str(error) or type(error).__name__).encode()


def _bits_of(value: float) -> int:
    """Return the integer with the same 64 bits as a float, so that it can be sent with integers without rounding."""
    bits: int = struct.unpack("q", struct.pack("d", value))[0]
    return bits


def _float_of(bits: int) -> float:
    value: float = struct.unpack("d", struct.pack("q", bits))[0]
    return value
