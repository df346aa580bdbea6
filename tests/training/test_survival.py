"""Runs that are killed and resumed end in the same bytes as runs that are not."""

import json
import os
import pty
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

# Small enough to be quick, long enough to be killed in the middle of epochs; a checkpoint after almost every step.
SETTINGS = (
    "--epochs", "6", "--width", "0.5", "--batch-size", "60", "--flip", "--translate", "1",
    "--checkpoint-seconds", "0.02", "--network", "slow:make",
)  # fmt: skip
# Steps in an epoch: 1,257 training samples.
STEPS = 21
# The digits network with dropout and a pause in each step, so that a kill finds it at work.
SLOW = """
import time
from torch import nn
from deeplda.networks import build_network

class Slow(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network, self.dropout = network, nn.Dropout(0.2)

    def forward(self, x):
        if self.training:
            time.sleep(0.02)
        return self.dropout(self.network(x))

def make(shape, embedding_dim, width=1.0):
    return Slow(build_network("convnet-small", shape, embedding_dim, width=width))
"""


def start(cwd, *arguments):
    command = [sys.executable, "-m", "deeplda", "train", "digits", *SETTINGS, "--run", "run", *arguments]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def weights(cwd):
    return (cwd / "run" / "model" / "weights.safetensors").read_bytes()


@pytest.fixture
def places(tmp_path):
    folders = tmp_path / "whole", tmp_path / "killed"
    for folder in folders:
        folder.mkdir()
        (folder / "slow.py").write_text(SLOW)
    return folders


def steps_saved(run):
    """How far the newest checkpoint is, in steps; -1 where there is none, or it is just being exchanged."""
    try:
        counters = json.loads((run / "checkpoints" / "last" / "checkpoint.json").read_text())["counters"]
    except OSError:
        return -1
    return STEPS * counters["epoch"] + counters["step"]


def wait_for_step(process, run, step, seconds=120):
    """Until a checkpoint at or after `step` is there."""
    deadline = time.monotonic() + seconds
    while steps_saved(run) < step:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_killed_at_random_moments(places):
    whole, killed = places
    reference = start(whole)
    rng = random.Random(0)
    for step in sorted(rng.sample(range(1, 5 * STEPS), 4)):
        process = start(killed, "--resume")
        wait_for_step(process, killed / "run", step)
        time.sleep(rng.uniform(0.0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    last = start(killed, "--resume")
    _, errors = last.communicate(timeout=300)
    assert last.returncode == 0, errors
    _, errors = reference.communicate(timeout=300)
    assert reference.returncode == 0, errors
    assert weights(killed) == weights(whole)
    epochs = [json.loads(line)["epoch"] for line in (killed / "run" / "metrics.jsonl").read_text().splitlines()[:-1]]
    assert epochs == [1, 2, 3, 4, 5, 6]


@pytest.mark.usefixtures("default_hangup")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_saves_and_says_how_to_go_on(places, number):
    _, folder = places
    process = start(folder)
    wait_for_step(process, folder / "run", 1)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "to resume: deeplda train --resume --run run" in errors.splitlines()[-1]
    assert "Traceback" not in errors
    assert (folder / "run" / "checkpoints" / "last").exists()


@pytest.mark.usefixtures("default_hangup")
def test_a_closed_terminal_stops_the_run_like_ctrl_c(places):
    """Everything that the run prints from then on fails."""
    _, folder = places
    ours, its = pty.openpty()
    # A session without a terminal gets the first one that it opens, and with it the hangup.
    take_terminal = "import os, sys; os.open(os.ttyname(0), os.O_RDWR); os.execv(sys.argv[1], sys.argv[1:])"
    train = [sys.executable, "-m", "deeplda", "train", *SETTINGS, "--run", "run"]
    command = [sys.executable, "-c", take_terminal, *train]
    process = subprocess.Popen(command, cwd=folder, stdin=its, stdout=its, stderr=its, start_new_session=True)
    os.close(its)
    os.set_blocking(ours, False)
    while steps_saved(folder / "run") < 1:
        with suppress(OSError):
            os.read(ours, 2**16)
        assert process.poll() is None
        time.sleep(0.005)
    os.close(ours)
    assert process.wait(timeout=60) == 130


def test_a_second_process_is_refused(places):
    _, folder = places
    first = start(folder)
    wait_for_step(first, folder / "run", 1)
    # Held where it is, so that it cannot come to its end first.
    first.send_signal(signal.SIGSTOP)
    second = start(folder, "--resume")
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 2
    assert "in use by another process" in errors
    first.kill()
    first.communicate()
