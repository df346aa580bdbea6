"""A clock that jumps changes nothing; data that changes is noticed."""

import datetime
import random
import sys
import time

import numpy as np

COMMON = ("--epochs", "3", "--width", "0.25", "--batch-size", "300", "--checkpoint-seconds", "0.02", "--quiet")
SWEEP = ("sweep", "--sweep", "sweep", "--objectives", "rdlda", "--alphas", "0,1", "--seeds", "0", *COMMON)
YEARS = 50 * 365 * 24 * 3600


def mad_clock():
    """From now on the time of day is another at every look, years before or after."""
    real, rng = time.time, random.Random(0)

    class Mad(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.datetime.fromtimestamp(time.time(), tz)

    time.time = lambda: real() + rng.uniform(-YEARS, YEARS)
    time.time_ns = lambda: int(1e9 * time.time())
    for name, module in sys.modules.items():
        if name.startswith(("deeplda", "optuna")) and vars(module).get("datetime") is datetime.datetime:
            module.datetime = Mad


def test_a_clock_that_jumps(done, start, weights, epochs, tmp_path):
    for name in ("whole", "mad"):
        (tmp_path / name).mkdir()
    for command in (("train", "--run", "run", *COMMON), SWEEP):
        done(tmp_path / "whole", *command)
    killed = start(tmp_path / "mad", "train", "--run", "run", *COMMON, first=mad_clock)
    while not (tmp_path / "mad" / "run" / "checkpoints" / "last").exists():
        assert killed.running()
    killed.kill()
    done(tmp_path / "mad", "train", "--run", "run", "--resume", *COMMON, first=mad_clock)
    done(tmp_path / "mad", *SWEEP, first=mad_clock)
    assert weights(tmp_path / "mad") == weights(tmp_path / "whole")
    assert epochs(tmp_path / "mad" / "run") == [1, 2, 3, None]


def write_rows(file, seed):
    labels = np.arange(400) % 4
    rows = np.random.default_rng(seed).normal(size=(400, 5)) + labels[:, None]
    np.savez(file, x_train=rows.astype(np.float32), y_train=labels)


def test_data_that_changes_under_a_run(done, start, weights, tmp_path):
    file = tmp_path / "rows.npz"
    write_rows(file, 0)
    command = ("train", file, "--epochs", "40", "--batch-size", "50", "--checkpoint-seconds", "0.02", "--quiet")
    done(tmp_path, *command, "--run", "whole")
    killed = start(tmp_path, *command, "--run", "run")
    while not (tmp_path / "run" / "checkpoints" / "last").exists():
        assert killed.running()
    assert killed.kill()
    write_rows(file, 1)
    refused = start(tmp_path, *command, "--run", "run", "--resume")
    assert refused.wait() == 2
    assert "has changed since" in refused.sentence()
    write_rows(file, 0)
    done(tmp_path, *command, "--run", "run", "--resume")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
