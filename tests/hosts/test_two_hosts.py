"""Training on two hosts: the weights of one process, also if the link fails or a host is restarted in between.

The hosts are network namespaces of this machine with their own addresses, joined by a switch, which is a third one.
They share the file system and nothing else, and no packet leaves them. Needs root and iproute2: `make test-hosts`.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

# A network that treats samples one by one, so that the parts of a batch do not matter, with a pause in each step.
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
EPOCHS, STEPS = 4, 11
TRAIN = (
    "train", "digits", "--network", "plain:make", "--epochs", str(EPOCHS), "--batch-size", "125", "--learning-rate",
    "0.05", "--checkpoint-seconds", "0.2", "--quiet",
)  # fmt: skip
ADDRESSES = {"first": "10.77.0.1", "second": "10.77.0.2"}
ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "STEP_SECONDS": "0.2",
    "GLOO_SOCKET_IFNAME": "cable",
    # A host that joins again needs a store of its own for each start.
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout


class Host:
    """A network namespace with an address, in which torchrun runs."""

    def __init__(self, name: str, switch: str, place: Path) -> None:
        self.name, self.switch, self.place, self.log = name, switch, place, place / f"{name}.log"
        self.space = f"{switch}-{name}"

    def boot(self) -> None:
        """Switch the host on: lay a cable to the switch, and give it an address."""
        ip("netns", "add", self.space)
        ip("-n", self.space, "link", "set", "lo", "up")
        ip("link", "add", "cable", "netns", self.space, "type", "veth", "peer", "name", self.name, "netns", self.switch)
        ip("-n", self.switch, "link", "set", self.name, "master", "bridge", "up")
        ip("-n", self.space, "address", "add", f"{ADDRESSES[self.name]}/24", "dev", "cable")
        self.link("up")

    def link(self, state: str) -> None:
        ip("-n", self.space, "link", "set", "cable", state)

    def start(self) -> subprocess.Popen[bytes]:
        """Start this host's part of the job. The first host keeps the rendezvous."""
        launcher = [
            sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1",
            "--max-restarts", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{ADDRESSES['first']}:29500",
            "--rdzv-id", "hosts", "--rdzv-conf", f"is_host={int(self.name == 'first')}",
            "--local-addr", ADDRESSES[self.name],
        ]  # fmt: skip
        command = [*launcher, "-m", "deeplda", "--", *TRAIN, "--run", "run", "--resume"]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.space, *command],
                cwd=self.place,
                env=ENVIRONMENT,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        """Switch the host off: no packet leaves it any more, so the other one is not told."""
        ip("-n", self.space, "link", "delete", "cable")
        for process in ip("netns", "pids", self.space).split():
            os.kill(int(process), signal.SIGKILL)
        ip("netns", "delete", self.space)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The weights of one process."""
    place = tmp_path_factory.mktemp("one")
    (place / "plain.py").write_text(PLAIN)
    command = [sys.executable, "-m", "deeplda", *TRAIN, "--run", "run"]
    subprocess.run(command, cwd=place, check=True, timeout=300)
    return load_file(place / "run" / "model" / "weights.safetensors")


@pytest.fixture
def hosts(tmp_path):
    """Two connected hosts."""
    assert os.geteuid() == 0, "network namespaces need root"
    (tmp_path / "plain.py").write_text(PLAIN)
    switch = f"deeplda-{os.getpid()}"
    first, second = Host("first", switch, tmp_path), Host("second", switch, tmp_path)
    ip("netns", "add", switch)
    try:
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        first.boot()
        second.boot()
        yield first, second
    finally:
        for host in (first, second):
            if host.space in ip("netns", "list"):
                host.kill()
        ip("netns", "delete", switch)


def steps_saved(place: Path) -> int:
    """Return the steps before the newest checkpoint; -1 if there is none, or if it is just being replaced."""
    try:
        file = place / "run" / "checkpoints" / "last" / "checkpoint.json"
        counters = json.loads(file.read_text())["counters"]
    except OSError:
        return -1
    return int(counters["epoch"] * STEPS + counters["step"])


def wait_for_step(place: Path, step: int, seconds: float = 240) -> None:
    """Wait until a checkpoint at or after `step` is there."""
    deadline = time.monotonic() + seconds
    while steps_saved(place) < step:
        assert time.monotonic() < deadline, logs(place)
        time.sleep(0.05)


def logs(place: Path) -> str:
    return "\n".join(f"{log.name}:\n{log.read_text()}" for log in sorted(place.glob("*.log")))


def finish(jobs: list[subprocess.Popen[bytes]], place: Path, expected: dict[str, torch.Tensor]) -> None:
    """Wait for the job, and compare its weights with those of one process."""
    assert [job.wait(timeout=300) for job in jobs] == [0] * len(jobs), logs(place)
    rows = [json.loads(line) for line in (place / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row.get("epoch") for row in rows] == [*range(1, EPOCHS + 1), None]
    found = load_file(place / "run" / "model" / "weights.safetensors")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-4, msg=name)


def test_the_link_is_cut_and_restored(hosts, tmp_path, expected):
    first, second = hosts
    jobs = [first.start(), second.start()]
    wait_for_step(tmp_path, 5)
    second.link("down")
    time.sleep(1)
    saved = steps_saved(tmp_path)
    time.sleep(5)
    # Nothing goes on without the other host, which would have taken 25 steps.
    assert steps_saved(tmp_path) == saved
    second.link("up")
    finish(jobs, tmp_path, expected)
    assert "restart" not in first.log.read_text()


def test_a_host_is_killed_and_restarted(hosts, tmp_path, expected):
    first, second = hosts
    job, lost = first.start(), second.start()
    wait_for_step(tmp_path, 5)
    second.kill()
    assert lost.wait() == -signal.SIGKILL
    second.boot()
    finish([job, second.start()], tmp_path, expected)
