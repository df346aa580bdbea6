"""Time and memory of StreamingLDA, relative to scikit-learn's LDA.

    python benchmarks/classical.py [--scale 1.0] [--turns 3] [--solvers svd eigen]

The three tables of random float64 numbers are 50,000 x 256 with 10 classes, 1,000,000 x 64 with 10 classes, and
100,000 x 512 with 20,000 classes; `--scale 0.1` takes a tenth of the rows and, in the last table, of the classes. Each
fit runs in a process of its own, in turns, and reports its time and by how much it raises the peak memory beyond the
table. A process that needs more than `--limit` gigabytes fails, and is reported as such. Compare ratios, not seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import sklearn
import torch
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from deeplda.classical import StreamingLDA

OURS = "streaming"
SOLVERS = ("svd", "eigen", "lsqr")
# glibc returns a freed block of this many bytes or more to the system; otherwise its peaks vary from run to run.
SMALLEST_MAPPING = 128 * 1024


@dataclass(frozen=True)
class Table:
    name: str
    rows: int
    features: int
    classes: int
    goal: str

    def scaled(self, scale: float) -> Table:
        classes = max(10, round(self.classes * scale)) if self.classes > 10 else self.classes
        return Table(self.name, round(self.rows * scale), self.features, classes, self.goal)

    def make(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        rng = np.random.default_rng(0)
        labels = np.arange(self.rows) % self.classes
        rng.shuffle(labels)
        inputs = rng.standard_normal((self.rows, self.features))
        # In place and block by block: a copy made and freed here would hide one made while fitting.
        means = rng.standard_normal((self.classes, self.features))
        for start in range(0, self.rows, 1000):
            inputs[start : start + 1000] += means[labels[start : start + 1000]]
        return inputs, labels


TABLES = (
    Table("tall", 50_000, 256, 10, "at most 0.5 x the time of scikit-learn"),
    Table("long", 1_000_000, 64, 10, "at most 0.5 x the time of scikit-learn"),
    Table("classes", 100_000, 512, 20_000, "finish within 2 GB"),
)


def main() -> None:
    options = arguments()
    if options.measure:
        print(json.dumps(measured(options)))
        return
    print(
        f"torch {torch.__version__}, scikit-learn {sklearn.__version__}, {torch.get_num_threads()} threads, "
        f"scale {options.scale:g}, median of {options.turns}"
    )
    for table in (table.scaled(options.scale) for table in TABLES if table.name in options.tables):
        print(f"\n{table.rows:,} x {table.features}, {table.classes:,} classes; goal: {table.goal}")
        report(options, table)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--limit", type=float, default=16.0, help="gigabytes of address space for each process")
    parser.add_argument("--solvers", nargs="*", choices=SOLVERS, default=["svd", "eigen"])
    parser.add_argument("--tables", nargs="*", default=[table.name for table in TABLES])
    parser.add_argument("--measure", nargs=2, metavar=("TABLE", "SOLVER"), help="measure one fit in this process")
    return parser.parse_args()


def report(options: argparse.Namespace, table: Table) -> None:
    """Print a line for each solver."""
    solvers = (OURS, *options.solvers)
    found: dict[str, list[dict[str, float]]] = {solver: [] for solver in solvers}
    failed: dict[str, str] = {}
    for _ in range(options.turns):
        for solver in solvers:
            if solver in failed:
                continue
            result = in_new_process(table, solver)
            if isinstance(result, str):
                failed[solver] = result
            else:
                found[solver].append(result)
    for solver in solvers:
        if solver in failed:
            print(f"  {solver:10} failed: {failed[solver]}")
            continue
        seconds, megabytes = (median(row[key] for row in found[solver]) for key in ("seconds", "megabytes"))
        peak = max(row["peak"] for row in found[solver])
        ratios = ""
        if solver != OURS and OURS not in failed:
            pairs = zip(found[OURS], found[solver], strict=True)
            ratio = median(ours["seconds"] / theirs["seconds"] for ours, theirs in pairs)
            ratios = f"; streaming takes {ratio:.2f} x the time"
        print(f"  {solver:10}{seconds:9.2f} s, {megabytes:8.0f} MB beyond the table, {peak:8.0f} MB peak{ratios}")


def in_new_process(table: Table, solver: str) -> dict[str, float] | str:
    """Return the measurements, or the last line of the error."""
    command = [sys.executable, __file__, *sys.argv[1:], "--measure", table.name, solver]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(SMALLEST_MAPPING)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        return (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
    row: dict[str, float] = json.loads(done.stdout)
    return row


def measured(options: argparse.Namespace) -> dict[str, float]:
    """Fit once, and return the seconds, the peak memory, and its growth."""
    name, solver = options.measure
    limit = int(options.limit * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    inputs, labels = next(table for table in TABLES if table.name == name).scaled(options.scale).make()
    lda = StreamingLDA() if solver == OURS else LinearDiscriminantAnalysis(solver=solver)
    # Import and start everything that the first call of a library would.
    type(lda)(**lda.get_params()).fit(np.random.default_rng(0).standard_normal((100, 4)), np.arange(100) % 3)
    before = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    start = time.perf_counter()
    lda.fit(inputs, labels)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "megabytes": peak - before, "peak": peak}


if __name__ == "__main__":
    main()
