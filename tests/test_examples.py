"""The examples run as they stand, without a warning, and learn what they are to learn."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

# Per cent of test images that the worst of an example's networks must get right; all reach two or three more.
BARS = {
    "accelerate_loop.py": 95,
    "compiled.py": 95,
    # Its worst line is plain LDA on the features of a frozen network.
    "huggingface_backbone.py": 92,
    "lightning_module.py": 95,
    "metric_learning.py": 95,
    "skorch_classifier.py": 95,
}
# The default backend takes half a minute, most of it in the C++ compiler, for a network that is trained in a second.
ARGUMENTS = {"compiled.py": ["aot_eager"]}
# matplotlib before 3.10.7 calls functions of pyparsing by deprecated names.
MATPLOTLIB = [f"ignore::DeprecationWarning:matplotlib.{module}" for module in ("_fontconfig_pattern", "_mathtext")]
WARNINGS_OF_OTHERS = {
    "lightning_module.py": [
        # Lightning 2.6 makes a class that torch 2.13 has deprecated.
        "ignore:`isinstance(treespec, LeafSpec)` is deprecated:FutureWarning",
        # Where there are more than two cores it would load 1,257 rows in worker processes.
        "ignore:The 'train_dataloader' does not have many workers",
        "ignore:The 'test_dataloader' does not have many workers",
    ]
}
TESTED_ELSEWHERE = {
    "ddp_your_loop.py",
    "experiment_trackers.py",
    "http_service.py",
    "loss_in_your_loop.py",
    "onnx_inference.py",
}


def output_of(example, folder):
    filters = [f"-W{each}" for each in ("error", *MATPLOTLIB, *WARNINGS_OF_OTHERS.get(example, []))]
    command = [sys.executable, *filters, str(EXAMPLES / example), *ARGUMENTS.get(example, [])]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("example", BARS)
def test_example(example, tmp_path):
    accuracies = re.findall(r"test accuracy (\d+\.\d+) %", output_of(example, tmp_path))
    assert accuracies
    assert min(map(float, accuracies)) > BARS[example]
    assert not list(tmp_path.iterdir()), "an example leaves nothing behind"


def test_loss_in_your_loop(tmp_path):
    output = output_of("loss_in_your_loop.py", tmp_path)
    rows = {line[:52].strip(): float(line[52:61]) for line in output.splitlines() if "±" in line}
    assert len(rows) == 4
    assert min(rows.values()) > 95


def test_every_example_is_tested():
    assert {file.name for file in EXAMPLES.glob("*.py")} - TESTED_ELSEWHERE == set(BARS)
