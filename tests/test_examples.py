"""The examples run as they stand."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_loss_in_your_loop(tmp_path):
    command = [sys.executable, "-W", "error", str(EXAMPLES / "loss_in_your_loop.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = {line[:40].strip(): float(line[40:49]) for line in done.stdout.splitlines() if "±" in line}
    assert len(rows) == 3
    assert min(rows.values()) > 95
