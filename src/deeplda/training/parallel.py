"""Communication between the processes that train together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn

from deeplda.errors import InputError, TrainingError

T = TypeVar("T")

# The key of the run's id in the store of a torchrun job.
_JOB = "deeplda-run"


@dataclass(frozen=True)
class World:
    """The rank of this process, and the number of processes that train together.

    The processes exchange pickled objects. This is safe because they belong to one job, started by the same user.
    """

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0

    def share(self, items: T) -> T:
        """Return every `size`-th item from `rank` on, which splits a stratified batch into stratified parts.

        Like a slice, it does not copy or read the items.
        """
        part: T = items[self.rank :: self.size]  # type: ignore[index]  # arrays and `MappedRows`
        return part

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""
        return flag if self.size == 1 else bool(self.total(np.array([flag], dtype=np.int64))[0])

    def total(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Return the sum over all processes."""
        if self.size == 1:
            return numbers
        tensor = torch.from_numpy(numbers.copy()).to(_carrier())
        dist.all_reduce(tensor)
        summed: NDArray[Any] = tensor.cpu().numpy()
        return summed

    def from_first(self, value: T) -> T:
        """Return the first process's value in all processes."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=_carrier())
        return box[0]

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, ordered by rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def together(self, work: Callable[[], T]) -> T:
        """Return the result of `work` in this process. If any process raises InputError, all of them raise it."""
        outcome: list[T] = []
        error = None
        try:
            outcome.append(work())
        except InputError as raised:
            error = str(raised)
        errors = [message for message in self.gather(error) if message is not None]
        if errors:
            raise InputError(errors[0])
        return outcome[0]

    def in_first(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, which only the first process does. If it raises InputError, all of them do."""
        return self.from_first(self.together(lambda: [work()] if self.first else []))[0]

    @torch.no_grad()
    def average_buffers(self, network: nn.Module) -> None:
        """Average the floating-point buffers, such as running means and variances, over the processes."""
        if self.size == 1:
            return
        for buffer in network.buffers():
            if buffer.is_floating_point():
                dist.all_reduce(buffer)
                buffer /= self.size


ALONE = World()


def _carrier() -> torch.device:
    """Return the device on which the backend exchanges tensors."""
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


def restart_count() -> int:
    """Return how often torchrun has restarted this job after losing a process."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def job_id(proposed: str | None = None) -> str | None:
    """Return the id of the run that this job trains, which torchrun keeps when it restarts the job.

    The first process passes the id once, as `proposed`. Until then, and outside torchrun, it is None.
    """
    if "TORCHELASTIC_RESTART_COUNT" not in os.environ:
        return proposed
    store, _, _ = next(dist.rendezvous("env://"))  # type: ignore[attr-defined]  # missing in torch's stubs
    while isinstance(store, dist.PrefixStore):  # type: ignore[attr-defined]  # as above
        # The prefix contains the number of restarts.
        store = store.underlying_store
    if proposed is not None:
        # Sets the key only if it does not exist yet.
        return str(store.compare_set(_JOB, "", proposed).decode())
    return str(store.get(_JOB).decode()) if store.check([_JOB]) else None


@contextmanager
def joined_world(device: str) -> Iterator[World]:
    """Join the processes that torchrun or `deeplda train --processes` started; without them, yield a world of one.

    With CUDA, each process uses the device of its local rank. Raises TrainingError if another process is lost.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    on_cuda = torch.cuda.is_available() and device in ("auto", "cuda")
    if on_cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    store, rank, size = next(dist.rendezvous("env://"))  # type: ignore[attr-defined]  # missing in torch's stubs
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # A restarted job has the same store, and keys written before the restart must not be found. Without this
        # variable, each start has a store of its own, and hosts may count their restarts differently.
        store = dist.PrefixStore(f"start-{restart_count()}", store)  # type: ignore[attr-defined]  # as above
    # A lost process is noticed by its closed connection. Long waits are normal, because the other processes wait while
    # the first one splits classes.
    patience = timedelta(days=2)
    dist.init_process_group("nccl" if on_cuda else "gloo", store=store, rank=rank, world_size=size, timeout=patience)
    try:
        yield World(rank, size)
    except (dist.DistBackendError, dist.DistNetworkError, RuntimeError) as error:
        if not _is_lost_contact(error):
            raise
        raise TrainingError(f"another process in this job was lost ({str(error).splitlines()[0]})") from None
    finally:
        dist.destroy_process_group()


def _is_lost_contact(error: Exception) -> bool:
    signs = ("Connection closed by peer", "Connection reset", "Broken pipe", "Timed out", "Socket", "NCCL")
    return isinstance(error, dist.DistError) or any(sign in str(error) for sign in signs)
