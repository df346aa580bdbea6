"""Batches larger than memory: what `large_batch_backward` costs beside plain steps on batches of one chunk.

    python benchmarks/memory.py

DorferNet on images of 3x32x32, the paper's objective, all cores: a batch of 2,000 in chunks of 100 beside plain batches
of 100. Memory is what the peak of a fresh process grows by from the moment when network and images are there; time is
a whole step with its optimiser, the two kinds in turns, and compared for each image. Then, on an MLP and scikit-learn's
digits in float64, how far three ways of working in chunks are from the gradient of the whole batch.
"""

from __future__ import annotations

import argparse
import copy
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from deeplda import DeepLDALoss
from deeplda.core.large_batch import large_batch_backward
from deeplda.networks import DorferNet

SHAPE, CLASSES = (3, 32, 32), 10
PLAIN, CHUNKED = "plain", "chunked"
# glibc gives a block of this many bytes or more back when it is freed. Left alone it raises the limit to 32 MB, keeps
# freed blocks in a heap with holes, and the same process peaks anywhere from 420 to 540 MB.
SMALLEST_MAPPING = 128 * 1024


def main() -> None:
    options = arguments()
    warnings.filterwarnings("ignore", "a batch of")
    if options.memory_of:
        print(peak_growth(options))
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, DorferNet of width {options.width:g}\n")
    memory = {kind: median(fresh_process(kind) for _ in range(options.turns)) for kind in (PLAIN, CHUNKED)}
    seconds = seconds_an_image(options)
    whole = f"batch {options.batch} in chunks of {options.chunk}"
    print(f"{'':32}{'peak growth, MB':>18}{'ms an image':>14}")
    for kind, name in ((PLAIN, f"plain batch of {options.chunk}"), (CHUNKED, whole)):
        print(f"{name:32}{memory[kind]:18.1f}{median(seconds[kind]) * 1e3:14.2f}")
    ratio = median(c / p for c, p in zip(seconds[CHUNKED], seconds[PLAIN], strict=True))
    print(f"{'ratio':32}{memory[CHUNKED] / memory[PLAIN]:18.2f}{ratio:14.2f}\n")
    print("relative difference from the gradient of the whole batch: MLP, 1,000 digits, chunks of 100, float64")
    for name, difference in gradient_differences().items():
        print(f"  {name:52}{difference:10.1e}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Memory and time of large_batch_backward.")
    parser.add_argument("--width", type=float, default=1.0, help="of DorferNet, 1 has 64 channels first")
    parser.add_argument("--batch", type=int, default=2000)
    parser.add_argument("--chunk", type=int, default=100)
    parser.add_argument("--turns", type=int, default=3, help="how often everything is measured")
    parser.add_argument("--memory-of", choices=(PLAIN, CHUNKED), help="measure this alone, for a process of its own")
    return parser.parse_args()


class Steps:
    """A network with its optimiser, and a step of either kind on random images."""

    def __init__(self, options: argparse.Namespace) -> None:
        torch.manual_seed(0)
        self.batch, self.chunk = options.batch, options.chunk
        self.network = DorferNet(SHAPE, CLASSES, width=options.width).to(memory_format=torch.channels_last)
        self.criterion = DeepLDALoss()
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.01, momentum=0.9)
        self.images = torch.randn(self.batch, *SHAPE).contiguous(memory_format=torch.channels_last)
        self.labels = torch.arange(self.batch) % CLASSES

    def plain(self) -> None:
        """As many steps on batches of one chunk as there are chunks in the batch."""
        for images, labels in zip(self.images.split(self.chunk), self.labels.split(self.chunk), strict=True):
            self.optimizer.zero_grad()
            self.criterion(self.network(images), labels).backward()
            self.optimizer.step()

    def chunked(self) -> None:
        """One step on the whole batch."""
        self.optimizer.zero_grad()
        large_batch_backward(self.network, self.criterion, self.images, self.labels, chunk_size=self.chunk)
        self.optimizer.step()


def peak_growth(options: argparse.Namespace) -> float:
    """Megabytes by which this process's peak exceeds what it holds before its first step."""
    steps = Steps(options)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    before = pages * os.sysconf("SC_PAGE_SIZE") / 1024
    for _ in range(2):
        getattr(steps, options.memory_of)()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def fresh_process(kind: str) -> float:
    command = [sys.executable, __file__, *sys.argv[1:], "--memory-of", kind]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(SMALLEST_MAPPING)}
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout)


def seconds_an_image(options: argparse.Namespace) -> dict[str, list[float]]:
    """One number a turn for each kind; the machine's speed may change from turn to turn."""
    steps = {PLAIN: Steps(options), CHUNKED: Steps(options)}
    seconds: dict[str, list[float]] = {kind: [] for kind in steps}
    for kind, own in steps.items():
        getattr(own, kind)()
    for _ in range(options.turns):
        for kind, own in steps.items():
            start = time.perf_counter()
            getattr(own, kind)()
            seconds[kind].append((time.perf_counter() - start) / options.batch)
    return seconds


def gradient_differences() -> dict[str, float]:
    """Of the three ways, in the largest element over the largest of the whole batch's gradient."""
    pixels, digits = load_digits(return_X_y=True)
    inputs, labels = torch.tensor(pixels[:1000] / 16), torch.tensor(digits[:1000])
    torch.manual_seed(0)
    criterion = DeepLDALoss()
    plain = mlp(nn.Identity)
    normalised = mlp(lambda: nn.BatchNorm1d(128))

    def chunked(network: nn.Module) -> None:
        large_batch_backward(network, criterion, inputs, labels, chunk_size=100)

    def accumulated(network: nn.Module) -> None:
        for part, part_labels in zip(inputs.split(100), labels.split(100), strict=True):
            (criterion(network(part), part_labels) / 10).backward()

    def whole(network: nn.Module) -> None:
        criterion(network(inputs), labels).backward()

    def difference(network: nn.Module, way: Callable[[nn.Module], None]) -> float:
        found, true = gradient(network, way), gradient(network, whole)
        return float((found - true).abs().max() / true.abs().max())

    return {
        "large_batch_backward": difference(plain, chunked),
        "large_batch_backward, with batch normalisation": difference(normalised, chunked),
        "gradients of small batches added up": difference(plain, accumulated),
    }


def mlp(norm: Callable[[], nn.Module]) -> nn.Module:
    """Two hidden layers of 128, in float64."""
    first, second = (nn.Sequential(nn.Linear(width, 128), norm(), nn.ReLU()) for width in (64, 128))
    return nn.Sequential(first, second, nn.Linear(128, 10)).double()


def gradient(network: nn.Module, way: Callable[[nn.Module], None]) -> Tensor:
    """All of it in one vector, of a copy of the network."""
    network = copy.deepcopy(network)
    way(network)
    return torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])


if __name__ == "__main__":
    main()
