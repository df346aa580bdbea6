"""Workers as processes: two on one sweep, killed, stopped and started again."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from deeplda.experiments.sweeps.crew import _member
from deeplda.experiments.sweeps.definition import Definition
from deeplda.experiments.sweeps.sweep import open_sweep
from deeplda.experiments.sweeps.worker import work

EPOCHS = 3
# The digits network with a pause in each step, so that a signal finds it at work; nobody goes on before two have begun.
SLOW = """
import os
import time
from pathlib import Path
from torch import nn
from deeplda.networks import build_network

HERE = Path(__file__).parent

class Slow(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        if self.training:
            (HERE / f"begun-{os.getpid()}").touch()
            while len(list(HERE.glob("begun-*"))) < 2:
                time.sleep(0.02)
            time.sleep(0.02)
        return self.network(x)

def make(shape, embedding_dim, width=1.0):
    return Slow(build_network("convnet-small", shape, embedding_dim, width=width))
"""
COMMAND = (
    "sweep", "--objectives", "rdlda", "--alphas", "0,1", "--seeds", "0,1", "--epochs", str(EPOCHS), "--width", "0.1",
    "--batch-size", "60", "--checkpoint-seconds", "0.15", "--network", "slow:make", "--sweep", "sweep", "--json",
)  # fmt: skip
TRIALS = {f"rdlda-alpha{alpha}-seed{seed}" for alpha in (0, 1) for seed in (0, 1)}


@pytest.fixture
def storage_url():
    """The journal in the folder; tests/services has a database here."""
    return


@pytest.fixture
def start(tmp_path, storage_url):
    """Starts `deeplda sweep`, each time with the same command; what still runs at the end is killed."""
    (tmp_path / "slow.py").write_text(SLOW)
    started = []

    def begin(*more):
        storage = () if storage_url is None else ("--storage", storage_url)
        command = [sys.executable, "-W", "error", "-m", "deeplda", *COMMAND, *storage, *more]
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def ended(process, code):
    output, errors = process.communicate(timeout=300)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    return output, errors


def wait_until(process, condition, seconds=300):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def rows(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def position(run):
    """Epochs and steps of the newest checkpoint; none where there is none, or it is just being exchanged."""
    try:
        counters = json.loads((run / "checkpoints" / "last" / "checkpoint.json").read_text())["counters"]
    except OSError:
        return 0, 0
    return counters["epoch"], counters["step"]


def trial_of(sweep, pid):
    """The trial that the worker with this process id runs, once its first epoch is done and the second has begun."""
    for name, attempt in sweep.standings().items():
        if attempt.status == "running" and attempt.worker and f"-{pid}-" in attempt.worker:
            epoch, step = position(sweep.run_folder(name))
            return name if epoch >= 1 and step >= 1 else None
    return None


def assert_each_done_once(sweep):
    done = [attempt.name for attempt in sweep.ledger.attempts() if attempt.status == "done"]
    assert sorted(done) == sorted(TRIALS)
    for name in TRIALS:
        found = rows(sweep.run_folder(name))
        assert [row.get("epoch") for row in found] == [*range(1, EPOCHS + 1), None]


def test_two_workers_and_one_is_killed(tmp_path, start, storage_url):
    killed, other = start(), start()
    folder = tmp_path / "sweep"
    wait_until(killed, lambda: (folder / "sweep.toml").exists())
    sweep = open_sweep(folder, url=storage_url)
    name = wait_until(killed, lambda: trial_of(sweep, killed.pid))
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    first = rows(sweep.run_folder(name))[0]
    here = position(sweep.run_folder(name))

    output, errors = ended(other, 0)
    assert_each_done_once(sweep)
    attempts = [attempt for attempt in sweep.ledger.attempts() if attempt.name == name]
    assert [(attempt.status, attempt.ended) for attempt in attempts] == [("void", "died"), ("done", None)]
    assert f"-{other.pid}-" in attempts[1].worker
    # Taken up where it was: the first epoch's row, with its seconds, is the dead worker's, and was not reported again.
    assert rows(sweep.run_folder(name))[0] == first
    assert sorted(attempts[1].accuracy) == [*range(here[0] + 1, EPOCHS + 1)]
    assert len(sweep.ledger.attempts()) == len(TRIALS) + 1
    found = json.loads(output)
    assert set(found["done"]) == TRIALS
    assert (found["failed"], found["left"]) == ({}, 0)
    assert all(f"{trial}: done" in errors for trial in TRIALS)

    work(open_sweep(folder, url=storage_url), lambda: False)
    assert len(sweep.ledger.attempts()) == len(TRIALS) + 1


def test_ctrl_c_stops_all_workers_and_another_goes_on(tmp_path, start, storage_url, monkeypatch):
    crew = start("--workers", "2")
    folder = tmp_path / "sweep"
    wait_until(crew, lambda: (folder / "sweep.toml").exists())
    sweep = open_sweep(folder, url=storage_url)

    def two_at_work():
        running = [name for name, attempt in sweep.standings().items() if attempt.status == "running"]
        return len(running) == 2 and all(position(sweep.run_folder(name)) > (0, 0) for name in running) and running

    running = wait_until(crew, two_at_work)
    # As a terminal does: everyone in the group gets it.
    os.killpg(crew.pid, signal.SIGINT)
    _, errors = ended(crew, 130)
    assert "to go on: the same command" in errors.splitlines()[-1]
    standings = sweep.standings()
    assert all(attempt.status != "running" for attempt in standings.values())
    stopped = [attempt.name for attempt in sweep.ledger.attempts() if attempt.ended == "stopped"]
    assert set(stopped) <= set(running)
    assert len(stopped) >= 1
    assert not list((folder / "workers").iterdir())
    monkeypatch.syspath_prepend(tmp_path)
    work(open_sweep(folder, url=storage_url), lambda: False)
    assert_each_done_once(sweep)
    assert {attempt.ended for attempt in sweep.ledger.attempts()} == {None, "stopped"}


def test_a_worker_whose_leader_is_gone_takes_nothing(tmp_path, storage_url):
    definition = Definition(settings={"epochs": 1}, grid={"alpha": [0.0], "seed": [0]})
    sweep = open_sweep(tmp_path / "left", definition, storage_url)
    threads = torch.get_num_threads()
    try:
        _member(sweep.folder, storage_url, 1, parent=-1)
    finally:
        torch.set_num_threads(threads)
    assert [attempt.status for attempt in sweep.ledger.attempts()] == ["waiting"]
