"""What a reader must not do, whatever it reads: start a program, write outside its folder, fill the memory."""

import os
import resource
import sys
from contextlib import contextmanager
from pathlib import Path

# Beyond what the process has when a reading begins; the files are of a few kilobytes.
_MOST_MEMORY = 2**30
_PROGRAMS = {"os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "subprocess.Popen", "pickle.find_class"}
_WRITES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.truncate", "os.chmod"}
_BETWEEN = {"os.rename", "os.symlink", "os.link"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_folder = None
_seen = []


def _hook(event, args):
    if _folder is None:
        return
    if event in _PROGRAMS:
        _seen.append(f"{event} {args}")
    elif event in _WRITES or (event == "open" and (args[2] or 0) & _WRITING):
        paths = args[: 2 if event in _BETWEEN else 1]
        if not all(_inside(os.fsdecode(path)) for path in paths if isinstance(path, str | bytes | os.PathLike)):
            _seen.append(f"{event} {args}")


def _inside(path):
    return path == os.devnull or f"{os.path.realpath(path)}{os.sep}".startswith(f"{_folder}{os.sep}")


sys.addaudithook(_hook)


@contextmanager
def watched(folder):
    """Fails where the block does what a reader of files in `folder` must not do."""
    global _folder
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _MOST_MEMORY, hard))
    _seen.clear()
    _folder = os.path.realpath(folder)
    try:
        yield
    finally:
        _folder = None
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        # Of a file that is refused too.
        assert not _seen, _seen
