"""Cost of a training step: ours beside a plain loop, and what of it is not the network.

    python benchmarks/training.py

DorferNet at full width (64 channels), batches of 250 images of 3x32x32, the paper's objective, all cores. "plain" is
the loop of most tutorials: a DataLoader over single samples, each normalised and flipped on its own, NCHW memory.
"ours" is the step of `deeplda train`, whose way to keep freed memory serves the plain loop here too. Both take turns
within one run; compare ratios, not seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from deeplda import DeepLDALoss
from deeplda.data import Data, Part
from deeplda.memory import keep_freed_memory
from deeplda.networks import DorferNet
from deeplda.sampling import StratifiedBatchSampler
from deeplda.training.batches import BatchSource
from deeplda.training.config import RunConfig
from deeplda.training.trainee import build_trainee

BATCH, SAMPLES, STEPS = 250, 5000, 12
SHAPE, CLASSES, RATE = (3, 32, 32), 10, 0.1


def main() -> None:
    rng = np.random.default_rng(0)
    part = Part(
        rng.integers(0, 256, (SAMPLES, *SHAPE), dtype=np.uint8), rng.integers(0, CLASSES, SAMPLES).astype(np.int64)
    )
    keep_freed_memory()
    plain, ours = Plain(part), Ours(part)
    seconds: dict[str, list[float]] = {"plain": [], "ours": [], "data": [], "loss": []}
    for turn in range(STEPS + 1):
        plain_step, (ours_step, data, loss) = plain.step(), ours.step()
        if turn:
            for name, value in zip(seconds, (plain_step, ours_step, data, loss), strict=True):
                seconds[name].append(value)
    step = {name: median(values) for name, values in seconds.items()}
    # The machine's speed may change from turn to turn, so the ratio is taken within each.
    ratio = median(p / o for p, o in zip(seconds["plain"], seconds["ours"], strict=True))
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, DorferNet, batch {BATCH}, {STEPS} steps each\n"
    )
    print(f"plain loop          {BATCH / step['plain']:8.1f} images/s")
    print(f"deeplda             {BATCH / step['ours']:8.1f} images/s   {ratio:.2f} x plain")
    print(f"loss and gradient   {100 * step['loss'] / step['ours']:8.2f} % of our step")
    print(f"data, augmentation  {100 * step['data'] / step['ours']:8.2f} % of our step")


def optimizer_of(network: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(network.parameters(), lr=RATE, momentum=0.9, weight_decay=1e-4, nesterov=True)


class SingleSamples(Dataset[tuple[Tensor, int]]):
    """One normalised, perhaps mirrored image at a time."""

    def __init__(self, part: Part) -> None:
        self.part = part

    def __len__(self) -> int:
        return len(self.part)

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        image = torch.from_numpy(self.part.inputs[place]).float()
        image = (image - 127.5) / 73.6
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
        return image, int(self.part.labels[place])


class Plain:
    def __init__(self, part: Part) -> None:
        torch.manual_seed(0)
        self.network, self.criterion = DorferNet(SHAPE, CLASSES), DeepLDALoss()
        self.optimizer = optimizer_of(self.network)
        self.batches = self._forever(part)

    def _forever(self, part: Part) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield from DataLoader(SingleSamples(part), batch_size=BATCH, shuffle=True)

    def step(self) -> float:
        start = time.perf_counter()
        images, labels = next(self.batches)
        self.optimizer.zero_grad()
        self.criterion(self.network(images), labels).backward()
        self.optimizer.step()
        return time.perf_counter() - start


class Ours:
    def __init__(self, part: Part) -> None:
        torch.manual_seed(0)
        nothing = part.take(np.arange(0))
        data = Data("random", part, nothing, nothing, tuple(map(str, range(CLASSES))))
        config = RunConfig(
            network="dorfernet", alpha=0.6, statistic="smallest", learning_rate=RATE, batch_size=BATCH, flip=True
        )
        self.trainee = build_trainee(config, data)
        self.trainee.trained.train()
        self.source = BatchSource(part, self.trainee.device, config)
        self.places = map(np.array, StratifiedBatchSampler(part.labels, BATCH))

    def step(self) -> tuple[float, float, float]:
        """Seconds of the step, of getting the batch, and, measured apart, of the loss with its gradient."""
        start = time.perf_counter()
        batch = self.source.batch(next(self.places), 0)
        data = time.perf_counter() - start
        self.trainee.step(batch, RATE)
        step = time.perf_counter() - start
        features = torch.randn(BATCH, CLASSES, requires_grad=True)
        before = time.perf_counter()
        self.trainee.criterion(features, batch.labels).backward()
        return step, data, time.perf_counter() - before


if __name__ == "__main__":
    main()
