"""Step time for 1 to 1,024 ranks: a simulation from costs measured here and from networks that are assumed.

    python benchmarks/scaling.py

Every rank has a batch of 100 images (weak scaling). Measured on this machine: DorferNet forward and backward, the loss
with its gradient, and gloo between two processes over loopback. Assumed: the two other networks in `NETWORKS`, that an
exchange costs its hops times a latency plus its bytes over a bandwidth, and that nothing overlaps, though
DistributedDataParallel overlaps most of its exchange with the backward pass. Writes scaling.csv and scaling.png.
"""

from __future__ import annotations

import argparse
import csv
import math
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
import torch.multiprocessing
from matplotlib.figure import Figure
from torch import nn

from deeplda import DeepLDALoss
from deeplda.networks import DorferNet

RANKS = [2**k for k in range(11)]
SIZES = [(10, 10), (256, 100), (1024, 1000)]
IMAGE, CLASSES = (3, 32, 32), 10
# A rank's first message (8 numbers and room for 256 class ids), and DistributedDataParallel's default bucket.
MESSAGE_BYTES, BUCKET_BYTES = 264 * 8, 25 * 2**20


@dataclass(frozen=True)
class Network:
    """How long exchanges take: `latency` in seconds a hop, of which a tree has log2(R) and a ring R - 1, and
    `bandwidth` in bytes a second.
    """

    name: str
    latency: float
    bandwidth: float
    tree: bool = False

    def hops(self, ranks: int) -> float:
        return math.ceil(math.log2(ranks)) if self.tree else ranks - 1

    def all_reduce(self, size: float, ranks: int) -> float:
        return 2 * self.hops(ranks) * self.latency + 2 * (ranks - 1) / ranks * size / self.bandwidth

    def all_gather(self, size: float, ranks: int) -> float:
        return self.hops(ranks) * self.latency + (ranks - 1) * size / self.bandwidth

    def loss(self, d: int, c: int, ranks: int) -> float:
        """The three exchanges of `DeepLDALoss`; the lists of ids are longer than the message where C > 256."""
        ids = self.all_gather(MESSAGE_BYTES + (8 * c if c > 256 else 0), ranks)
        return ids + self.all_reduce(8 * (c + c * d), ranks) + self.all_reduce(8 * d * d, ranks)

    def gradients(self, parameters: int, ranks: int) -> float:
        buckets = math.ceil(4 * parameters / BUCKET_BYTES)
        return buckets * self.all_reduce(4 * parameters / buckets, ranks)


@dataclass(frozen=True)
class Step:
    """One row of the table; seconds."""

    network: str
    d: int
    classes: int
    ranks: int
    network_step: float
    loss: float
    loss_exchange: float
    gradient_exchange: float

    @property
    def total(self) -> float:
        return self.network_step + self.loss + self.loss_exchange + self.gradient_exchange


def main() -> None:
    options = arguments()
    warnings.filterwarnings("ignore", "a batch of|.* classes can differ")
    latency, bandwidth, check = between_two_processes()
    networks = [
        Network("gloo over loopback, measured", latency, bandwidth),
        Network("10 Gb/s Ethernet, 50 µs, ring, assumed", 50e-6, 1.25e9),
        Network("100 Gb/s, 10 µs, trees, assumed", 10e-6, 12.5e9, tree=True),
    ]
    step, parameters = network_step(options.width, options.batch)
    losses = {size: loss_step(options.batch, *size) for size in SIZES}
    steps = [
        Step(net.name, d, c, ranks, step, losses[d, c], net.loss(d, c, ranks), net.gradients(parameters, ranks))
        if ranks > 1
        else Step(net.name, d, c, 1, step, losses[d, c], 0.0, 0.0)
        for net in networks
        for d, c in SIZES
        for ranks in RANKS
    ]
    options.results.mkdir(parents=True, exist_ok=True)
    write(options.results / "scaling.csv", steps)
    plot(options.results / "scaling.png", steps)
    print(f"loopback gloo: {latency * 1e6:.0f} µs a hop, {bandwidth / 1e9:.2f} GB/s")
    print(
        f"DorferNet of width {options.width:g}, {parameters:,} parameters, batch {options.batch}: {step * 1e3:.0f} ms"
    )
    for d, c in SIZES:
        model, found = networks[0].loss(d, c, 2), check[d, c]
        print(
            f"d={d} C={c}: loss {losses[d, c] * 1e3:.1f} ms, exchange of 2 ranks {found * 1e3:.2f} ms, "
            f"by the model {model * 1e3:.2f} ms"
        )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Step time for 1 to 1,024 ranks, simulated.")
    parser.add_argument("--width", type=float, default=1.0, help="of DorferNet")
    parser.add_argument("--batch", type=int, default=100, help="images of a rank")
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results", help="where to write")
    return parser.parse_args()


