"""A PostgreSQL server for the tests: Debian's package, with its data in a temporary folder, on a loopback port."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from itertools import count
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

# The password has every character that must be quoted in a URL, and some that libraries treat as special.
USER, PASSWORD = "deeplda", "not-to-be@written?to/files#{0}%"
_databases = count()


def program(name):
    """The path of a program of the server; Debian does not put them into PATH."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    found = shutil.which(name) or next(iter(map(str, places)), None)
    assert found, f"{name} is not installed: apt-get install postgresql"
    return found


def unprivileged():
    """The user that runs the server, which refuses to run as root; None for the current one."""
    return "postgres" if os.geteuid() == 0 else None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def server():
    """The port of a running server."""
    folder, user = Path(tempfile.mkdtemp(prefix="deeplda-postgresql-")), unprivileged()
    if user is not None:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    secret = folder / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    data, port = folder / "data", free_port()
    subprocess.run(
        [program("initdb"), "--pgdata", data, "--username", USER, "--pwfile", secret, "--auth", "scram-sha-256",
         "--encoding", "UTF8", "--locale", "C", "--no-sync"],
        user=user, cwd=folder, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [program("postgres"), "-D", data, "-p", str(port), "-c", "listen_addresses=127.0.0.1",
             "-c", f"unix_socket_directories={folder}", "-c", "fsync=off"],
            user=user, cwd=folder, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        wait_for(process, port, folder / "log")
        yield port
    finally:
        process.send_signal(signal.SIGQUIT)  # immediate shutdown: the data is deleted anyway
        process.wait(300)
        shutil.rmtree(folder)


def connect(port):
    return psycopg.connect(
        host="127.0.0.1", port=port, user=USER, password=PASSWORD, dbname="postgres", autocommit=True
    )


def wait_for(process, port, log):
    deadline = time.monotonic() + 300
    while True:
        try:
            connect(port).close()
            return
        except psycopg.OperationalError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)


@pytest.fixture
def storage_url(server):
    """The URL of a new, empty database."""
    name = f"sweeps{next(_databases)}"
    with connect(server) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"postgresql+psycopg://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{server}/{name}"
