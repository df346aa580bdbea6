"""A user's own script under torchrun, as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "ddp_your_loop.py"


def test_ddp_your_loop(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        output, errors = process.communicate(timeout=300)
    finally:
        # It ends its ranks itself, which are in sessions of their own.
        process.terminate()
    assert process.returncode == 0, errors
    losses = dict(re.findall(r"rank (\d) of 2: last loss (-\d+\.\d+), of 10 classes", output))
    assert set(losses) == {"0", "1"}
    assert losses["0"] == losses["1"]
    assert float(re.search(r"test accuracy (\d+\.\d+) %", output)[1]) > 95
