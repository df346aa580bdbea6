"""Worker processes that are killed, stopped and started again: each trial is still done exactly once."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from deeplda.experiments.sweep_definition import SweepDefinition
from deeplda.experiments.sweep_folder import open_sweep
from deeplda.experiments.sweep_worker import _worker_process, work

EPOCHS = 3
# The digits network with a pause in each step, so that signals arrive during training. No worker proceeds before two
# have started.
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
# torch 2.6 leaves a temporary folder for Python to clean up.
WARNINGS = ("-W", "error", "-W", "ignore:Implicitly cleaning up:ResourceWarning")
COMMAND = (
    "sweep", "--objectives", "rdlda", "--alphas", "0,1", "--seeds", "0,1", "--epochs", str(EPOCHS), "--width", "0.1",
    "--batch-size", "60", "--checkpoint-seconds", "0.15", "--network", "slow:make", "--sweep", "sweep", "--json",
)  # fmt: skip
TRIALS = {f"rdlda-alpha{alpha}-seed{seed}" for alpha in (0, 1) for seed in (0, 1)}


@pytest.fixture
def storage_url():
    """None for the journal in the folder; tests/services overrides it with a database."""
    return


@pytest.fixture
def start(tmp_path, storage_url):
    """Start `deeplda sweep`, each time with the same command; processes still running at the end are killed."""
    (tmp_path / "slow.py").write_text(SLOW)
    started = []

    def begin(*more):
        storage = {} if storage_url is None else {"DEEPLDA_STORAGE": storage_url}
        process = subprocess.Popen(
            [sys.executable, *WARNINGS, "-m", "deeplda", *COMMAND, *more],
            cwd=tmp_path,
            env=os.environ | storage,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
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
    """Epochs and steps of the newest checkpoint; (0, 0) if there is none, or if it is just being replaced."""
    try:
        counters = json.loads((run / "checkpoints" / "last" / "checkpoint.json").read_text())["counters"]
    except OSError:
        return 0, 0
    return counters["epoch"], counters["step"]


def trial_of(sweep, pid):
    """The trial of the worker with this process id, once its first epoch is done and the second has begun."""
    for name, attempt in sweep.current_attempts().items():
        if attempt.status == "running" and attempt.worker and f"-{pid}-" in attempt.worker:
            epoch, step = position(sweep.run_folder(name))
            return name if epoch >= 1 and step >= 1 else None
    return None


def assert_each_done_once(sweep):
    done = [attempt.name for attempt in sweep.queue.attempts() if attempt.status == "done"]
    assert sorted(done) == sorted(TRIALS)
    for name in TRIALS:
        found = rows(sweep.run_folder(name))
        assert [row.get("epoch") for row in found] == [*range(1, EPOCHS + 1), None]


@pytest.mark.filterwarnings("ignore:waiting for another process")
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
    attempts = [attempt for attempt in sweep.queue.attempts() if attempt.name == name]
    assert [(attempt.status, attempt.ended) for attempt in attempts] == [("abandoned", "died"), ("done", None)]
    assert f"-{other.pid}-" in attempts[1].worker
    # It was resumed: the row of the first epoch, with its seconds, is the dead worker's, and was not reported again.
    assert rows(sweep.run_folder(name))[0] == first
    assert sorted(attempts[1].accuracy) == [*range(here[0] + 1, EPOCHS + 1)]
    assert len(sweep.queue.attempts()) == len(TRIALS) + 1
    found = json.loads(output)
    assert set(found["done"]) == TRIALS
    assert (found["failed"], found["left"]) == ({}, 0)
    assert all(f"{trial}: done" in errors for trial in TRIALS)

    work(open_sweep(folder, url=storage_url), lambda: False)
    assert len(sweep.queue.attempts()) == len(TRIALS) + 1


@pytest.mark.usefixtures("default_hangup")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_all_workers_and_another_resumes(tmp_path, start, storage_url, monkeypatch, number):
    command = start("--workers", "2")
    folder = tmp_path / "sweep"
    wait_until(command, lambda: (folder / "sweep.toml").exists())
    sweep = open_sweep(folder, url=storage_url)

    def two_at_work():
        running = [name for name, attempt in sweep.current_attempts().items() if attempt.status == "running"]
        return len(running) == 2 and all(position(sweep.run_folder(name)) > (0, 0) for name in running) and running

    running = wait_until(command, two_at_work)
    # Like a terminal: the whole process group gets the signal.
    os.killpg(command.pid, number)
    _, errors = ended(command, 130)
    assert "to resume, run the same command" in errors.splitlines()[-1]
    standings = sweep.current_attempts()
    assert all(attempt.status != "running" for attempt in standings.values())
    stopped = [attempt.name for attempt in sweep.queue.attempts() if attempt.ended == "stopped"]
    assert set(stopped) <= set(running)
    assert len(stopped) >= 1
    assert not list((folder / "workers").iterdir())
    monkeypatch.syspath_prepend(tmp_path)
    work(open_sweep(folder, url=storage_url), lambda: False)
    assert_each_done_once(sweep)
    assert {attempt.ended for attempt in sweep.queue.attempts()} == {None, "stopped"}


def test_a_worker_without_its_parent_takes_no_trial(tmp_path, storage_url):
    definition = SweepDefinition(settings={"epochs": 1}, grid={"alpha": [0.0], "seed": [0]})
    sweep = open_sweep(tmp_path / "left", definition, storage_url)
    threads = torch.get_num_threads()
    try:
        _worker_process(sweep.folder, storage_url, 1, parent=-1)
    finally:
        torch.set_num_threads(threads)
    assert [attempt.status for attempt in sweep.queue.attempts()] == ["waiting"]
