"""A user's own scripts under torchrun, as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def output_of(example, processes, folder):
    """What an example says, run by so many processes."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1"}
    process = subprocess.Popen(
        [*launcher, str(EXAMPLES / example)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        output, errors = process.communicate(timeout=300)
    finally:
        # It ends its ranks itself, which are in sessions of their own.
        process.terminate()
    assert process.returncode == 0, errors
    assert float(re.search(r"test accuracy (\d+\.\d+) %", output)[1]) > 95
    return output


def test_two_processes_learn_what_one_does(tmp_path):
    losses = {}
    for processes in (1, 2):
        output = output_of("ddp_your_loop.py", processes, tmp_path)
        found = re.findall(rf"rank (\d) of {processes}: last loss (-\d+\.\d+), 10 classes", output)
        assert {rank for rank, _ in found} == set(map(str, range(processes)))
        (losses[processes],) = {float(loss) for _, loss in found}
    # Adam blows up the rounding of float32; in float64, tests/core has them equal.
    assert losses[2] == pytest.approx(losses[1], rel=0.03)


def test_accelerate_by_two_processes(tmp_path):
    assert "processes: 2," in output_of("accelerate_loop.py", 2, tmp_path)
