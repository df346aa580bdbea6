"""What depth adds: LDA, two-dimensional LDA and kernel LDA beside deep LDA with DorferNet and FastNet.

    python benchmarks/what_depth_adds.py [--data digits fashion-mnist cifar10] [--output results/what-depth-adds.csv]

Each method without a network is fitted with every setting of its grid, on at most `--selection` random training
samples, and scored on the validation set. The best setting is fitted once more, on the whole training set, and scored
on the test set, which is used for nothing else. Images are scaled to 0..1. Colour images have their three channels side
by side, so an image of 3 x 32 x 32 is a matrix of 32 x 96. The networks have fixed settings, which were chosen on
CIFAR-10's training images, and seed 0; the best epoch is chosen on the validation set.

Each row is measured in a process of its own: "cpu_seconds" is the CPU time of the last fit, and "megabytes" is by how
much it raised the peak memory beyond the data. Rows that the output file already has are not measured again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from numpy.typing import NDArray
from result_rows import append_rows, matching, read_rows

from deeplda.classical import KernelLDA, StreamingLDA, TwoDimensionalLDA
from deeplda.data import Part, load_data
from deeplda.experiments.recipes import read_recipe
from deeplda.training.config import RunConfig
from deeplda.training.pipeline import run_to_end
from deeplda.training.progress import Progress

Images = NDArray[np.float32]
COLUMNS = (
    "data",
    "method",
    "setting",
    "val_accuracy",
    "test_accuracy",
    "cpu_seconds",
    "megabytes",
    "samples",
    "threads",
)
EXACT, BASIS = 4000, 2000
# The width of the kernel is a multiple of 1 / (features x variance), scikit-learn's gamma "scale" for SVMs.
WIDTHS = (0.1, 0.3, 1.0, 3.0)
RIDGES = (1e-3, 1e-4, 1e-5)


def grid(**axes: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """Yield every combination of the axes."""
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def lda(_images: Images) -> Iterator[tuple[str, Any]]:
    for setting in grid(shrinkage=(None, 0.01, 0.1, "oas", "ledoit-wolf")):
        yield text(setting), StreamingLDA(**setting)


def two_dimensional(sides: str) -> Callable[[Images], Iterator[tuple[str, Any]]]:
    def settings(images: Images) -> Iterator[tuple[str, Any]]:
        h, w = images.shape[1:]
        sizes = sorted({(round(h * share), round(w * share)) for share in (0.25, 0.5, 0.75)})
        for size in sizes:
            yield f"n_components={size}", TwoDimensionalLDA(sides=sides, n_components=size, lam=1e-4)

    return settings


def kernel(**options: Any) -> Callable[[Images], Iterator[tuple[str, Any]]]:
    def settings(images: Images) -> Iterator[tuple[str, Any]]:
        scale = 1 / (images[0].size * float(images.var()))
        for setting in grid(gamma=tuple(width * scale for width in WIDTHS), lam=RIDGES):
            yield text(setting), KernelLDA(random_state=0, **setting, **options)

    return settings


METHODS: dict[str, Callable[[Images], Iterator[tuple[str, Any]]]] = {
    "LDA": lda,
    "2D-LDA, both sides": two_dimensional("both"),
    "2D-LDA, right side": two_dimensional("right"),
    f"kernel LDA, exact, {EXACT} samples": kernel(approximation=None),
    f"kernel LDA, Nystroem {BASIS}": kernel(approximation="nystroem", n_basis=BASIS),
    f"kernel LDA, Fourier {BASIS}": kernel(approximation="fourier", n_basis=BASIS),
}

# FastNet as in the recipe quick; DorferNet at the same width, with the rates of results/dorfernet.
NETWORKS: dict[str, dict[str, Any]] = {
    "deep LDA, DorferNet 1/4": {"network": "dorfernet", "filter_learning_rate": 0.12, "learning_rate": 5.0},
    "deep LDA, FastNet 1/4": {},
}
# Few small images, some of which mirroring would turn into another class or none.
DATA_SETTINGS: dict[str, dict[str, Any]] = {
    "digits": {"image_size": 32, "batch_size": 200, "epochs": 30, "flip": False}
}


def main() -> None:
    options = arguments()
    if options.measure:
        data, method = options.measure
        row = trained(data, method) if method in NETWORKS else selected(data, method, options.selection)
        print(json.dumps({"data": data, "method": method, **row, "threads": torch.get_num_threads()}))
        return
    print(f"torch {torch.__version__}, scikit-learn {sklearn.__version__}, {torch.get_num_threads()} threads")
    rows = read_rows(options.output)
    for data, method in itertools.product(options.data, [*METHODS, *NETWORKS]):
        if matching(rows, data=data, method=method):
            continue
        command = [sys.executable, __file__, *sys.argv[1:], "--measure", data, method]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        row = json.loads(done.stdout.splitlines()[-1])
        figures = f"{row['test_accuracy']:7.2f} %, {row['cpu_seconds']:8.2f} s, {row['megabytes']:6.0f} MB"
        print(f"{data:14} {method:34} {figures}, {row['setting']}", flush=True)
        append_rows(options.output, COLUMNS, [row])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=["digits", "fashion-mnist", "cifar10"])
    parser.add_argument("--output", type=Path, help="a CSV file for all rows")
    parser.add_argument("--selection", type=int, default=5_000, help="training samples for choosing a setting")
    parser.add_argument("--measure", nargs=2, metavar=("DATA", "METHOD"), help="measure one row in this process")
    return parser.parse_args()


def selected(name: str, method: str, selection: int) -> dict[str, Any]:
    """Choose a setting of a method without a network on the validation set, fit it, and return its measures."""
    data = load_data(name)
    train = data.train
    if "exact" in method and len(train) > EXACT:
        train = train.take(np.random.default_rng(0).permutation(len(train))[:EXACT])
    images, labels = matrices(train), train.labels
    flat = not method.startswith("2D")
    some = np.random.default_rng(1).permutation(len(labels))[:selection]
    scores = {}
    for setting, model in METHODS[method](images):
        model.fit(shaped(images[some], flat), labels[some])
        scores[setting] = accuracy(model, data.val, flat)
    best = max(scores, key=lambda setting: scores[setting])
    model = dict(METHODS[method](images))[best]
    inputs = shaped(images, flat)
    before = resident_megabytes()
    reset_peak()
    start = time.process_time()
    model.fit(inputs, labels)
    return {
        "cpu_seconds": round(time.process_time() - start, 2),
        "megabytes": round(peak_megabytes() - before),
        "setting": best,
        "val_accuracy": round(accuracy(model, data.val, flat), 2),
        "test_accuracy": round(accuracy(model, data.test, flat), 2),
        "samples": len(labels),
    }


def trained(name: str, method: str) -> dict[str, Any]:
    """Train a network with Pillai's statistic, and return its measures; scoring is part of the time."""
    own = DATA_SETTINGS.get(name, {})
    config = RunConfig.parse({**read_recipe("quick"), **NETWORKS[method], **own, "data": name}, method)
    data = load_data(name, image_size=config.image_size)
    size, samples = sum(part.inputs.nbytes for part in (data.train, data.val, data.test)) / 2**20, len(data.train)
    del data
    before = resident_megabytes()
    reset_peak()
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        summary = run_to_end(config, Path(folder, "run"), Progress()).summary
    return {
        "cpu_seconds": round(time.process_time() - start, 2),
        "megabytes": round(peak_megabytes() - before - size),
        "setting": f"epochs={config.epochs} batch_size={config.batch_size}",
        "val_accuracy": round(100 * summary.validation.score, 2),
        "test_accuracy": round(100 * summary.test.score, 2),
        "samples": samples,
    }


def matrices(part: Part) -> Images:
    """Return images (n, c, h, w) as matrices (n, h, c w) from 0 to 1."""
    n, c, h, w = part.inputs.shape
    return (part.inputs.transpose(0, 2, 1, 3).reshape(n, h, c * w) / np.float32(255)).astype(np.float32)


def shaped(images: Images, flat: bool) -> Images:
    return images.reshape(len(images), -1) if flat else images


def accuracy(model: Any, part: Part, flat: bool) -> float:
    return 100 * float((model.predict(shaped(matrices(part), flat)) == part.labels).mean())


def text(setting: dict[str, Any]) -> str:
    return " ".join(
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}" for name, value in setting.items()
    )


def reset_peak() -> None:
    """Forget the peak memory of the search, where Linux allows it."""
    Path("/proc/self/clear_refs").write_text("5")


def resident_megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def peak_megabytes() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
