"""Blocks that were freed are used again without the system's doing."""

import subprocess
import sys

PAGES_OF_NEW_BLOCKS = """
import resource, sys
if sys.argv[1] == "kept":
    from deeplda.training.kept_memory import keep_freed_memory
    keep_freed_memory()
for _ in range(11):
    bytearray(64 * 2**20)
    first = first if _ else resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - first)
"""


def new_pages(kind):
    command = [sys.executable, "-c", PAGES_OF_NEW_BLOCKS, kind]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_freed_memory_is_kept():
    assert new_pages("kept") < 100
    # Else the test would prove nothing: ten blocks of 64 MB are 16,384 pages each, or 32 where pages are of 2 MB.
    assert new_pages("given back") > 300
