"""Compare the settings of a finished sweep with an interval that covers the seeds and the test images.

    python benchmarks/paired.py SWEEP --against objective=cce

Each trial's model is applied to the test images, so the sweep's folder must still have its trials. A trial belongs to
the group of its settings without the seed. The table of `deeplda table` has intervals over seeds alone, which say how
other seeds would do on the same test images. A claim about the method should hold for other test images too.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

from deeplda import load
from deeplda.experiments.sweep_definition import SweepDefinition
from deeplda.training.config import RunConfig
from deeplda.training.preparation import read_data
from deeplda.training.run_folder import recorded_summary
from deeplda.views import Views

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean difference of scores with its 95 % interval; for accuracies, in percentage points."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.2f} ({self.low:+.2f} to {self.high:+.2f})"


def interval(ours: NDArray[np.bool_], theirs: NDArray[np.bool_]) -> Interval:
    """Return the difference of two accuracies, given which images (columns) each seed (row) classifies correctly.

    Seeds and images are both random. The variance of the mean over S seeds and N images is estimated by s_seeds^2 / S +
    s_images^2 / N, from the variances of the row means and of the column means. Both contain the noise of single
    decisions, which is therefore counted twice: the interval is slightly too wide rather than too narrow. The degrees
    of freedom are Satterthwaite's.
    """
    difference = ours.astype(float) - theirs.astype(float)
    seeds, images = difference.shape
    parts = np.array([difference.mean(1).var(ddof=1) / seeds, difference.mean(0).var(ddof=1) / images])
    total = parts.sum()
    freedom = total**2 / (parts**2 / [seeds - 1, images - 1]).sum() if total else np.inf
    half = t.ppf((1 + CONFIDENCE) / 2, freedom) * np.sqrt(total)
    mean = difference.mean()
    return Interval(100 * mean, 100 * (mean - half), 100 * (mean + half))


def over_splits(differences: NDArray[np.float64], ratio: float) -> Interval:
    """Return the mean difference of scores over random splits with its interval, in the unit of the differences.

    The training sets of the splits overlap, so the variance of the mean is larger than s^2 / J for J splits. Nadeau and
    Bengio (2003) estimate it by (1 / J + n_test / n_train) s^2; `ratio` is n_test / n_train.
    """
    count, mean = len(differences), float(differences.mean())
    variance = (1 / count + ratio) * differences.var(ddof=1)
    half = float(t.ppf((1 + CONFIDENCE) / 2, count - 1) * np.sqrt(variance))
    return Interval(mean, mean - half, mean + half)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=Path)
    parser.add_argument("--against", required=True, help="a setting of the group to compare with: objective=cce")
    parser.add_argument("--tta", choices=("mirror", "views"), help="average over views of each image")
    options = parser.parse_args()
    groups = correct_by_group(options.sweep, options.tta)
    theirs = next(name for name in groups if options.against in name.split(", "))
    for name, ours in groups.items():
        seeds = sorted(ours.keys() & groups[theirs].keys())
        accuracies = [100 * ours[seed].mean() for seed in sorted(ours)]
        line = f"{np.mean(accuracies):6.2f} ± {np.std(accuracies, ddof=1):.2f}"
        if name != theirs:
            paired = [np.stack([group[seed] for seed in seeds]) for group in (ours, groups[theirs])]
            line += f"   {interval(*paired)} over {len(seeds)} seeds"
        print(f"{line}   {name}")


def correct_by_group(sweep: Path, tta: Views | None) -> dict[str, dict[int, NDArray[np.bool_]]]:
    """Return, for each group and seed of the finished trials, which test images are classified correctly."""
    groups: dict[str, dict[int, NDArray[np.bool_]]] = defaultdict(dict)
    for trial, own in SweepDefinition.read(sweep / "sweep.toml").trials().items():
        run = sweep / "trials" / trial
        if recorded_summary(run) is None:
            continue
        settings = RunConfig.of(run)
        test = read_data(settings).test
        model = load(run)
        predicted, names = model.predict(test.inputs, tta=tta), np.asarray(model.class_names)
        name = ", ".join(f"{key}={value}" for key, value in own.items() if key != "seed")
        groups[name][settings.seed] = predicted == names[test.labels]
    return groups


if __name__ == "__main__":
    main()
