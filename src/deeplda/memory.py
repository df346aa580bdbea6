"""Check the available memory, and keep freed blocks for reuse."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

from deeplda.errors import InputError

_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_COPIES = 2  # splitting copies the samples, so a data set is in memory twice for a moment


class TooLargeError(InputError):
    """Data, a model or a file does not fit in the available memory."""


def available_memory() -> int | None:
    """Return the number of bytes that can be allocated without swapping, or None if the system does not report it."""
    known = [int(text) for text in map(_text, _CGROUP_LIMITS) if text.isdigit()]
    if kilobytes := re.search(r"^MemAvailable:\s*(\d+)", _text(Path("/proc/meminfo")), re.MULTILINE):
        known.append(int(kilobytes[1]) * 1024)
    elif "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(known, default=None)


def require_memory(
    size: int, what: str, *, copies: int = _COPIES, do: str = "pass a smaller --image-size or use fewer samples"
) -> None:
    """Raise TooLargeError if copies of `what`, of `size` bytes each, exceed the available memory.

    Every reader calls this with the size that a file declares before it allocates anything. `what` names it in the
    message, which ends with what to do.
    """
    available, needed = available_memory(), copies * size
    if available is not None and needed > available:
        sizes = f"it takes {gib(needed)}, but only {gib(available)} is available"
        raise TooLargeError(f"{what} does not fit in memory: {sizes}; {do}")


def fits_in_memory(size: int) -> bool:
    """Return whether samples of `size` bytes fit in the available memory, as `require_memory` checks by default."""
    available = available_memory()
    return available is None or _COPIES * size <= available


def gib(size: int) -> str:
    """Format a number of bytes in GiB."""
    # A broken file can declare a number that no float can hold.
    return f"{size / 2**30:,.1f} GiB" if size < 2**60 else "more than a billion GiB"


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


# Parameters of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4


def keep_freed_memory() -> None:
    """Make this process keep the large blocks that it frees instead of returning them to the system.

    A training step of a convolutional network allocates and frees gigabytes in blocks of many megabytes. By default,
    the system maps and clears every block again, which takes a quarter of the step time of a narrow DorferNet. In
    exchange for the speed, peak memory rises by up to a third. The setting affects the whole process, so call this only
    in a process of our own. Without glibc, it has no effect.
    """
    if os.name != "posix":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, -1)
