"""Several workers on this machine, each a process with its share of the threads."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from deeplda.errors import InputError, TrainingError, unwritten
from deeplda.experiments.sweeps.sweep import open_sweep
from deeplda.experiments.sweeps.worker import work
from deeplda.training.pipeline import asked_to_stop


def run_crew(folder: Path, url: str | None, workers: int, stop: Callable[[], bool]) -> None:
    """Start so many workers on the sweep in `folder` and wait for them; when `stop` says so, stop them all."""
    threads = max(1, torch.get_num_threads() // workers)
    crew = _start(folder, url, workers, threads)
    told = False
    try:
        while any(process.is_alive() for process in crew):
            for process in crew:
                process.join(0.1)
            if stop() and not told:
                told = True
                for process in crew:
                    process.terminate()
    except BaseException:
        for process in crew:
            process.kill()
        raise
    finally:
        for process in crew:
            process.join()


def _start(folder: Path, url: str | None, workers: int, threads: int) -> list[BaseProcess]:
    """Processes that do not hear Ctrl-C themselves: who started them tells them."""
    context = multiprocessing.get_context("spawn")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        crew: list[BaseProcess] = [
            context.Process(target=_member, args=(folder, url, threads, os.getpid()), name=f"worker {number + 1}")
            for number in range(workers)
        ]
        for process in crew:
            process.start()
    finally:
        signal.signal(signal.SIGINT, before)
    return crew


def _member(folder: Path, url: str | None, threads: int, parent: int) -> None:
    """A worker's process; it stops when told to, or when who started it is gone."""
    torch.set_num_threads(threads)
    warnings.showwarning = _show_warning
    with asked_to_stop(signal.SIGTERM) as told:
        try:
            work(open_sweep(folder, url=url), lambda: told() or os.getppid() != parent)
        except (InputError, TrainingError) as error:
            print(f"deeplda: {error}", file=sys.stderr)
            sys.exit(1)
        except OSError as error:
            if (sentence := unwritten(error)) is None:
                raise
            print(f"deeplda: {sentence}", file=sys.stderr)
            sys.exit(1)
        except KeyboardInterrupt:
            sys.exit(130)


def _show_warning(message: Warning | str, *_where: object, **_more: object) -> None:
    """As the command line shows it: one line, without the place in the code."""
    print(f"deeplda: {message}", file=sys.stderr)
