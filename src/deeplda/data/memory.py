"""Refuse a set that would not fit in memory before it is read."""

from __future__ import annotations

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
