"""Run a command as one job in several processes on this machine."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from deeplda.errors import StoppedError
from deeplda.printing import say
from deeplda.training.stopping import STOP_SIGNALS, TERMINAL_SIGNALS, asked_to_stop, blocked_in_children, stop_with

# If one process fails, the others have this long to exit on their own before they are killed.
_GRACE_SECONDS = 15.0
# The environment variable that tells a process which process started it.
_LAUNCHER = "DEEPLDA_LAUNCHER"


def is_in_job() -> bool:
    """Return whether this process is one of several started by torchrun or `run_job`."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_silent() -> bool:
    """Return whether another process in the job prints on behalf of this one."""
    return is_in_job() and os.environ.get("RANK", "0") != "0"


def stop_with_launcher() -> None:
    """In a process that `run_job` started, watch that process: once it is gone, this one gets SIGTERM."""
    if launcher := os.environ.pop(_LAUNCHER, None):
        stop_with(int(launcher))


def run_job(count: int) -> int:
    """Run the current command in `count` connected processes and return one exit code for all of them.

    The processes share the cores of this machine. They stop when this process is asked to stop, or is gone. For several
    machines or automatic restarts, use torchrun.

    Raises StoppedError if a process was stopped before or after its training, and KeyboardInterrupt after a second
    Ctrl-C.
    """
    from rich.console import Console
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # missing in torch's stubs

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    threads = os.environ.get("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    shared = {
        "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "OMP_NUM_THREADS": threads,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True",
        _LAUNCHER: str(os.getpid()),
    }  # fmt: skip
    command = [sys.executable, "-m", "deeplda", *sys.argv[1:]]
    running: list[subprocess.Popen[bytes]] = []
    with asked_to_stop(*STOP_SIGNALS) as stop:
        try:
            with blocked_in_children(*TERMINAL_SIGNALS):
                for rank in range(count):
                    env = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                    running.append(subprocess.Popen(command, env=env))
            return _wait(running, stop)
        finally:
            _kill(running)
            if any(process.returncode < 0 for process in running):
                # A progress bar hides the cursor, and a killed process cannot show it again.
                Console(stderr=True).show_cursor()


def _wait(running: list[subprocess.Popen[bytes]], stop: Callable[[], bool]) -> int:
    """Wait for all processes; after one has failed, kill any that outlive the grace period.

    Once `stop` returns True, all of them get SIGTERM: if they are training, they save the state first.
    """
    deadline, told = math.inf, False
    while any(process.poll() is None for process in running):
        time.sleep(0.05)
        if stop() and not told:
            told = True
            for process in running:
                process.terminate()
        # A process that exits with 130 has stopped as agreed with the others, and the first may still be saving.
        if any(process.poll() not in (None, 0, 130) for process in running):
            deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
        if time.monotonic() > deadline:
            _kill(running)
    codes = [process.returncode for process in running]
    if stop() and -signal.SIGTERM in codes:
        raise StoppedError("stopped; to continue from the last checkpoint, if there is one, pass --resume")
    if any(code < 0 for code in codes):
        sentence = "a process in the job was killed; pass --resume to continue from the last checkpoint"
        say(f"deeplda: {sentence}", file=sys.stderr)
    return next((code for code in codes if code > 0), 1 if any(codes) else 0)


def _kill(running: list[subprocess.Popen[bytes]]) -> None:
    for process in running:
        process.kill()  # has no effect on a process that has ended
        process.wait()
