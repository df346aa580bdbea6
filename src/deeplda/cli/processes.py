"""Several processes on this machine that run the same command together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from types import FrameType

# How long the others may take to end by themselves when one has ended badly.
_GRACE_SECONDS = 15.0


def in_a_job() -> bool:
    """Whether torchrun, or `run_together`, has started this process among others."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_silent() -> bool:
    """Whether another process of the job does the talking."""
    return in_a_job() and os.environ.get("RANK", "0") != "0"


def run_together(count: int) -> int:
    """Run this very command in `count` processes that find each other, and return the exit code for all of them.

    They share the processor's cores. What torchrun adds, several machines and starting again, is left to torchrun.
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

    def pass_on(_number: int, _frame: FrameType | None) -> None:
        for process in running:
            process.terminate()

    # Ctrl-C reaches every process of the terminal by itself; this one waits for theirs to end.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(signal.SIGTERM, pass_on)
    try:
        return _wait(running)
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])


def _wait(running: list[subprocess.Popen[bytes]]) -> int:
    """Wait for all; where one ends badly the others are soon made to end too."""
    deadline = None
    while any(process.poll() is None for process in running):
        time.sleep(0.05)
        if deadline is None and any(process.poll() not in (None, 0) for process in running):
            deadline = time.monotonic() + _GRACE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            for process in running:
                process.kill()
    codes = [process.returncode for process in running]
    if any(code < 0 for code in codes):
        print("deeplda: a process of the job was killed; --resume goes on from the last checkpoint", file=sys.stderr)
    return next((code for code in codes if code > 0), 1 if any(codes) else 0)
