"""A pool of local torch.distributed processes (gloo, one thread each) that run many small jobs."""

from __future__ import annotations

import multiprocessing
import traceback
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from deeplda.batch_rule import SmallBatchWarning

# A job that hangs fails after this time; ample even on a busy machine.
SECONDS = 60
_STARTING_SECONDS = 300


class RankPool:
    """`size` ranks of one process group; `run` runs a job on all of them at the same time."""

    def __init__(self, size: int, folder: Path) -> None:
        self.size = size
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["deeplda.losses"])
        self._pipes, self._processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, rank, size, folder / "store"), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        self._answers(_STARTING_SECONDS)

    def run(self, job: Callable[..., Any], arguments: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        """Return the result of `job(*arguments[rank])` on each rank; an exception counts as a result."""
        for rank, pipe in enumerate(self._pipes):
            pipe.send((job, () if arguments is None else arguments[rank]))
        return self._answers(SECONDS)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(5)
            process.kill()
            process.join()

    def _answers(self, seconds: int) -> list[Any]:
        missing = [rank for rank, pipe in enumerate(self._pipes) if not pipe.poll(seconds)]
        if missing:
            self.close()
            raise TimeoutError(f"ranks {missing} of {self.size} gave no answer within {seconds} s")
        return [pipe.recv() for pipe in self._pipes]


def values(results: Sequence[Any]) -> list[Any]:
    """Return the results of a job, raising the first exception among them."""
    for result in results:
        if isinstance(result, Exception):
            raise result
    return list(results)


def _serve(pipe: Connection, rank: int, size: int, store: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", SmallBatchWarning)
    limit = timedelta(seconds=SECONDS - 10)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=limit)
    pipe.send("ready")
    try:
        while True:
            job, arguments = pipe.recv()
            pipe.send(_outcome(job, arguments))
    except EOFError:
        dist.destroy_process_group()


def _outcome(job: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return job(*arguments)
    except Exception as error:
        error.add_note(traceback.format_exc())
        return error
