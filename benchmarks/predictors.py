"""Cost of fitting all three predictors, relative to scikit-learn's LDA, and their memory for more samples.

    python benchmarks/predictors.py

The features are 50,000 x 256 float32 numbers of 10 classes, fitted in batches of 500 as in `deeplda train`. The peak
memory beyond the features is measured in a new process for each line. Compare ratios, not seconds.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from deeplda.predictors import ClassicLDA, FeatureStatistics, Hyperplanes, NearestMean

D, CLASSES, BATCH = 256, 10, 500


def batches(n: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, CLASSES, (n,), generator=generator)
    features = torch.randn(n, D, generator=generator)
    # In place: a copy made and freed here would hide a copy made while fitting.
    features += labels[:, None] / 3
    return list(zip(features.split(BATCH), labels.split(BATCH), strict=True))


def fit_all(parts: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    statistics = FeatureStatistics.for_labels(torch.cat([labels for _, labels in parts]))
    for features, labels in parts:
        statistics.update(features, labels)
    for predictor in (Hyperplanes(), NearestMean(), ClassicLDA()):
        predictor.fit_statistics(statistics)


def peak_megabytes(n: int) -> float:
    """Measure by how much fitting raises the peak memory of a new process."""
    command = [sys.executable, __file__, str(n)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    if len(sys.argv) > 1:
        parts = batches(int(sys.argv[1]))
        fit_all(parts[:2])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        fit_all(parts)
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
        return
    parts = batches(50_000)
    x, y = (torch.cat(tensors).numpy() for tensors in zip(*parts, strict=True))
    ours, theirs = [], []
    for _ in range(5):
        start = time.perf_counter()
        fit_all(parts)
        ours.append(time.perf_counter() - start)
        start = time.perf_counter()
        LinearDiscriminantAnalysis(solver="eigen").fit(x, y)
        theirs.append(time.perf_counter() - start)
    print(f"all predictors {min(ours):.3f} s, scikit-learn's LDA {min(theirs):.3f} s: {min(ours) / min(theirs):.2f} x")
    for n in (50_000, 200_000):
        print(f"n={n:7,}: peak memory beyond the features {peak_megabytes(n):.1f} MB")


if __name__ == "__main__":
    main()
