"""Commands in processes of their own that can be killed, starved of disk space, and given a mad clock.

They are forked from this process, which has imported everything already: a start costs milliseconds, not seconds, so
that a random moment of a run is one of its work.
"""

import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from deeplda.cli import main


@dataclass
class Command:
    """A command that was started. What it says comes by a pipe, which a full disk does not stop."""

    pid: int
    pipe: int
    said: str = ""
    code: int | None = None

    def wait(self):
        """The exit code, negative for a signal."""
        self.listen()
        if self.code is None:
            _, status = os.waitpid(self.pid, 0)
            self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def listen(self):
        """All it said, once it has ended."""
        if self.pipe is not None:
            with os.fdopen(self.pipe) as stream:
                self.said = stream.read()
            self.pipe = None
        return self.said

    def running(self):
        time.sleep(0.005)
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is None

    def kill(self):
        if self.running():
            os.kill(self.pid, signal.SIGKILL)
        return self.wait() == -signal.SIGKILL

    def sentence(self):
        """The last line it said; it must not be that of a traceback."""
        text = self.listen()
        assert "Traceback" not in text, text
        return text.strip().splitlines()[-1] if text.strip() else ""


@pytest.fixture(scope="session", autouse=True)
def everything_imported(tmp_path_factory):
    """Before the first fork, so that no child has to."""
    home = tmp_path_factory.mktemp("warm")
    tiny = ("--epochs", "1", "--width", "0.1", "--batch-size", "700", "--quiet")
    with warnings.catch_warnings(action="ignore"), redirect_stdout(io.StringIO()):
        main(["train", "--run", str(home / "run"), "--subclasses", "2", "--autoencoder-epochs", "1", *tiny])
        main(["sweep", "--sweep", str(home / "sweep"), "--objectives", "cce", "--seeds", "0", *tiny])


@pytest.fixture
def start():
    """Starts `deeplda` with these arguments in the folder `cwd`; `first` runs in its process before anything else."""
    started = []

    def begin(cwd, *arguments, first=None):
        ours, its = os.pipe()
        pid = os.fork()
        if not pid:
            _run(cwd, [str(argument) for argument in arguments], its, first)
        os.close(its)
        started.append(Command(pid, ours))
        return started[-1]

    yield begin
    for command in started:
        command.kill()


def _run(cwd, arguments, pipe, first):
    """In the child: run the command and leave, whatever happens."""
    code = 99
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        warnings.resetwarnings()
        os.chdir(cwd)
        os.dup2(pipe, 1)
        os.dup2(pipe, 2)
        os.close(pipe)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        if first is not None:
            first()
        main(arguments)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 98
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@pytest.fixture
def done(start):
    """Runs a command to its end and checks that it ends well."""

    def run(cwd, *arguments, first=None):
        command = start(cwd, *arguments, first=first)
        assert command.wait() == 0, command.said
        return command

    return run


@dataclass
class Disk:
    """A folder on a small disk of its own where this process may mount one; else files may not grow there."""

    folder: Path
    mounted: bool

    @property
    def _ballast(self):
        return self.folder / ".ballast"

    def leave(self, pages):
        """Leave so many pages of 4 KiB free. Returns what a command has to run first."""
        if not self.mounted:
            return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096 * pages, 4096 * pages))
        found = os.statvfs(self.folder)
        with self._ballast.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, found.f_bavail * found.f_frsize - 4096 * pages)
        return None

    def make_space(self):
        self._ballast.unlink(missing_ok=True)

    def read_only(self, yes=True):
        if self.mounted:
            subprocess.run(["mount", "-o", f"remount,{'ro' if yes else 'rw'}", self.folder], check=True)
            return
        assert os.geteuid() != 0 or not yes, "root writes everywhere without the right to mount: run it as another user"
        for path in (self.folder, *(path for path in self.folder.rglob("*") if path.is_dir())):
            path.chmod(0o555 if yes else 0o755)


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "none", folder]
    # Root may lack the right, as in most containers.
    mounted = os.geteuid() == 0 and subprocess.run(mount, check=False, capture_output=True).returncode == 0
    found = Disk(folder, mounted)
    yield found
    found.read_only(False)
    if mounted:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture(scope="session")
def weights():
    """The bytes of every model below a folder, by path."""

    def read(folder):
        return {
            str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("weights.safetensors"))
        }

    return read


@pytest.fixture(scope="session")
def epochs():
    """The epochs that a run's metrics tell of, in their order, and None for the summary."""

    def read(run):
        return [json.loads(line).get("epoch") for line in (run / "metrics.jsonl").read_text().splitlines()]

    return read
