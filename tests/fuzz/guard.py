"""What a reader must not do, whatever it reads: start a program, write outside its folder, fill the memory."""

import os
import resource
import sys
from contextlib import contextmanager
from pathlib import Path

# Beyond what the process has when a reading begins; the files are of a few kilobytes.
_MOST_MEMORY = 2**30
_PROGRAMS = {"os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "subprocess.Popen", "pickle.find_class"}
# Which arguments of a call that writes are paths, each with that of the open folder it may be relative to.
_WRITES = {
    "os.mkdir": [(0, 2)],
    "os.rename": [(0, 2), (1, 3)],
    "os.remove": [(0, 1)],
    "os.rmdir": [(0, 1)],
    "os.symlink": [(1, 2)],
    "os.link": [(0, 2), (1, 3)],
    "os.truncate": [(0, None)],
    "os.chmod": [(0, 2)],
    "open": [(0, None)],
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_folder = None
_seen = []


def _hook(event, args):
    if _folder is None:
        return
    follows = event in ("open", "os.truncate", "os.chmod")
    if event in _PROGRAMS or not all(_inside(*place, follows) for place in _written(event, args)):
        _seen.append(f"{event} {args}")


def _written(event, args):
    """The paths that a call writes to, each with the open folder it may be relative to, or -1."""
    if event == "open":
        path, _, flags = args
        # The event does not tell the open folder of a single name, which the writer then has not followed. The campaign
        # looks for new files in the current folder.
        relative = isinstance(path, str) and os.sep not in path and (flags or 0) & os.O_NOFOLLOW
        if relative or not (flags or 0) & _WRITING:
            return []
    return [(args[path], -1 if at is None else args[at]) for path, at in _WRITES.get(event, [])]


def _inside(path, at, follows):
    """Whether a path, perhaps relative to the open folder `at`, is of the folder; so is what is open already.

    If the call does not follow a link at the end of the path, where the link leads to does not matter.

    Python does not tell to which open folder the path of `os.open` is relative, so bare names pass. Each campaign looks
    at the current folder itself in the end.
    """
    if not isinstance(path, str | bytes | os.PathLike) or path == os.devnull:
        return True
    if at < 0 and Path(os.fsdecode(path)).parent == Path():
        return True
    base = Path(f"/proc/self/fd/{at}").readlink() if at >= 0 else Path()
    place = base / os.fsdecode(path)
    real = os.path.realpath(place) if follows else Path(os.path.realpath(place.parent), place.name)
    return f"{real}{os.sep}".startswith(f"{_folder}{os.sep}")


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
