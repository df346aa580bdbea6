"""A folder of images that grows: evaluate the old run, continue from it, or train anew?

    python benchmarks/growing_folder.py [DATA] [--images 3000] [--held-out 2000] [--epochs 12] [--seeds 1] [--output F]

For each seed, images of DATA are written as PNG files: 80 % of `--images`, without one class. The run "old" is trained
on this folder. Then the other 20 % and the class left out are added. The old run is evaluated as it is, continued with
`train --start-from`, and compared with training anew; the last two with all epochs and with a third of them. Every run
is scored on its own test part and on `--held-out` further images, which none of the runs has. The column "trained on by
old" counts the images of a run's test part that the old run was trained on, by the content hashes in split.jsonl.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deeplda.data import Part, load_data
from deeplda.sampling import stratified_sample

FIRST = 0.8
SETTINGS = ("--recipe", "quick", "--batch-size", "200")


def main() -> None:
    parser = argparse.ArgumentParser(description="Evaluate, continue or train anew after a folder of images has grown.")
    parser.add_argument("data", nargs="?", default="cifar10")
    parser.add_argument("--images", type=int, default=3_000)
    parser.add_argument("--held-out", type=int, default=2_000)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--output", type=Path, help="a CSV file for every run")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as home:
            rows += measured(Path(home), options, seed)
    if options.output:
        with options.output.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def measured(home: Path, options: argparse.Namespace, seed: int) -> list[dict[str, object]]:
    """Train and score all runs of one seed in the folder `home`."""
    data = load_data(options.data)
    added_class = seed % len(data.class_names)
    photos = data.train.take(stratified_sample(data.train.labels, options.images, seed))
    held_out = data.test.take(stratified_sample(data.test.labels, options.held_out, seed))
    is_first = np.random.default_rng(seed).permutation(len(photos)) < FIRST * len(photos)
    is_first &= photos.labels != added_class
    write_images(home / "held-out", held_out, data.class_names, np.ones(len(held_out), dtype=bool))
    rows: list[dict[str, object]] = []

    def score(run: str, grown: str, seconds: float | None = None) -> None:
        own, other = deeplda(home, "evaluate", run), deeplda(home, "evaluate", run, "held-out")
        seen = len(parts(home / run)["test"] & trained(home / "old"))
        rows.append({"run": run, "folder": grown, "seed": seed, "seconds": seconds, "test images": own["n"]})
        rows[-1] |= {"test": round(own["accuracy"], 4), "trained on by old": seen}
        rows[-1] |= held_out_scores(other, data.class_names[added_class])
        print("  ".join(f"{name}: {value}" for name, value in rows[-1].items()), flush=True)

    def train(run: str, *options: object) -> float:
        return round(deeplda(home, "train", "photos", *options, "--seed", seed, "--run", run)["seconds"], 1)

    write_images(home / "photos", photos, data.class_names, is_first)
    score("old", "old", train("old", *SETTINGS, "--epochs", options.epochs))
    write_images(home / "photos", photos, data.class_names, ~is_first)
    score("old", "grown")
    for epochs in (options.epochs, options.epochs // 3):
        for name, start in (("continued", ("--start-from", "old")), ("anew", SETTINGS)):
            run = f"{name}-{epochs}"
            score(run, "grown", train(run, *start, "--epochs", epochs))
    return rows


def held_out_scores(found: dict[str, Any], added: str) -> dict[str, float | None]:
    """Return the accuracy on held-out images of all classes, of the old classes, and of the class that was added.

    A run that does not know the added class has only the second one.
    """
    confusion, names = np.array(found["confusion"]), np.array(found["class_names"])
    sizes, hits = confusion.sum(axis=1), np.diagonal(confusion)
    is_old = names != added

    def accuracy(classes: NDArray[np.bool_]) -> float | None:
        return round(float(hits[classes].sum() / sizes[classes].sum()), 4) if classes.any() else None

    return {
        "held out": accuracy(is_old | ~is_old) if not is_old.all() else None,
        "held out, old classes": accuracy(is_old),
        "held out, added class": accuracy(~is_old),
    }


def write_images(folder: Path, part: Part, class_names: tuple[str, ...], chosen: NDArray[np.bool_]) -> None:
    for place in np.flatnonzero(chosen).tolist():
        own = folder / class_names[part.labels[place]]
        own.mkdir(parents=True, exist_ok=True)
        Image.fromarray(part.inputs[place].transpose(1, 2, 0).squeeze()).save(own / f"{place}.png")


def deeplda(home: Path, command: str, *arguments: object) -> dict[str, Any]:
    """Run a command in `home`, and return the JSON object that it prints."""
    words = [sys.executable, "-m", "deeplda", command, *map(str, arguments), "--json"]
    done = subprocess.run(words, cwd=home, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def parts(run: Path) -> dict[str, set[str]]:
    """Return the content hashes of the images in each part of a run's split."""
    lines = [json.loads(line) for line in (run / "split.jsonl").read_text().splitlines()[1:]]
    return {part: {line["hash"] for line in lines if line["part"] == part} for part in ("train", "val", "test")}


def trained(run: Path) -> set[str]:
    """Return the content hashes of the images that a run was trained on or that selected its epoch."""
    return parts(run)["train"] | parts(run)["val"]


if __name__ == "__main__":
    main()