def seconds(action: Callable[[], object], *, repeats: int) -> float:
    """Median of several, after one that is not counted."""
    action()
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        samples.append(time.perf_counter() - start)
    return median(samples)


def network_step(width: float, batch: int) -> tuple[float, int]:
    """Seconds of forward and backward, and how many parameters there are."""
    torch.manual_seed(0)
    network: nn.Module = DorferNet(IMAGE, CLASSES, width=width).to(memory_format=torch.channels_last)
    images = torch.randn(batch, *IMAGE).contiguous(memory_format=torch.channels_last)
    return seconds(lambda: network(images).sum().backward(), repeats=5), sum(p.numel() for p in network.parameters())


def loss_step(n: int, d: int, c: int) -> float:
    """Seconds of the loss and its gradient, of n samples or as many as it takes to have two of each class."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(max(n, 2 * c)) % c
    features = (torch.randn(len(labels), d, generator=generator) + labels[:, None] / c).requires_grad_()
    criterion = DeepLDALoss()
    return seconds(lambda: criterion(features, labels).backward(), repeats=10)


def between_two_processes() -> tuple[float, float, dict[tuple[int, int], float]]:
    """Seconds a hop, bytes a second, and seconds of the loss's own exchanges for each size, over loopback gloo."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_exchange, args=(folder,), nprocs=2)
        found = [float(number) for number in Path(folder, "seconds").read_text().split()]
    small, large, *losses = found
    large_bytes = 8 * 2**22
    return small / 2, large_bytes / (large - small), dict(zip(SIZES, losses, strict=True))


def _exchange(rank: int, folder: str) -> None:
    """One of two ranks: a small and a large all-reduce, and the loss's exchanges on tensors of their sizes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)

    def of_loss(d: int, c: int) -> None:
        message = torch.zeros(MESSAGE_BYTES // 8 + (c if c > 256 else 0), dtype=torch.int64)
        dist.all_gather([torch.empty_like(message) for _ in range(2)], message)
        for size in (c + c * d, d * d):
            dist.all_reduce(torch.zeros(size, dtype=torch.float64))

    tensors = [torch.zeros(size, dtype=torch.float64) for size in (1, 2**22)]
    found = [seconds(lambda tensor=tensor: dist.all_reduce(tensor), repeats=30) for tensor in tensors]
    found += [seconds(lambda d=d, c=c: of_loss(d, c), repeats=30) for d, c in SIZES]
    if rank == 0:
        Path(folder, "seconds").write_text(" ".join(map(repr, found)))
    dist.destroy_process_group()


def write(file: Path, steps: list[Step]) -> None:
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*asdict(steps[0]), "total"])
        writer.writerows(
            [f"{value:.6g}" if isinstance(value, float) else value for value in (*asdict(step).values(), step.total)]
            for step in steps
        )


def plot(file: Path, steps: list[Step]) -> None:
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = list(dict.fromkeys(step.network for step in steps))
    for name, colour in zip(names, ("tab:gray", "tab:orange", "tab:blue"), strict=True):
        own = [step for step in steps if step.network == name]
        paper = [step for step in own if (step.d, step.classes) == SIZES[0]]
        left.plot(RANKS, [step.total * 1e3 for step in paper], color=colour, marker=".", label=name)
        gradients = [step.gradient_exchange * 1e3 for step in paper[1:]]
        right.plot(RANKS[1:], gradients, color=colour, linestyle="--", label=f"gradients: {name.split(',')[0]}")
        for (d, c), width in zip(SIZES, (1, 2, 3), strict=True):
            exchange = [step.loss_exchange * 1e3 for step in own if (step.d, step.classes) == (d, c)][1:]
            label = f"loss, d={d} C={c}" if name == names[-1] else None
            right.plot(RANKS[1:], exchange, color=colour, linewidth=width, label=label)
    left.set(title=f"Step of DorferNet, d={SIZES[0][0]}, C={SIZES[0][1]}", ylabel="ms a step")
    right.set(title="Exchange of the loss and of the gradients", ylabel="ms a step", yscale="log")
    left.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("ranks")
        axes.grid(alpha=0.3)
    left.legend(fontsize="small")
    right.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
