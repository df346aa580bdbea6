"""Write files and folders atomically, and never outside the folder that the user named.

Run, model and sweep folders may come from other people, and archives can contain symbolic links. So everything below
such a folder is written relative to a descriptor of the folder, without following links and without opening files that
somebody else prepared. The same module takes the locks.

Some network file systems have no locks or cannot flush a folder to disk; this is reported by a warning. On Windows,
which has no descriptors for folders, paths are used instead, nothing is locked, and links are checked just before use.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import secrets
import shutil
import stat
import time
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from io import BufferedRandom, BufferedWriter, FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from deeplda.errors import InputError

_HAS_DESCRIPTORS = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# Without O_NONBLOCK, which Windows lacks, opening a pipe that somebody planted would block forever.
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
# On Linux, the third and the fourth are the same.
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF, errno.EINVAL)
# A file that is not a lock of ours, or that we may not lock.
_NO_LOCK = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENAMETOOLONG}
    | {errno.EACCES, errno.EPERM, errno.EROFS}
)
# Our temporary names: "tmp" until a new file or folder is in place, "old" for a replaced folder until it is removed.
_TEMPORARY = re.compile(r"\.deeplda-[0-9a-f]{16}\.(tmp|old)")
_BLOCK = 4096
# Seconds between two attempts to take a lock, and for which they are repeated: a status check holds it for a moment.
_LOCK_PAUSE, _LOCK_SECONDS = 0.02, 0.05
# Time for which a process waits for a lock without a message.
_SILENT_SECONDS = 2.0
# A process holds the lock of its temporary file or folder, but it takes a moment from creating it to locking it, and
# from closing it to renaming it. So only older ones are removed.
_ABANDONED_SECONDS = 3600.0
# Time for which a reader waits while another process replaces the folder that it reads, and a writer for readers.
# Anybody who may read a folder can lock it, so nobody waits forever.
_READER_SECONDS, _WRITER_SECONDS = 5.0, 30.0


class InUseError(InputError):
    """Another process holds the lock."""


class OutputFolder:
    """An open folder in which files are written. Use it as a context manager, or call `close`.

    Names are single path components. Every method raises InputError if the name is a symbolic link or anything else
    that we would not have written, and OSError if the system cannot write.

    Attributes:
        path: the path by which the folder was opened, for messages.
    """

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self.path, self._descriptor = path, descriptor

    @classmethod
    def open(cls, path: Path, *, create: bool = True) -> Self:
        """Open a folder by the path that the user named, which may be a link, and create it if it does not exist.

        Without `create`, a missing folder is an InputError: it was there before, and something must have moved it.
        """
        if create:
            path.mkdir(parents=True, exist_ok=True)
        elif not path.is_dir():
            raise InputError(f"{path} is no longer a folder: if it was moved, run the command again with its new path")
        return cls(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if _HAS_DESCRIPTORS else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = -1  # later calls fail instead of using the path

    def names(self) -> set[str]:
        """Return the names of all entries except temporary ones that a killed process left behind."""
        return {name for name in self._all_names() if not _TEMPORARY.fullmatch(name)}

    def is_still_at(self, path: Path) -> bool:
        """Return whether `path` still leads to this folder, i.e. whether it was neither moved nor replaced."""
        try:
            return self._descriptor is None or os.path.samestat(os.fstat(self._descriptor), path.stat())
        except OSError:
            return False

    def subfolder(self, name: str) -> OutputFolder:
        """Open a subfolder, and create it if it does not exist."""
        where, at = self._at(name)
        with suppress(FileExistsError):
            os.mkdir(where, **at)
        return self._opened(name)

    def write(self, name: str, content: bytes | str) -> None:
        """Write a file atomically: under a temporary name, flushed to disk, then renamed. Strings are stored as UTF-8.

        A file or link with this name is replaced; the target of a link is not touched.
        """
        self._require_replaceable(name)
        with self._written(content) as temporary:
            self._rename(temporary, name)

    def write_new(self, name: str, content: bytes | str) -> str:
        """Write a file atomically under an unused name, and return this name.

        From report.html, these are report.html, report-2.html, report-3.html and so on.
        """
        with self._written(content) as temporary:
            stem, suffix = os.path.splitext(name)
            for chosen in itertools.chain([name], (f"{stem}-{number}{suffix}" for number in itertools.count(2))):
                try:
                    # The empty file, which the next line replaces, keeps others from using the name.
                    self._open_file(chosen, os.O_CREAT | os.O_EXCL).close()
                except FileExistsError:
                    continue
                self._rename(temporary, chosen)
                break
        return chosen

    @contextmanager
    def _written(self, content: bytes | str) -> Iterator[str]:
        """Write a temporary file, flushed to disk, and yield its name for the block to rename it."""
        self._remove_abandoned()
        temporary = _temporary_name("tmp")
        try:
            with self._open_file(temporary, os.O_CREAT | os.O_EXCL) as stream:
                _flock(stream.fileno(), wait=False)
                _write_all(stream, content.encode() if isinstance(content, str) else content)
            yield temporary
        except BaseException:
            self.remove(temporary)
            raise
        self._sync()

    @contextmanager
    def create(self, name: str) -> Iterator[BufferedWriter[FileIO]]:
        """Open a new file to write it piece by piece; it is flushed to disk at the end.

        Raises FileExistsError if there is anything with this name. To replace a file, create it in a `scratch` folder.
        """
        with BufferedWriter(self._open_file(name, os.O_CREAT | os.O_EXCL)) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())

    @contextmanager
    def resumable(self, name: str) -> Iterator[BufferedRandom]:
        """Open a file of ours with what an earlier process has written, or create it, and remove it if it ends empty.

        The stream stays with the file that was opened, whatever appears under its name in the meantime.
        """
        file = self._open_file(name, os.O_CREAT)
        opened, (where, at) = os.fstat(file.fileno()), self._at(name)
        try:
            with BufferedRandom(file) as stream:
                yield stream
        finally:
            with suppress(FileNotFoundError):
                found = os.stat(where, follow_symlinks=False, **at)
                if found.st_size == 0 and os.path.samestat(opened, found):
                    os.unlink(where, **at)

    def take(self, source: OutputFolder, name: str) -> str | None:
        """Move a file from another open folder into this one without overwriting anything.

        Whatever has this name is renamed; returns its new name, or None if there was nothing.
        """
        kept = None
        if name in self._all_names():
            # The name is random, so that nobody can have prepared it: renaming would replace a file.
            kept = f"{name}.replaced-{secrets.token_hex(8)}"
            self._rename(name, kept)
        self._rename(name, name, source)
        self._sync()
        return kept

    def append_lines(self, name: str, lines: bytes) -> None:
        """Append complete lines to a file, which is created if needed, and flush it to disk.

        An incomplete last line, left by a process that was killed, is removed first. If writing fails, for example
        because the disk is full, the file keeps its previous lines. Processes that append to the same file need a lock.
        """
        with self._open_file(name, os.O_CREAT | os.O_APPEND) as stream:
            end = _end_of_last_line(stream)
            stream.truncate(end)
            try:
                _write_all(stream, lines)
            except OSError:
                stream.truncate(end)
                raise

    @contextmanager
    def reading(self, name: str) -> Iterator[FileIO]:
        """Open an existing file to read it while no process holds its lock, for example to append lines.

        Keep the block short, because it makes such processes wait. Without locks, the last line may be incomplete.
        """
        with self._open_file(name, 0, access=os.O_RDONLY) as stream:
            self._wait_for_lock(name, stream, shared=True)
            yield stream

    @contextmanager
    def new_folder(self, name: str, *, ours: Collection[str] | None, keep: str | None = None) -> Iterator[OutputFolder]:
        """Yield an empty folder to fill; it replaces the folder `name` at the end, or is removed after an error.

        Several processes that replace the same folder take turns; readers use `unchanged`.

        Args:
            ours: the names that the previous folder may contain. If it contains others, it is not replaced, and
                InputError is raised. None if there must be no previous folder.
            keep: a name for the previous folder, which is removed otherwise. With it, a complete folder exists under
                one of the two names at every moment.
        """
        self._at(name)
        replaced = (name,) if keep is None else (name, keep)
        self._require_all_ours(replaced, ours)
        with self.scratch() as folder:
            yield folder
            folder._sync()
            with self._exclusive():
                self._require_all_ours(replaced, ours)
                self._exchange(folder.path.name, name, keep)

    @contextmanager
    def scratch(self) -> Iterator[OutputFolder]:
        """Yield an empty temporary folder, which is removed at the end, unless it was renamed."""
        self._remove_abandoned()
        temporary = _temporary_name("tmp")
        where, at = self._at(temporary)
        os.mkdir(where, **at)
        try:
            with self._opened(temporary) as folder:
                if folder._descriptor is not None:
                    _flock(folder._descriptor, wait=False)
                yield folder
        finally:
            self.remove(temporary)

    def _require_all_ours(self, names: Collection[str], ours: Collection[str] | None) -> None:
        for name in names:
            self.require_ours(name, ours)

    def require_ours(self, name: str, ours: Collection[str] | None) -> None:
        """Raise InputError if a folder `name` exists and contains anything but the names in `ours`.

        If `ours` is None, no folder may exist.
        """
        if name not in self._all_names():
            return
        if ours is None:
            raise InputError(f"{self.path / name} already exists: choose another name")
        try:
            with self._opened(name) as folder:
                # We write no folders there, so a folder is not ours even if it has the name of one of our files.
                others = sorted(other for other in folder.names() if other not in ours or folder._is_folder(other))
        except FileNotFoundError:
            # Another process is replacing it at this moment.
            return
        if others:
            what = f"{self.path / name} contains {others[0]!r}, which deeplda did not write"
            raise InputError(f"{what}, so it is not replaced: move it, or choose another folder")

    def remove(self, name: str) -> None:
        """Remove a file, a link or a folder with its contents, if it exists. Links are not followed."""
        where, at = self._at(name)
        try:
            os.unlink(where, **at)
        except FileNotFoundError:
            return
        except OSError:  # which error a folder causes depends on the system
            shutil.rmtree(where, ignore_errors=True, **at)

    def clean(self) -> None:
        """Remove temporary files and folders that killed processes left behind. Call it only under a lock."""
        for name in self._all_names():
            if _TEMPORARY.fullmatch(name):
                self.remove(name)

    @contextmanager
    def locked(self, name: str, *, wait: bool = False) -> Iterator[None]:
        """Hold the lock of the file `name`, which is created, while the block runs.

        The system releases the lock however the process ends. Raises InUseError if another process holds it; with
        `wait`, waits for that process, and prints a message if that takes longer than a moment.
        """
        with self._open_file(name, os.O_CREAT) as stream:
            taken = self._wait_for_lock(name, stream) if wait else _flock_within(stream.fileno(), _LOCK_SECONDS)
            if taken is False:
                raise InUseError(f"{self.path} is in use by another process")
            self._warn_if_unsupported(taken, "writes to it")
            yield

    def _wait_for_lock(self, name: str, stream: FileIO, *, shared: bool = False) -> bool | None:
        taken = _flock_within(stream.fileno(), _SILENT_SECONDS, shared=shared)
        if taken is False:
            _warn_once(f"waiting for another process that keeps {self.path / name} locked")
            taken = _flock(stream.fileno(), wait=True, shared=shared)
        return taken

    def _remove_abandoned(self) -> None:
        """Remove temporary files and folders of processes that were killed. This is safe without a lock."""
        for name in self._all_names():
            if _TEMPORARY.fullmatch(name) and self._is_abandoned(name):
                self.remove(name)

    def _is_abandoned(self, name: str) -> bool:
        where, at = self._at(name)
        try:
            descriptor = os.open(where, os.O_RDONLY | _NO_LINK | _NO_WAIT, **at)
        except OSError:
            return False
        try:
            old = time.time() - os.fstat(descriptor).st_mtime > _ABANDONED_SECONDS
            return old and _flock(descriptor, wait=False) is True
        finally:
            os.close(descriptor)

    def _exchange(self, temporary: str, name: str, keep: str | None) -> None:
        old = _temporary_name("old")
        if name in self._all_names():
            if keep is not None:
                with suppress(FileNotFoundError):
                    self._rename(keep, old)
            self._rename(name, keep or old)
        self._rename(temporary, name)
        self._sync()
        self.remove(old)

    def _opened(self, name: str) -> OutputFolder:
        """Open an existing subfolder. Raises InputError if it is a link or not a folder."""
        path = self.path / name
        try:
            if self._descriptor is None:
                if path.is_symlink() or not path.is_dir():
                    raise NotADirectoryError
                return OutputFolder(path, None)
            return OutputFolder(path, os.open(name, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK, dir_fd=self._descriptor))
        except (NotADirectoryError, OSError) as error:
            if isinstance(error, NotADirectoryError) or error.errno == errno.ELOOP:
                raise InputError(
                    f"{path} is a link or a file, need a folder: remove it, or name the folder itself"
                ) from None
            raise

    def _is_folder(self, name: str) -> bool:
        where, at = self._at(name)
        return stat.S_ISDIR(os.stat(where, follow_symlinks=False, **at).st_mode)

    def _require_replaceable(self, name: str) -> None:
        """Raise InputError if `name` is neither missing nor a file or link: renaming would destroy a device or pipe."""
        where, at = self._at(name)
        try:
            mode = os.stat(where, follow_symlinks=False, **at).st_mode
        except FileNotFoundError:
            return
        if stat.S_ISDIR(mode):
            raise InputError(f"{self.path / name} is a folder, need a file: remove or rename it")
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            raise _not_a_file(self.path / name)

    def _open_file(self, name: str, flags: int, access: int = os.O_RDWR) -> FileIO:
        """Open a regular file of ours. Raises InputError if it is anything else."""
        path, (where, at) = self.path / name, self._at(name)
        try:
            if self._descriptor is None and path.is_symlink():
                raise OSError(errno.EEXIST if flags & os.O_EXCL else errno.ELOOP, "")
            descriptor = os.open(where, flags | access | _NO_LINK | _NO_WAIT, 0o666, **at)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise _not_a_file(path) from None
            raise
        status = os.fstat(descriptor)
        # A second name for the same file may be outside this folder.
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            os.close(descriptor)
            raise _not_a_file(path)
        return FileIO(descriptor, "r" if access == os.O_RDONLY else "r+")

    def _at(self, name: str) -> tuple[str | Path, dict[str, Any]]:
        """Return the name and the keyword with which functions of `os` find an entry of this folder."""
        if name in ("", ".", "..") or "/" in name:
            raise InputError(f"{self.path / name} is not the name of a file or folder: choose another one")
        return (self.path / name, {}) if self._descriptor is None else (name, {"dir_fd": self._descriptor})

    def _all_names(self) -> list[str]:
        return os.listdir(self.path if self._descriptor is None else self._descriptor)

    def _rename(self, source: str, target: str, source_folder: OutputFolder | None = None) -> None:
        folder = source_folder or self
        (before, at), (after, _) = folder._at(source), self._at(target)
        if at:
            os.rename(before, after, src_dir_fd=folder._descriptor, dst_dir_fd=self._descriptor)
        else:
            os.replace(before, after)

    def _sync(self) -> None:
        """Flush the folder's entries to disk."""
        if self._descriptor is None:
            return
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            # Not the name of a temporary folder, so that the same message is printed once.
            named = self.path.parent if _TEMPORARY.fullmatch(self.path.name) else self.path
            what = f"the file system of {named} cannot flush folders to disk"
            _warn_once(f"{what}: after a power failure, the newest files may be missing")

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Keep other processes from replacing folders in this folder, and readers from reading them."""
        if self._descriptor is None:
            yield
            return
        # A second descriptor: closing it releases the lock.
        with OutputFolder(self.path, os.open(".", os.O_RDONLY, dir_fd=self._descriptor)) as lock:
            assert lock._descriptor is not None
            taken = _flock_within(lock._descriptor, _WRITER_SECONDS)
            self._warn_if_unsupported(taken, "replaces folders in it")
            if taken is False:
                _warn_once(f"another process keeps {self.path} locked, so folders in it are replaced without a lock")
            yield

    def _warn_if_unsupported(self, taken: bool | None, danger: str) -> None:
        if taken is None:
            _warn_once(f"{self.path} cannot be locked on this system: make sure that no other process {danger}")


@cache
def _warn_once(message: str) -> None:
    """Warn once in this process; Python alone would repeat it after every change of the warning filters."""
    warnings.warn(message, UserWarning, stacklevel=4)


def write_file(file: Path, content: bytes | str) -> None:
    """Write a file that the user named, atomically as `OutputFolder.write` does. Missing folders are created.

    Raises InputError if the path is a link, such as /dev/stdout, because renaming would replace the link itself.
    """
    if file.is_symlink():
        raise InputError(f"{file} is a link: name the file itself")
    with OutputFolder.open(file.parent) as folder:
        folder.write(file.name, content)


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Keep other processes from replacing `folder`, as `OutputFolder.new_folder` does, while the block reads it.

    This guarantees that all files read in the block belong together. Without locks, or if a process keeps the folder
    locked for several seconds, it has no effect.
    """
    try:
        descriptor = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if _HAS_DESCRIPTORS else None
    except OSError:
        descriptor = None
    if descriptor is None:
        yield
        return
    try:
        _flock_within(descriptor, _READER_SECONDS, shared=True)
        yield
    finally:
        os.close(descriptor)


