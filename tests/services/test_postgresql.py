"""Sweeps in PostgreSQL: the tests of the default storage again, and tests with several machines."""

import importlib.util
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from subprocess import PIPE
from urllib.parse import unquote

import pytest

from deeplda.errors import InputError
from deeplda.experiments.sweep_definition import SweepDefinition
from deeplda.experiments.sweep_folder import open_sweep
from deeplda.experiments.sweep_worker import work

TINY = {"epochs": 1, "width": 0.1, "batch_size": 400, "learning_rate": 0.1}


def contents_of(name):
    """The contents of a file in tests/experiments, except its storage: here it is the database of conftest.py."""
    file = Path(__file__).parents[1] / "experiments" / f"{name}.py"
    specification = importlib.util.spec_from_file_location(f"{name}_on_postgresql", file)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return {key: value for key, value in vars(module).items() if not key.startswith("_") and key != "storage_url"}


globals().update(contents_of("test_trial_queue"))
globals().update(contents_of("test_sweep_survival"))


def test_machines_that_start_at_the_same_moment_share_the_trials(tmp_path, storage_url):
    """Each has its own folder and finds an empty database; every trial is run by exactly one of them."""
    definition = SweepDefinition(settings=TINY, grid={"alpha": [0.0, 0.5, 1.0], "seed": [0, 1]})
    sweeps, errors, ready = [], [], threading.Barrier(4)

    def machine(number):
        ready.wait()
        try:
            sweep = open_sweep(tmp_path / str(number) / "shared", definition, storage_url)
            sweeps.append(sweep)
            work(sweep, lambda: False)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=machine, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(sweeps) == 4
    done = [attempt.name for attempt in sweeps[0].queue.attempts() if attempt.status == "done"]
    assert sorted(done) == sorted(definition.trials())
    assert sorted(run.name for run in tmp_path.glob("*/shared/trials/*")) == sorted(done)


# Any of these in a file, a message or an argument is a part of the password.
PARTS = ("not-to-be", "written", "files", "{0}")


def assert_secret(text):
    assert not [part for part in PARTS if part in text]


@pytest.fixture
def deeplda(tmp_path):
    """Start `deeplda sweep` in a process of its own, with these variables in its environment."""
    started = []

    def begin(*arguments, **variables):
        command = [sys.executable, "-m", "deeplda", "sweep", "--objectives", "rdlda", "--sweep", "s", *arguments]
        process = subprocess.Popen(
            command, cwd=tmp_path, env=os.environ | variables, stdout=PIPE, stderr=PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


SHORT = ("--alphas", "0", "--seeds", "0", "--epochs", "1", "--width", "0.1", "--batch-size", "400")


def test_the_password_is_not_written_to_files(tmp_path, storage_url):
    definition = SweepDefinition(settings=TINY, grid={"alpha": [0.0], "seed": [0]})
    sweep = open_sweep(tmp_path / "s", definition, storage_url)
    work(sweep, lambda: False)
    for file in sweep.folder.rglob("*"):
        assert not file.is_file() or b"not-to-be" not in file.read_bytes(), file
    assert "127.0.0.1" in (sweep.folder / "sweep.toml").read_text()
    with pytest.raises(InputError, match="as --storage"):
        open_sweep(sweep.folder)


def test_the_password_is_not_in_the_arguments_of_any_process(tmp_path, storage_url, deeplda):
    """The command and its workers get it from the environment."""
    command = deeplda("--workers", "2", "--epochs", "100", "--seeds", "0,1", DEEPLDA_STORAGE=storage_url)
    deadline = time.monotonic() + 300
    while len(list((tmp_path / "s" / "workers").glob("*.lock"))) < 2:
        assert command.poll() is None, command.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    children = {int(name) for name in Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text().split()}
    assert len(children) >= 2
    for pid in (command.pid, *children):
        assert_secret(Path(f"/proc/{pid}/cmdline").read_bytes().decode())
    command.terminate()
    output, errors = command.communicate(timeout=300)
    assert command.returncode == 130, errors
    assert_secret(output + errors)
    for file in (tmp_path / "s").rglob("*"):
        assert not file.is_file() or b"not-to-be" not in file.read_bytes(), file


@pytest.mark.parametrize("way", ["variable", "file", "PGPASSWORD", "pgpass"])
def test_ways_to_pass_the_password(tmp_path, storage_url, deeplda, way):
    account, _, rest = storage_url.partition("://")[2].rpartition("@")
    without = f"postgresql+psycopg://{account.partition(':')[0]}@{rest}"
    password = unquote(account.partition(":")[2])
    (tmp_path / "url").write_text(f"{storage_url}\n")
    (tmp_path / "pgpass").write_text(f"*:*:*:*:{password}\n")
    (tmp_path / "pgpass").chmod(0o600)
    arguments, variables = {
        "variable": ((), {"DEEPLDA_STORAGE": storage_url}),
        "file": (("--storage", "url"), {}),
        "PGPASSWORD": (("--storage", without), {"PGPASSWORD": password}),
        "pgpass": (("--storage", without), {"PGPASSFILE": str(tmp_path / "pgpass")}),
    }[way]
    output, errors = deeplda(*SHORT, *arguments, **variables).communicate(timeout=300)
    assert "1 of 1 done" in output, errors
    assert_secret(output + errors)


def test_a_wrong_password_is_not_shown(storage_url, deeplda):
    wrong = storage_url.replace("%25@", "-really@")
    assert wrong != storage_url
    command = deeplda(*SHORT, DEEPLDA_STORAGE=wrong)
    output, errors = command.communicate(timeout=300)
    assert (command.returncode, output) == (2, "")
    (line,) = errors.splitlines()
    assert "cannot be used as storage" in line
    assert_secret(line)
    assert "really" not in line


def test_a_name_that_is_taken_by_other_settings_is_rejected(tmp_path, storage_url):
    grid = {"alpha": [0.0], "seed": [0]}
    open_sweep(tmp_path / "a" / "s", SweepDefinition(settings=TINY, grid=grid), storage_url)
    with pytest.raises(InputError, match="sweep named s that differs in epochs"):
        open_sweep(tmp_path / "b" / "s", SweepDefinition(settings=TINY | {"epochs": 2}, grid=grid), storage_url)
    assert not (tmp_path / "b" / "s" / "sweep.toml").exists()
