"""Training in several processes: the same mathematics as in one, and a job that survives the loss of a process."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import rank_jobs
import torch
from command import deeplda, in_a_process
from ranks import RankPool, values
from safetensors.torch import load_file

from deeplda.training.config import RunConfig
from deeplda.training.pipeline import run_to_end
from deeplda.training.progress import Progress

# A network that treats samples one by one, so that the parts of a batch do not matter.
PLAIN = """
import os, time
from torch import nn

class Plain(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(features, 32), nn.Tanh(), nn.Linear(32, outputs))

    def forward(self, x):
        if self.training:
            time.sleep(float(os.environ.get("STEP_SECONDS", "0")))
        return self.layers(x)

def make(shape, embedding_dim):
    return Plain(shape[0] * shape[1] * shape[2], embedding_dim)
"""
SETTINGS = ("--network", "plain:make", "--epochs", "3", "--batch-size", "125", "--learning-rate", "0.05", "--quiet")


@pytest.fixture
def place(tmp_path):
    (tmp_path / "plain.py").write_text(PLAIN)
    return tmp_path


def train(place, *arguments):
    """Train in this process."""
    return deeplda("train", *SETTINGS, *arguments, cwd=place, check=0)


def train_as_a_job(place, *arguments, check=0):
    """Train in several processes."""
    return in_a_process("train", *SETTINGS, *arguments, cwd=place, check=check)


def weights(place, run):
    return load_file(place / run / "model" / "weights.safetensors")


@pytest.fixture(scope="module")
def pools(tmp_path_factory):
    """Processes that are ready to train together, by their number."""
    found = {size: RankPool(size, tmp_path_factory.mktemp("ranks")) for size in (2, 3)}
    yield found
    for pool in found.values():
        pool.close()


@pytest.mark.parametrize(
    ("settings", "chunk_size", "processes"),
    [
        ({"objective": "rdlda"}, None, 3),
        ({"objective": "rdlda"}, 20, 2),
        ({"objective": "cce", "label_smoothing": 0.1}, None, 2),
        ({"objective": "gce"}, None, 2),
        ({"objective": "joint", "label_smoothing": 0.1}, 20, 2),
    ],
)
def test_processes_end_in_the_weights_of_one(place, pools, monkeypatch, settings, chunk_size, processes):
    """Batches of 125 samples leave processes with parts of unequal size."""
    monkeypatch.chdir(place)
    own = {"network": "plain:make", "epochs": 3, "batch_size": 125, "learning_rate": 0.05}
    config = RunConfig(**own, **settings, class_weight="balanced")
    run_to_end(config, place / "one", Progress())
    job = config.model_copy(update={"chunk_size": chunk_size}), place / "several"
    values(pools[processes].run(rank_jobs.whole_run, [job] * processes))
    one, several = weights(place, "one"), weights(place, "several")
    assert one.keys() == several.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(several[name], tensor, rtol=1e-3, atol=1e-4, msg=name)
    rows = [json.loads((place / run / "metrics.jsonl").read_text().splitlines()[0]) for run in ("one", "several")]
    assert rows[0]["loss"] == pytest.approx(rows[1]["loss"], rel=1e-4)


def test_processes_start_from_the_weights_of_one(place):
    """Only the first process reads them."""
    train(place, "--run", "earlier")
    options = ("--start-from", "earlier", "--seed", "1")
    assert train(place, *options, "--run", "one").stderr == ""
    assert train_as_a_job(place, *options, "--processes", "2", "--run", "several").stderr == ""
    one, several, earlier = (weights(place, run) for run in ("one", "several", "earlier"))
    # Weights of another seed would be unrelated.
    both = torch.stack([run["network.layers.1.weight"].flatten() for run in (one, earlier)])
    assert torch.corrcoef(both)[0, 1] > 0.7
    for name, tensor in one.items():
        torch.testing.assert_close(several[name], tensor, rtol=1e-3, atol=1e-4, msg=name)


def test_resume_with_another_number_of_processes(place):
    environment = {**os.environ, "STEP_SECONDS": "0.05"}
    command = [sys.executable, "-m", "deeplda", "train", *SETTINGS, "--run", "run", "--processes", "2"]
    job = subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(place / "run" / "checkpoints" / "last", job)
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=120)
    assert job.returncode == 130
    train(place, "--run", "run", "--resume")
    train(place, "--run", "one")
    for name, tensor in weights(place, "one").items():
        torch.testing.assert_close(weights(place, "run")[name], tensor, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("named", [("--run", "runs/digits-lda-2"), ()], ids=["named", "default"])
def test_a_killed_rank_under_torchrun_and_the_job_finishes_its_own_run_by_itself(place, named):
    train(place, "--seed", "7")
    other = (place / "runs" / "digits-lda" / "metrics.jsonl").read_bytes()
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "2"]
    command = [sys.executable, *launcher, "-m", "deeplda", "--", "train", *SETTINGS, *named]
    environment = {**os.environ, "STEP_SECONDS": "0.1", "OMP_NUM_THREADS": "1"}
    run = place / "runs" / "digits-lda-2"
    job = subprocess.Popen(
        command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    wait_for(run / "checkpoints" / "last", job)
    os.kill(worker(job.pid, rank=1), signal.SIGKILL)
    said, _ = job.communicate(timeout=200)
    assert job.returncode == 0, said
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row.get("epoch") for row in rows] == [1, 2, 3, None]
    assert "seed = 0" in (run / "run.toml").read_text()
    assert (place / "runs" / "digits-lda" / "metrics.jsonl").read_bytes() == other
    assert sorted(path.name for path in (place / "runs").iterdir()) == ["digits-lda", "digits-lda-2"]


def test_a_restarted_job_does_not_take_over_a_run_that_it_was_refused(place):
    train(place, "--seed", "7", "--run", "old")
    before = {path: path.read_bytes() for path in (place / "old").rglob("*") if path.is_file()}
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    command = [sys.executable, *launcher, "-m", "deeplda", "--", "train", *SETTINGS, "--run", "old"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode != 0
    assert done.stderr.count("old already contains a run") == 2
    assert {path: path.read_bytes() for path in (place / "old").rglob("*") if path.is_file()} == before


def test_a_restarted_job_resumes_the_run_that_it_was_told_to_resume(place):
    environment = {**os.environ, "STEP_SECONDS": "0.1", "OMP_NUM_THREADS": "1"}
    run = place / "runs" / "digits-lda"
    job = subprocess.Popen([sys.executable, "-m", "deeplda", "train", *SETTINGS], cwd=place, env=environment)
    wait_for(run / "checkpoints" / "previous", job)
    job.terminate()
    assert job.wait(timeout=120) == 130
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "2"]
    command = [sys.executable, *launcher, "-m", "deeplda", "--", "train", *SETTINGS, "--resume"]
    before = (run / "checkpoints" / "last" / "checkpoint.json").read_bytes()
    job = subprocess.Popen(
        command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    deadline = time.monotonic() + 120
    while (run / "checkpoints" / "last" / "checkpoint.json").read_bytes() == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(worker(job.pid, rank=1), signal.SIGKILL)
    said, _ = job.communicate(timeout=200)
    assert job.returncode == 0, said
    assert [path.name for path in (place / "runs").iterdir()] == ["digits-lda"]
    assert (run / "report.html").exists()


def test_a_mistake_is_one_sentence_from_all_processes(place):
    (place / "run" / "checkpoints").mkdir(parents=True)
    done = train_as_a_job(place, "--run", "run", "--processes", "2", check=2)
    (line,) = done.stderr.splitlines()
    assert line.startswith("deeplda: run contains 'checkpoints' but no run")


def test_a_process_that_is_killed_ends_the_others(place):
    command = [sys.executable, "-m", "deeplda", "train", *SETTINGS, "--run", "run", "--processes", "2"]
    environment = {**os.environ, "STEP_SECONDS": "0.1"}
    job = subprocess.Popen(
        command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(place / "run" / "checkpoints" / "last", job)
    os.kill(worker(job.pid, rank=1), signal.SIGKILL)
    _, said = job.communicate(timeout=120)
    assert job.returncode == 1
    assert "pass --resume" in said
    train(place, "--run", "run", "--resume")


def wait_for(path, job):
    deadline = time.monotonic() + 120
    while not path.exists():
        assert job.poll() is None, job.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def worker(parent, rank):
    """The process of that rank below `parent`."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            its_parent = int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if its_parent == parent and f"\0RANK={rank}\0" in (process / "environ").read_text():
                return int(process.name)
        except OSError:
            continue
    raise AssertionError(f"no process of rank {rank}")


@pytest.mark.parametrize("size", [1, 2])
def test_the_loss_asks_others_only_in_a_job_of_ours(monkeypatch, size):
    """A classifier fitted on one rank of somebody's own job must not wait for the other ranks."""
    from deeplda.data import load_data
    from deeplda.training import trainee
    from deeplda.training.parallel import World

    monkeypatch.setattr(trainee, "DistributedDataParallel", lambda module, **_: module)
    monkeypatch.setattr(World, "total", lambda _, numbers: numbers)
    classifier = trainee.build_trainee(RunConfig(data="digits"), load_data("digits"), world=World(0, size))
    assert classifier.criterion.training == (size > 1)


def test_a_share_of_every_class():
    from deeplda.training.parallel import World

    items = np.repeat(np.arange(5), 6)
    parts = [World(rank, 3).share(items) for rank in range(3)]
    assert all(np.array_equal(np.bincount(part), [2] * 5) for part in parts)
