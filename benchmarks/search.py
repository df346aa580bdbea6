"""Which LDA objective trains best, and with which settings: the search behind the recipes and the defaults.

    python benchmarks/search.py sweeps/search results/search.csv [STAGE ...]

Every stage is a set of grids over the recipe fast-cifar10 at a quarter of its width, run by `deeplda sweep` with one
worker a core, and chosen by validation: 2,000 of the training images of CIFAR-10. Finished trials are rows of the CSV
file as soon as they end; test scores are not among them. Stopped and started again it goes on where it was.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deeplda.experiments.recipes import read_recipe
from deeplda.networks import FastNet
from deeplda.training.run_folder import summary_row

STATISTICS = ["smallest", "wilks", "pillai", "hotelling"]
CROSS_ENTROPY = {"objective": ["cce"], "label_smoothing": [0.2]}
SHORT = {"data": "cifar10", "width": 0.25, "epochs": 2, "tta": None}

Grid = dict[str, list[Any]]
# Of each stage its grids; what a grid does not name is as in the recipe. Later stages take up what earlier ones found.
STAGES: dict[str, list[Grid]] = {
    "statistics": [
        {"statistic": STATISTICS, "alpha": [1.0, 0.9, 0.6, 0.2], "seed": [0]},
        CROSS_ENTROPY | {"seed": [0]},
    ],
    "remedies": [
        {"statistic": ["pillai"], "alpha": [0.6], "embedding_dim": [20, 64], "seed": [0]},
        {"statistic": ["smallest", "pillai"], "alpha": [0.6], "network": ["search:decorrelated"], "seed": [0]},
    ],
    "rates": [
        {"statistic": STATISTICS, "learning_rate": [0.15, 1.5, 5.0], "seed": [0]},
        CROSS_ENTROPY | {"learning_rate": [0.15, 1.5, 5.0], "seed": [0]},
    ],
    "alphas": [
        {"statistic": ["pillai"], "alpha": [1.0, 0.9], "seed": [1, 2]},
        {"statistic": ["pillai"], "alpha": [0.95, 0.8], "seed": [0, 1, 2]},
    ],
    "filter_rates": [
        {"statistic": ["pillai", "smallest"], "filter_learning_rate": [0.12, 0.48], "seed": [0]},
        CROSS_ENTROPY | {"filter_learning_rate": [0.12, 0.48], "seed": [0]},
    ],
}
COLUMNS = (
    *("objective", "statistic", "alpha", "lam", "epsilon", "label_smoothing", "network", "width"),
    *("embedding_dim", "epochs", "learning_rate", "filter_learning_rate", "momentum", "seed"),
)
OF_LDA = ("statistic", "alpha", "lam", "epsilon")


def main() -> None:
    parser = argparse.ArgumentParser(description="Search the settings of fast-cifar10 on validation.")
    parser.add_argument("folder", type=Path, help="for the sweeps")
    parser.add_argument("output", type=Path, help="CSV file, one row a trial")
    parser.add_argument("stages", nargs="*", default=list(STAGES), metavar="STAGE", help=", ".join(STAGES))
    options = parser.parse_args()
    for stage in options.stages:
        for number, grid in enumerate(STAGES[stage]):
            sweep(options.folder / f"{stage}-{number}", grid)
            write_rows(options.folder, options.output)


def sweep(folder: Path, grid: Grid) -> None:
    """Run the grid with one worker a core, or what is left of it."""
    settings = {name: value for name, value in (read_recipe("fast-cifar10") | SHORT).items() if value is not None}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sweep.toml").write_text(_toml("settings", settings) + _toml("grid", grid))
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "deeplda", "sweep", "--sweep", str(folder), "--workers", str(os.cpu_count())]
    subprocess.run(command, check=True, env=environment)


def _toml(title: str, values: dict[str, Any]) -> str:
    return "\n".join([f"[{title}]", *(f"{name} = {json.dumps(value)}" for name, value in values.items())]) + "\n"


def write_rows(folder: Path, output: Path) -> None:
    rows = list(finished(folder))
    with output.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def finished(folder: Path) -> Iterator[dict[str, Any]]:
    """What was set and found, of every finished trial."""
    for run in sorted(folder.glob("*/trials/*")):
        summary = summary_row(run)
        if summary is None:
            continue
        settings = tomllib.loads((run / "run.toml").read_text())
        last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-2])
        eigenvalues = last.get("eigenvalues") or []
        meant = [name for name in COLUMNS if settings["objective"] != "cce" or name not in OF_LDA]
        yield {
            "stage": run.parts[-3].rpartition("-")[0],
            **{name: settings.get(name, "") if name in meant else "" for name in COLUMNS},
            "validation": round(100 * summary["validation"]["accuracy"], 2),
            "eigenvalues": " ".join(f"{value:.3g}" for value in eigenvalues),
            "seconds": round(summary["seconds"]),
        }


class Decorrelated(nn.Module):
    """Rows (n, d) -> rows of mean 0 and total covariance I, in training those of the batch, else running ones."""

    mean: Tensor
    covariance: Tensor

    def __init__(self, width: int, momentum: float = 0.4) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("covariance", torch.eye(width))

    def forward(self, rows: Tensor) -> Tensor:
        mean, covariance = self.mean, self.covariance
        if self.training:
            mean = rows.mean(0)
            centred = rows - mean
            covariance = centred.T @ centred / len(rows)
            self.mean.lerp_(mean.detach(), self.momentum)
            self.covariance.lerp_(covariance.detach(), self.momentum)
        ridge = 1e-5 * covariance.diagonal().mean() * torch.eye(len(covariance))
        root = torch.linalg.cholesky(covariance + ridge)
        return torch.linalg.solve_triangular(root, (rows - mean).T, upper=False).T


def decorrelated(sample_shape: tuple[int, ...], embedding_dim: int, *, width: float = 1.0) -> FastNet:
    """FastNet whose outputs cannot become copies of each other."""
    network = FastNet(sample_shape, embedding_dim, width=width)
    network.output[-1] = Decorrelated(embedding_dim)
    return network


if __name__ == "__main__":
    main()
