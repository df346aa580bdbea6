"""Detection of dead workers in a sweep, by their locks on the same machine and by their heartbeats elsewhere."""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deeplda.experiments.sweep_folder import worker_file
from deeplda.experiments.trial_queue import Attempt, LostTrialError
from deeplda.output_folder import is_locked

_BEAT_SECONDS = 15.0
_DEAD_SECONDS = 90.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class DeadWorkerDetector:
    """Detects running attempts whose worker has died."""

    def __init__(self, folder: Path, seconds: float = _DEAD_SECONDS) -> None:
        self._folder, self._seconds, self._machine = folder, seconds, this_machine()
        self._seen: dict[int, tuple[str | None, int, float]] = {}

    def is_dead(self, attempt: Attempt) -> bool:
        """Return whether the worker of a running attempt is dead."""
        if attempt.worker is not None and attempt.machine == self._machine:
            held = is_locked(worker_file(self._folder, attempt.worker))
            if held is not None:
                return not held
        worker, beat, since = self._seen.get(attempt.number, (None, -1, 0.0))
        if (worker, beat) != (attempt.worker, attempt.beat):
            self._seen[attempt.number] = (attempt.worker, attempt.beat, time.monotonic())
            return False
        return time.monotonic() - since > self._seconds


def this_machine() -> str:
    """Return an id shared by all processes on the same kernel, which see each other's locks."""
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else platform.node()


@contextmanager
def heartbeat(beat: Callable[[int], None], seconds: float = _BEAT_SECONDS) -> Iterator[Callable[[], bool]]:
    """Call `beat` with 1, 2, ... while the block runs; yield a function that tells whether the attempt was lost."""
    over, lost = threading.Event(), threading.Event()

    def run() -> None:
        count = 0
        while not over.wait(seconds):
            count += 1
            try:
                beat(count)
            except LostTrialError:
                lost.set()
                return
            except Exception:
                # The storage may be reachable again at the next beat.
                continue

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield lost.is_set
    finally:
        over.set()
        thread.join()
