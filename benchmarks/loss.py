"""Cost of the loss, forward and backward, relative to the one unavoidable product and to autograd.

    python benchmarks/loss.py

All rows of a table are measured in turn within one run, on one thread; compare ratios, not milliseconds. "H'H" is
the product `H.T @ H` of the same float32 features. "autograd" is the paper's statistic without a closed form:
scatters, Cholesky and `eigvalsh` in float64, differentiated by PyTorch. "callable" is Wilks' statistic given as a
function. Memory is the peak beyond the features, in units of the larger of an n x d and a d x d float32 array. In the
last batch one dimension is almost the sum of two others: at alpha 1 the product is repeated in float64. The first lines
compare small batches at alpha 1 with `nn.CrossEntropyLoss`, by the fastest of many calls in turn.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from itertools import accumulate
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from deeplda import DeepLDALoss

SMALL = [(200, 10, 10), (1000, 10, 10)]
SHAPES = [(1000, 10, 10), (1000, 256, 100), (4096, 512, 1000), (4096, 2048, 1000)]
DEPENDENT = (4096, 512, 1000)
SECONDS_A_CASE = 4.0
ALPHA = 0.6
PRODUCT = "H'H"


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)
    print(f"torch {torch.__version__}, one thread, alpha={ALPHA}, float32 features, forward + backward\n")
    for shape in SMALL:
        beside_cross_entropy(*shape)
    print()
    for n, d, c, dependent in [*((*shape, False) for shape in SHAPES), (*DEPENDENT, True)]:
        features, labels = batch(n, d, c, dependent=dependent)
        cases: dict[str, Callable[[], Any]] = {
            PRODUCT: lambda features=features: features.detach().T @ features.detach(),
            "autograd": step(autograd_loss, features, labels),
        }
        for statistic in ("smallest", "wilks", "pillai", "hotelling"):
            cases[statistic] = step(DeepLDALoss(statistic, alpha=ALPHA), features, labels)
        cases["smallest, alpha=0"] = step(DeepLDALoss("smallest", alpha=0.0), features, labels)
        cases["smallest, alpha=1"] = step(DeepLDALoss("smallest", alpha=1.0), features, labels)
        cases["callable"] = step(DeepLDALoss(lambda v: v.log1p().mean(), alpha=ALPHA), features, labels)
        times = measure(cases)
        array = max(n * d, d * d) * 4
        print(f"n={n} d={d} C={c}" + ", one dimension almost the sum of two others" * dependent)
        print(f"  {'':20}{'ms':>10}{'x HH':>9}{'autograd /':>12}{'peak arrays':>14}")
        for name, seconds in times.items():
            peak = peak_memory(cases[name]) / array
            print(
                f"  {name:20}{seconds * 1e3:10.2f}{seconds / times[PRODUCT]:9.2f}"
                f"{times['autograd'] / seconds:12.2f}{peak:14.1f}"
            )
        print(flush=True)


def beside_cross_entropy(n: int, d: int, c: int) -> None:
    features, labels = batch(n, d, c, dependent=False)
    reference, ours = step(nn.CrossEntropyLoss(), features, labels), step(DeepLDALoss(), features, labels)
    samples: dict[Callable[[], None], list[float]] = {reference: [], ours: []}
    for _ in range(5000):
        for case, times in samples.items():
            before = time.perf_counter()
            case()
            times.append(time.perf_counter() - before)
    theirs, own = min(samples[reference]), min(samples[ours])
    figures = f"{own * 1e6:.0f} against {theirs * 1e6:.0f} microseconds, {own / theirs:.2f} x cross-entropy"
    print(f"n={n} d={d} C={c}, wilks: {figures}")


def batch(n: int, d: int, c: int, *, dependent: bool) -> tuple[Tensor, Tensor]:
    """Draw features of C overlapping Gaussian classes; if `dependent`, one is almost the sum of two others."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, c, (n,), generator=generator)
    centres = torch.randn(c, d, generator=generator)
    features = torch.randn(n, d, generator=generator) + centres[labels]
    if dependent:
        features[:, -1] = features[:, 0] + features[:, 1] + 0.01 * features[:, -1]
    return features.requires_grad_(), labels


def step(loss: Callable[[Tensor, Tensor], Tensor], features: Tensor, labels: Tensor) -> Callable[[], None]:
    def run() -> None:
        features.grad = None
        loss(features, labels).backward()

    return run


def autograd_loss(features: Tensor, labels: Tensor, epsilon: float = 1.0, lam: float = 1e-3) -> Tensor:
    h = features.double()
    n, d = h.shape
    _, index, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    c = len(counts)
    means = torch.zeros(c, d, dtype=h.dtype).index_add(0, index, h) / counts[:, None]
    centred = h - means[index]
    s_w = centred.T @ centred / n
    spread = (means - h.mean(0)) * (counts / n).sqrt()[:, None]
    s_b = spread.T @ spread
    s_w = ALPHA * s_w + (1 - ALPHA) * s_w.diagonal().diag() + lam * torch.eye(d, dtype=h.dtype)
    root = torch.linalg.cholesky(s_w)
    half = torch.linalg.solve_triangular(root, s_b, upper=False)
    values = torch.linalg.eigvalsh(torch.linalg.solve_triangular(root, half.T, upper=False))[-min(d, c - 1) :]
    return -values[values <= values[0].detach() + epsilon].mean()


def measure(cases: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Measure the median seconds of each case. The cases take turns, so a change of the machine's speed affects all."""
    samples: dict[str, list[float]] = {name: [] for name in cases}
    for case in cases.values():
        case()
    start = time.perf_counter()
    while time.perf_counter() - start < SECONDS_A_CASE * len(cases) or len(samples[PRODUCT]) < 5:
        for name, case in cases.items():
            before = time.perf_counter()
            case()
            samples[name].append(time.perf_counter() - before)
    return {name: median(times) for name, times in samples.items()}


def peak_memory(case: Callable[[], Any]) -> int:
    """Measure the largest number of bytes that `case` holds at one time, from the allocator's events."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        case()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    changes = [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]
    return max(accumulate(changes))


if __name__ == "__main__":
    main()
