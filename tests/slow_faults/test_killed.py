"""Killed at 50 random moments, and each time gone on with: the same weights as if nothing had happened."""

import random
import time

import numpy as np
import pytest
from PIL import Image

from deeplda.experiments.sweep_folder import open_sweep

COMMON = ("--batch-size", "150", "--checkpoint-seconds", "0.02", "--flip", "--translate", "1", "--quiet")
TRAIN = ("train", "--run", "run", "--epochs", "6", "--width", "0.5", *COMMON)
SUBCLASSES = (
    "train", "--run", "run", "--epochs", "3", "--width", "0.25", "--subclasses", "2", "--autoencoder-epochs", "3",
    "--cluster-starts", "2", *COMMON,
)  # fmt: skip
SWEEP = (
    "sweep", "--sweep", "sweep", "--objectives", "rdlda,cce", "--alphas", "0,1", "--seeds", "0,1", "--epochs", "2",
    "--width", "0.25", *COMMON,
)  # fmt: skip
TRIALS = {f"{name}-seed{seed}" for name in ("rdlda-alpha0", "rdlda-alpha1", "cce") for seed in (0, 1)}


@pytest.fixture
def kill_and_resume(start, tmp_path):
    """Kills a command at random moments, resuming it each time, until it has been killed so often; returns the folders
    in which it then came to its end. A run that ends before its turn comes is followed by another."""

    def kill(command, resume, kills, seconds, seed):
        rng, folders, killed = random.Random(seed), [], 0
        while killed < kills:
            folder = tmp_path / f"killed-{len(folders)}"
            folder.mkdir()
            folders.append(folder)
            for attempt in range(kills + 1):
                process = start(folder, *command, *(resume if attempt else ()))
                if killed < kills:
                    time.sleep(rng.uniform(0, seconds))
                    if process.kill():
                        killed += 1
                        continue
                assert process.wait() == 0, process.said
                break
        print(f"{killed} kills over {len(folders)} folders")
        return folders

    return kill


def timed(done, folder, command):
    folder.mkdir()
    before = time.monotonic()
    done(folder, *command)
    return time.monotonic() - before


@pytest.mark.parametrize(
    ("command", "kills", "epochs_of"),
    [(TRAIN, 20, {"run": 6}), (SUBCLASSES, 15, {"run": 3, "run/autoencoder": 3})],
    ids=["train", "subclasses"],
)
def test_a_run(done, kill_and_resume, weights, epochs, tmp_path, command, kills, epochs_of):
    seconds = timed(done, tmp_path / "whole", command)
    for folder in kill_and_resume(command, ["--resume"], kills, seconds, seed=1):
        assert weights(folder) == weights(tmp_path / "whole")
        for run, count in epochs_of.items():
            assert epochs(folder / run) == [*range(1, count + 1), None]
        assert not [path for path in folder.rglob("*") if path.name.endswith((".tmp", ".old"))]


def test_packing(start, done, tmp_path):
    """Killed at random moments and started again, a pack has the bytes of one that was written at once."""
    photos, rng = tmp_path / "photos", np.random.default_rng(0)
    for number in range(3000):
        file = photos / ("cat", "dog")[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(file)
    command = ("data", "pack", str(photos), "x.pack", "--image-size", "96", "--quiet")
    seconds, chance, kills = timed(done, tmp_path / "whole", command), random.Random(3), 0
    (tmp_path / "killed").mkdir()
    for attempt in range(11):
        process = start(tmp_path / "killed", *command)
        if attempt < 10:
            time.sleep(chance.uniform(0, seconds))
            kills += process.kill()
    assert process.wait() == 0, process.said
    assert kills >= 3
    for name in ("images.bin", "pack-index.txt"):
        assert (tmp_path / "killed/x.pack" / name).read_bytes() == (tmp_path / "whole/x.pack" / name).read_bytes()


def test_a_sweep(done, kill_and_resume, weights, epochs, tmp_path):
    seconds = timed(done, tmp_path / "whole", SWEEP)
    # With --retry, since the workers of one trial may be killed too often in a row.
    for folder in kill_and_resume(SWEEP, ["--retry"], 15, seconds, seed=2):
        attempts = open_sweep(folder / "sweep").queue.attempts()
        assert sorted(attempt.name for attempt in attempts if attempt.status == "done") == sorted(TRIALS)
        for name in TRIALS:
            assert epochs(folder / "sweep" / "trials" / name) == [1, 2, None]
        assert weights(folder) == weights(tmp_path / "whole")
