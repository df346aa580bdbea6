"""Where the time of a training step of the fast recipe goes, and what layout, kept memory and bfloat16 are worth.

    python benchmarks/step.py [--width 1]

FastNet on images of 3x32x32, Pillai's statistic, Muon, all cores. Each variant runs in a process of its own: as
`deeplda train` runs it, with images stored plane by plane, with freed memory given back to the system, and with
`--precision bfloat16`. Beside the arithmetic of a step stands that of a matrix product of the same kind as its largest
convolution's.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile

from deeplda import DeepLDALoss
from deeplda.device import autocast_for
from deeplda.memory import keep_freed_memory
from deeplda.networks import FastNet, training_flops
from deeplda.training.optim import Muon

SHAPE, CLASSES = (3, 32, 32), 10
VARIANTS = {
    "as trained": "",
    "images plane by plane": "planes",
    "memory given back": "given-back",
    "in bfloat16": "bfloat16",
}
KINDS = {"convolution": "convolutions", "gelu": "GELU", "pool": "pooling", "batch_norm": "batch normalisation"}


def main() -> None:
    parser = argparse.ArgumentParser(description="The time of a training step of the fast recipe.")
    parser.add_argument("--width", type=float, default=0.5, help="of FastNet")
    parser.add_argument("--batch", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=3, help="how often every variant is measured")
    parser.add_argument(
        "--variant", choices=list(VARIANTS.values()), help="measure this alone, for a process of its own"
    )
    options = parser.parse_args()
    if options.variant is not None:
        print(images_a_second(options))
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, FastNet of width {options.width:g}\n")
    # In turns: the machine's speed may change.
    turns = [{name: fresh_process(variant) for name, variant in VARIANTS.items()} for _ in range(options.turns)]
    for name in VARIANTS:
        ratio = median(turn[name] / turn["as trained"] for turn in turns)
        print(f"{name:28}{median(turn[name] for turn in turns):8.0f} images/s   x {ratio:.2f}")
    print()
    for name, share in shares(options).most_common():
        print(f"{name:28}{100 * share:7.1f} % of the step")
    first = median(turn["as trained"] for turn in turns)
    arithmetic = first * training_flops(FastNet(SHAPE, CLASSES, width=options.width), SHAPE) / 1e9
    print(f"\n{arithmetic:.0f} GFLOP/s in the step, {product_speed(options):.0f} in a matrix product")


def fresh_process(variant: str) -> float:
    command = [sys.executable, __file__, *sys.argv[1:], f"--variant={variant}"]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def step_of(options: argparse.Namespace, *, planes: bool = False, precision: str | None = None) -> Callable[[], None]:
    torch.manual_seed(0)
    layout = torch.contiguous_format if planes else torch.channels_last
    network = FastNet(SHAPE, CLASSES, width=options.width).to(memory_format=layout)
    criterion = DeepLDALoss("pillai")
    optimizer = Muon(network, lr=0.5, filter_lr=0.24, momentum=0.85, weight_decay=1e-4)
    images = torch.randn(options.batch, *SHAPE).contiguous(memory_format=layout)
    labels = torch.arange(options.batch) % CLASSES

    def step() -> None:
        optimizer.zero_grad()
        with autocast_for(precision, images.device):
            criterion(network(images), labels).backward()
        optimizer.step()

    return step


def images_a_second(options: argparse.Namespace) -> float:
    if options.variant != "given-back":
        keep_freed_memory()
    precision = "bfloat16" if options.variant == "bfloat16" else None
    step = step_of(options, planes=options.variant == "planes", precision=precision)
    step()
    return options.batch / median(seconds(step) for _ in range(3))


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def shares(options: argparse.Namespace) -> Counter[str]:
    """Of the time of one step, by kind of operation."""
    keep_freed_memory()
    step = step_of(options)
    step()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        step()
    spent: Counter[str] = Counter()
    for event in found.key_averages():
        kind = next((words for part, words in KINDS.items() if part in event.key), "everything else")
        spent[kind] += event.self_cpu_time_total
    whole = sum(spent.values())
    return Counter({kind: time / whole for kind, time in spent.items()})


def product_speed(options: argparse.Namespace) -> float:
    """GFLOP/s of a matrix product of the shape of a convolution of the last group, unfolded."""
    channels = round(256 * options.width)
    left, right = torch.randn(4096, 9 * channels), torch.randn(9 * channels, channels)
    fastest = min(seconds(lambda: left @ right) for _ in range(40))
    return 2 * 4096 * 9 * channels * channels / fastest / 1e9


if __name__ == "__main__":
    main()