def is_locked(file: Path) -> bool | None:
    """Return whether a process holds the lock of a file; None if there is no such file, or if this cannot be known."""
    try:
        with FileIO(os.open(file, os.O_RDWR | _NO_LINK | _NO_WAIT), "r+") as stream:
            taken = _flock(stream.fileno(), wait=False)
    except OSError as error:
        if error.errno in _NO_LOCK:
            return None
        raise
    return None if taken is None else not taken


def _flock(descriptor: int, *, wait: bool, shared: bool = False) -> bool | None:
    """Lock an open file or folder until it is closed.

    Returns True if it is locked, False if another process holds the lock, and None if the system has no locks.
    """
    try:
        import fcntl
    except ImportError:
        return None
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        return None
    return True


def _flock_within(descriptor: int, seconds: float, *, shared: bool = False) -> bool | None:
    """Lock as `_flock` does, but wait for other processes for at most this many seconds."""
    deadline = time.monotonic() + seconds
    while (taken := _flock(descriptor, wait=False, shared=shared)) is False and time.monotonic() < deadline:
        time.sleep(_LOCK_PAUSE)
    return taken


def _write_all(stream: FileIO, content: bytes) -> None:
    """Write and flush to disk."""
    rest = memoryview(content)
    while rest:
        rest = rest[stream.write(rest) :]
    os.fsync(stream.fileno())


def _end_of_last_line(stream: FileIO) -> int:
    """Return the position after the last complete line."""
    end = stream.seek(0, os.SEEK_END)
    while end:
        start = stream.seek(max(0, end - _BLOCK))
        last = stream.read(end - start).rfind(b"\n")
        if last >= 0:
            return start + last + 1
        end = start
    return 0


def _temporary_name(state: Literal["tmp", "old"]) -> str:
    return f".deeplda-{secrets.token_hex(8)}.{state}"


def _not_a_file(path: Path) -> InputError:
    return InputError(f"{path} is not an ordinary file, or it has a hard link elsewhere: remove it")
