"""Which workers live: each holds a lock while it does, and beats in the storage.

On one machine the lock tells at once: the system releases it however the worker ends. Of a worker on another machine
only the beat can be seen. No two clocks are compared: who has seen a beat not change for a while takes it for dead.
"""

from __future__ import annotations

import fcntl
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from deeplda.experiments.sweeps.ledger import Attempt, LostError

_BEAT_SECONDS = 15.0
_DEAD_SECONDS = 90.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Presence:
    """This worker, alive as long as the block runs: its name, its machine, and its lock in the sweep's folder."""

    def __init__(self, folder: Path) -> None:
        self.name = f"{platform.node()}-{os.getpid()}-{secrets.token_hex(3)}"
        self.machine = this_machine()
        self._file = _lock_file(folder, self.name)

    def __enter__(self) -> Self:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> None:
        # After an error the file stays, so that others find it without its holder, and what it had in hand is taken up.
        if error is None:
            self._file.unlink(missing_ok=True)
        os.close(self._lock)


class Heart:
    """Beats while the block runs; `lost` turns true when the attempt turns out to be another's."""

    def __init__(self, beat: Callable[[int], None], seconds: float = _BEAT_SECONDS) -> None:
        self.lost = False
        self._beat, self._seconds, self._over = beat, seconds, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        count = 0
        while not self._over.wait(self._seconds):
            count += 1
            try:
                self._beat(count)
            except LostError:
                self.lost = True
                return
            except Exception:
                # A storage that does not answer now may do so at the next beat.
                continue


class DeathWatch:
    """Tells the dead from the living."""

    def __init__(self, folder: Path, seconds: float = _DEAD_SECONDS) -> None:
        self._folder, self._seconds, self._machine = folder, seconds, this_machine()
        self._seen: dict[int, tuple[str | None, int, float]] = {}

    def dead(self, attempt: Attempt) -> bool:
        """Whether the worker of a running attempt is gone."""
        if attempt.worker is not None and attempt.machine == self._machine:
            held = is_locked(_lock_file(self._folder, attempt.worker))
            if held is not None:
                return not held
        worker, beat, since = self._seen.get(attempt.number, (None, -1, 0.0))
        if (worker, beat) != (attempt.worker, attempt.beat):
            self._seen[attempt.number] = (attempt.worker, attempt.beat, time.monotonic())
            return False
        return time.monotonic() - since > self._seconds


def this_machine() -> str:
    """What processes that share a kernel, and so see each other's locks, have in common."""
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else platform.node()


def is_locked(file: Path) -> bool | None:
    """Whether some process holds a file's lock; None where there is no such file."""
    try:
        lock = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _lock_file(folder: Path, worker: str) -> Path:
    return folder / "workers" / f"{worker}.lock"
