"""Jobs of two processes that are asked to stop, or that lose the process that started them."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from command import in_a_process

from deeplda.cli import launcher

# A network whose training steps can be made slow, so that signals arrive during the first epoch.
SLOW = """
import os, time
from pathlib import Path
from torch import nn

class Slow(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(features, outputs))

    def forward(self, x):
        if self.training:
            Path("begun").touch()
            time.sleep(float(os.environ.get("STEP_SECONDS", "0")))
        return self.layers(x)

def make(shape, embedding_dim):
    return Slow(shape[0] * shape[1] * shape[2], embedding_dim)
"""
# 15 epochs of 10 steps, which would take at least a minute.
COMMAND = ("train", "--network", "slow:make", "--epochs", "15", "--batch-size", "125", "--run", "run")
STEP_SECONDS = 0.4

pytestmark = pytest.mark.usefixtures("default_hangup")


@pytest.fixture
def start(tmp_path):
    """Start a job of two processes; processes still running after the test, or after two minutes, are killed."""
    (tmp_path / "slow.py").write_text(SLOW)
    started = []

    def kill(job):
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)

    def begin(step_seconds=STEP_SECONDS):
        command = [sys.executable, "-m", "deeplda", *COMMAND, "--processes", "2"]
        environment = {**os.environ, "STEP_SECONDS": str(step_seconds)}
        job = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        timer = threading.Timer(120, kill, [job])
        timer.start()
        started.append((job, timer))
        return job

    yield begin
    for job, timer in started:
        timer.cancel()
        kill(job)
        job.stderr.close()
        job.wait()


def wait_until(job, condition):
    while not condition():
        assert job.poll() is None, job.communicate()
        time.sleep(0.02)


def has_two_ranks(job):
    """Whether both processes of the job have been started; they need a second or more before they train."""
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
            found += parent == job.pid and "\0RANK=" in (process / "environ").read_text()
        except OSError:
            continue
    return found == 2


def ended(job):
    """What the job printed. It is complete only once every process has ended, and with it its end of the pipe."""
    _, errors = job.communicate(timeout=60)
    assert "Traceback" not in errors
    return errors


def assert_saved(run):
    """The state was saved in the first epoch, which the processes do only when they are asked to stop."""
    counters = json.loads((run / "checkpoints" / "last" / "checkpoint.json").read_text())["counters"]
    assert counters["epoch"] == 0
    assert counters["step"] >= 1


@pytest.mark.parametrize(
    ("number", "send"),
    [(signal.SIGINT, os.kill), (signal.SIGINT, os.killpg), (signal.SIGHUP, os.kill)],
    ids=["SIGINT to one", "SIGINT to all", "SIGHUP to one"],
)
def test_a_signal_stops_the_job_once_it_is_saved(start, tmp_path, number, send):
    """A terminal sends its signals to all processes; other programs send theirs to the one that they know."""
    job = start()
    wait_until(job, (tmp_path / "begun").exists)
    send(job.pid, number)
    errors = ended(job)
    assert job.returncode == 130
    assert "to resume: deeplda train --resume --run run" in errors.splitlines()[-1]
    assert errors.count("to resume") == 1
    assert_saved(tmp_path / "run")


def test_the_processes_of_a_killed_launcher_save_and_the_run_can_be_resumed(start, tmp_path):
    job = start()
    wait_until(job, (tmp_path / "begun").exists)
    job.kill()
    assert "to resume: deeplda train --resume --run run" in ended(job)
    assert_saved(tmp_path / "run")
    in_a_process(*COMMAND, "--resume", cwd=tmp_path, check=0)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row.get("epoch") for row in rows] == [*range(1, 16), None]


def test_the_processes_of_a_launcher_killed_at_the_start_end_before_they_train(start, tmp_path):
    """They would otherwise try to reach their launcher for half an hour."""
    job = start()
    wait_until(job, lambda: has_two_ranks(job))
    job.kill()
    ended(job)
    assert not (tmp_path / "begun").exists()


def test_ctrl_c_at_the_start_ends_the_job_with_one_sentence(start):
    job = start()
    wait_until(job, lambda: has_two_ranks(job))
    job.send_signal(signal.SIGINT)
    (line,) = ended(job).splitlines()
    assert line.startswith("deeplda: stopped")
    assert job.returncode == 130


def test_a_second_ctrl_c_stops_the_job_immediately(start, tmp_path):
    job = start(step_seconds=300)
    wait_until(job, (tmp_path / "begun").exists)
    job.send_signal(signal.SIGINT)
    while "press Ctrl-C again" not in (line := job.stderr.readline()):
        assert line
    job.send_signal(signal.SIGINT)
    assert ended(job) == "deeplda: stopped\n"
    assert job.returncode == 130
    assert not (tmp_path / "run" / "checkpoints" / "last").exists()


def test_a_process_that_is_still_saving_is_not_killed(monkeypatch):
    """The processes stop together, but only the first one saves, which may take longer than the grace period."""
    monkeypatch.setattr(launcher, "_GRACE_SECONDS", 0.0)
    saving = subprocess.Popen([sys.executable, "-c", "import sys, time; time.sleep(0.5); sys.exit(130)"])
    stopped = subprocess.Popen([sys.executable, "-c", "import sys; sys.exit(130)"])
    assert launcher._wait([saving, stopped], lambda: False) == 130
    assert saving.returncode == 130
