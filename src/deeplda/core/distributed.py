"""How the ranks of torch.distributed compute the moments of a batch they share.

First each rank sends a few numbers about its part and the class ids in it, or reports that it has failed:
`Ranks.agree`. After that all ranks know the same about the whole batch and either raise the same error or none.
Sums are then added up with `Ranks.total`. Features are never sent.
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

# Ids that travel with the first message; only a rank with more of them costs a second one.
_IDS = 256
_ERRORS: tuple[type[Exception], ...] = (TypeError, ValueError, RuntimeError)


class Summary(NamedTuple):
    """One rank's part of a batch.

    Attributes:
        classes: (C,) int64, the class ids in it, ascending.
        n, d: its shape; n may be 0.
        dtype: of its features.
        largest: their largest magnitude.
        error: why it cannot be used; the rest then says nothing.
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
    """What all ranks know of the whole batch.

    Attributes:
        classes: (C,) int64, the class ids on all ranks, ascending, on the device of this rank's ids.
        n: samples on all ranks.
        largest: the largest magnitude of the features.
        ranks: with whom to add up what follows; None where the batch is this process's own.
    """

    classes: Tensor
    n: int
    largest: float
    ranks: Ranks | None


class _Header(NamedTuple):
    """The integers that open a rank's message. `length` is that of its ids, or of the text of its error."""

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
    """The processes that share a batch.

    Attributes:
        group: their process group, None for the default one.
        size: how many they are, two or more.
        carrier: the device on which tensors are exchanged.
        direct: the kinds of device whose memory a backend of the group sends from.
    """

    group: dist.ProcessGroup | None
    size: int
    carrier: torch.device
    direct: frozenset[str]

    @classmethod
    def of(cls, group: dist.ProcessGroup | None) -> Self | None:
        """Those of `group`, or of the default group; None where this process has nobody to share with."""
        if not dist.is_available() or (group is None and not dist.is_initialized()):
            return None
        size = dist.get_world_size(group)
        if size < 1:
            raise ValueError(
                got(
                    "process_group is one that this process is not in",
                    need="a group of this process",
                    do="call the loss only on the ranks of the group",
                )
            )
        if size == 1:
            return None
        backends = dict(pair.split(":") for pair in dist.get_backend_config(group).split(","))
        # Gloo goes through the CPU's memory whatever it is given.
        direct = frozenset(kind for kind, backend in backends.items() if backend != "gloo")
        return cls(group, size, torch.device("cpu" if "cpu" in backends else min(backends)), direct)

    @property
    def is_first(self) -> bool:
        """Whether this process is the first of them."""
        return dist.get_rank(self.group) == 0

    def agree(self, part: Summary, options: str) -> Agreement:
        """What the parts of all ranks are together; `options` must be the same text on all.

        One exchange, two where a rank has more than 256 classes. Where a part has an error, or the parts do not go
        together, all ranks raise the same TypeError, ValueError or RuntimeError.
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
            classes=classes.to(device),
            n=sum(h.n for h in headers),
            largest=max(_float_of(h.largest) for h in headers),
            ranks=replace(self, carrier=device) if all(h.direct for h in headers) else self,
        )

    def total(self, *parts: Tensor) -> list[Tensor]:
        """The sums of float64 tensors over the ranks, in one exchange."""
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
        """The rows (k,) of all ranks, (ranks, k), on the CPU."""
        row = row.to(self.carrier)
        rows = row.new_empty(self.size, len(row))
        dist.all_gather(list(rows), row, group=self.group)
        return rows.cpu()

    def _check_errors(self, headers: Sequence[_Header], own: Exception | None) -> None:
        """Raise the error of the first rank that has one, in its words."""
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
        """Raise where ranks differ in what must be the same on all, or have no sample between them."""
        first = headers[0]
        for place, header in enumerate(headers):
            here, there = f"on rank {self._global_rank(place)}", f"on rank {self._global_rank(0)}"
            if header.d != first.d:
                what, do = f"features has {header.d} columns {here} and {first.d} {there}", "use the same network"
            elif header.dtype != first.dtype:
                what, do = f"features is of another dtype {here} than {there}", "use the same precision"
            elif header.options != first.options:
                what, do = f"RDLDALoss has other options {here} than {there}", "make it in the same way"
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
        """The rank, as logs have it, of a member of the group."""
        return place if self.group is None else dist.get_global_rank(self.group, place)


def _padded(ids: Tensor, length: int) -> Tensor:
    return torch.cat([ids, ids.new_zeros(length - len(ids))])


def _kind(error: Exception) -> int:
    """1 plus the place in `_ERRORS` of the kind of error; RuntimeError stands for all others."""
    return next((i for i, kind in enumerate(_ERRORS, start=1) if isinstance(error, kind)), len(_ERRORS))


def _text(error: Exception) -> bytes:
    return (str(error) or type(error).__name__).encode()


def _bits_of(value: float) -> int:
    """A float as the integer of the same 64 bits, which travels among integers without rounding."""
    bits: int = struct.unpack("q", struct.pack("d", value))[0]
    return bits


def _float_of(bits: int) -> float:
    value: float = struct.unpack("d", struct.pack("q", bits))[0]
    return value
