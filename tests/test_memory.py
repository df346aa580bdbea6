"""Data that does not fit in memory is rejected, and freed blocks are reused."""

import subprocess
import sys

import pytest

from deeplda import memory
from deeplda.errors import InputError


def test_this_machine_has_memory() -> None:
    available = memory.available_memory()
    assert available is None or available > 2**20


def test_twice_the_samples_must_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 2 * 2**30)
    memory.require_memory(2**30, "s")
    with pytest.raises(InputError, match=r"s does not fit.* 2\.2 GiB.* 2\.0 GiB .*--image-size"):
        memory.require_memory(int(1.1 * 2**30), "s")


def test_unknown_memory_rejects_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    memory.require_memory(2**80, "s")


PAGES_OF_NEW_BLOCKS = """
import resource, sys
if sys.argv[1] == "kept":
    from deeplda.memory import keep_freed_memory
    keep_freed_memory()
for _ in range(11):
    bytearray(64 * 2**20)
    first = first if _ else resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - first)
"""


def new_pages(kind: str) -> int:
    command = [sys.executable, "-c", PAGES_OF_NEW_BLOCKS, kind]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_freed_memory_is_kept() -> None:
    assert new_pages("kept") < 100
    # Otherwise the test would be vacuous: ten blocks of 64 MB have 16,384 pages each, or 32 if pages have 2 MB.
    assert new_pages("given back") > 300
