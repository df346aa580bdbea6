"""The memory of this machine: how much is free, and keeping what a training step frees."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from deeplda.errors import InputError, got

_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_COPIES = 2  # splitting copies the samples, so for a moment a set is there twice


class TooLargeError(InputError):
    """A set that does not fit in the memory that is free."""


def available_memory() -> int | None:
    """Bytes that can be had without swapping, or None where the system does not say."""
    known = [int(text) for text in map(_text, _CGROUP_LIMITS) if text.isdigit()]
    for line in _text(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            known.append(int(line.split()[1]) * 1024)
            break
    else:
        if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
            known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(known, default=None)


def require_memory(samples_bytes: int, what: str) -> None:
    """Raise TooLargeError where `what`, whose samples take `samples_bytes`, would not fit."""
    available = available_memory()
    needed = _COPIES * samples_bytes
    if available is not None and needed > available:
        raise TooLargeError(
            got(
                f"{what} takes {_gib(needed)} to read and {_gib(available)} is free",
                need="a set that fits in memory",
                do="pass a smaller --image-size, or give fewer samples",
            )
        )


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


# Of glibc's malloc.h; on another C library there is no such function, and nothing is done.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4


def keep_freed_memory() -> None:
    """Have this process keep the large blocks it frees, instead of giving each back to the system.

    A step of a convolutional network takes and frees gigabytes in blocks of many megabytes. By default each comes
    fresh from the system, which clears it page by page: a quarter of the time of a narrow DorferNet's step. The
    price is a peak of memory that is up to a third higher. For a process of our own: it holds for all that runs in it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, -1)
