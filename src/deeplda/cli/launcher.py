"""Run a command as one job in several processes on this machine."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from types import FrameType

from deeplda.printing import say

# If one process fails, the others have this long to exit on their own before they are killed.
_GRACE_SECONDS = 15.0


def is_in_job() -> bool:
    """Return whether this process is one of several started by torchrun or `run_job`."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_silent() -> bool:
    """Return whether another process in the job prints on behalf of this one."""
    return is_in_job() and os.environ.get("RANK", "0") != "0"


def run_job(count: int) -> int:
    """Run the current command in `count` connected processes and return one exit code for all of them.

    The processes share the cores of this machine. For several machines or automatic restarts, use torchrun.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # missing in torch's stubs

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    threads = os.environ.get("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    shared = {
        "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "OMP_NUM_THREADS": threads,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True",
    }  # fmt: skip
    command = [sys.executable, "-m", "deeplda", *sys.argv[1:]]
    running = [
        subprocess.Popen(command, env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(count)
    ]

    def terminate_all(_number: int, _frame: FrameType | None) -> None:
        for process in running:
            process.terminate()

    # Ctrl-C reaches every process in the terminal directly, so this one only waits for the others.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(signal.SIGTERM, terminate_all)
    try:
        return _wait(running)
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])


def _wait(running: list[subprocess.Popen[bytes]]) -> int:
    """Wait for all processes; after one has failed, kill any that outlive the grace period."""
    deadline = math.inf
    while any(process.poll() is None for process in running):
        time.sleep(0.05)
        if any(process.poll() not in (None, 0) for process in running):
            deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
        if time.monotonic() > deadline:
            for process in running:
                process.kill()
    codes = [process.returncode for process in running]
    if any(code < 0 for code in codes):
        sentence = "a process in the job was killed; pass --resume to continue from the last checkpoint"
        say(f"deeplda: {sentence}", file=sys.stderr)
    return next((code for code in codes if code > 0), 1 if any(codes) else 0)
