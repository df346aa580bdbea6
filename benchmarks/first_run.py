"""The first run on images of your own: `deeplda train photos/` beside commands with settings given by hand.

    python benchmarks/first_run.py WORK --xrays chest_xray_128 [--data-dir DATA] [--output results/first-run.csv]

Four sets of images, written to the folder WORK unless they are there already: chest X-rays, split by patient; CIFAR-10
as a folder of PNG files; 400 generated photos of four classes, in several sizes and formats and with 3 % wrong labels;
and 300 images from the test set of STL-10 as JPEG files of several sizes, 30 of each class. "plain" is the command
without options. Each other command trains for as many epochs as take the same time as the plain command on the first
split; a short run measures them. Commands by hand on small sets score the validation set as rarely as the plain one.

A row of the CSV file is a run. Rows that are there already are not run again. The best command by hand is the one with
the highest validation accuracy on the first split; only it is run on the others. The difference to it, in points of
test accuracy, has a 95 % interval: over the splits of the small sets, with Nadeau and Bengio's correction for training
sets that overlap, and over the test images of the large ones, which have one run each. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import paired
import torch
from numpy.typing import NDArray
from paired import CONFIDENCE, Interval
from PIL import Image, ImageDraw, ImageFilter
from result_rows import Row, append_rows, matching, read_rows
from scipy.stats import t

from deeplda import load
from deeplda.data import Data, load_data
from deeplda.data.dataset import TEST_SHARE, VAL_SHARE
from deeplda.training.config import RunConfig
from deeplda.training.preparation import read_data
from deeplda.training.run_folder import read_metrics

PLAIN = "plain"
# All commands are run on the first splits, and only the plain one and the best one by hand on the others.
SPLITS, CHOOSING = range(10), 1
COLUMNS = (
    "data", "command", "options", "split_seed", "epochs", "val_accuracy", "test_accuracy", "test_images", "training_s",
    "total_s", "threads",
)  # fmt: skip
SHAPES = ("circle", "cross", "square", "triangle")
FORMATS = ("jpg", "png", "webp", "bmp")
WRONG = 0.03


@dataclass(frozen=True)
class Images:
    """A set of images, the options of every command on it, the commands by hand, and the seeds of the splits."""

    name: str
    options: tuple[str, ...]
    by_hand: dict[str, str]
    splits: range


SMALL = {
    "quick, batch 200": "--image-size 64 --recipe quick --batch-size 200 --evaluate-every 10",
    "fast-cifar10, batch 100": "--image-size 64 --recipe fast-cifar10 --batch-size 100 --evaluate-every 10",
    "convnet-small": "--image-size 64 --network convnet-small --flip --translate 4 --batch-size 50 --evaluate-every 10",
}
SETS = (
    Images("photos", (), SMALL, SPLITS),
    Images("stl10", (), SMALL, SPLITS),
    Images(
        "xrays",
        ("--group-by", r"(person\d+)_"),
        {
            "quick, batch 200": "--image-size 64 --recipe quick --batch-size 200",
            "fast-cifar10, batch 200": "--image-size 64 --recipe fast-cifar10 --batch-size 200",
            "convnet-small": "--image-size 64 --network convnet-small --flip --translate 4 --batch-size 200",
        },
        SPLITS[:1],
    ),
    Images(
        "cifar10",
        (),
        {
            "quick, batch 500": "--recipe quick --batch-size 500",
            "fast-cifar10": "--recipe fast-cifar10",
            "convnet-small": "--network convnet-small --flip --translate 2 --batch-size 500",
        },
        SPLITS[:1],
    ),
)


def main() -> None:
    options = arguments()
    folders = make_sets(options)
    chosen = [images for images in SETS if images.name in options.only]
    for images in chosen:
        for row in runs(images, folders[images.name], options.work, options.output):
            append_rows(options.output, COLUMNS, [row])
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for images in chosen:
        print(summary(images, matching(read_rows(options.output), data=images.name), options.work))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="a folder for the images and the runs")
    parser.add_argument("--xrays", type=Path, help="the folder of chest X-rays, with train/ and test/")
    parser.add_argument("--data-dir", type=Path, help="the folder with CIFAR-10 and STL-10")
    parser.add_argument("--output", type=Path, default=Path("first-run.csv"), help="the CSV file, one row per run")
    names = [images.name for images in SETS]
    parser.add_argument("--only", nargs="*", choices=names, default=names, help="run and summarise these sets only")
    return parser.parse_args()


def make_sets(options: argparse.Namespace) -> dict[str, Path]:
    """Write the sets that are not there yet, and return their folders."""
    writers: dict[str, Callable[[Path], None]] = {
        "photos": write_photos,
        "stl10": lambda folder: write_stl10(folder, load_data("stl10", data_dir=options.data_dir)),
        "cifar10": lambda folder: write_cifar10(folder, load_data("cifar10", data_dir=options.data_dir)),
    }
    if "xrays" in options.only and options.xrays is None:
        raise SystemExit("pass --xrays FOLDER, or leave xrays out with --only")
    folders = {name: options.work / name for name in writers}
    for name in writers.keys() & set(options.only):
        if not folders[name].exists():
            # A set that was written only in part is not taken for a whole one.
            part = options.work / f"{name}.part"
            shutil.rmtree(part, ignore_errors=True)
            writers[name](part)
            part.rename(folders[name])
    return folders | {"xrays": options.xrays}


def write_photos(folder: Path, count: int = 400, seed: int = 0, wrong: float = WRONG) -> None:
    """Write photos of four classes in several sizes and formats, a tenth of them grey, some with a wrong label."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        kind = number % len(SHAPES)
        image = photo(SHAPES[kind], rng)
        if rng.random() < 0.1:
            image = image.convert("L")
        if rng.random() < wrong:
            kind = (kind + int(rng.integers(1, len(SHAPES)))) % len(SHAPES)
        place = folder / SHAPES[kind]
        place.mkdir(parents=True, exist_ok=True)
        image.save(place / f"{number:04}.{FORMATS[int(rng.integers(len(FORMATS)))]}")


def photo(shape: str, rng: np.random.Generator) -> Image.Image:
    """Return an image of one of the shapes or a star; its size, background, clutter, blur and all else are random."""
    width, height = rng.integers(72, 400, 2).tolist()
    coarse = rng.integers(0, 256, (*rng.integers(2, 7, 2), 3)).astype(np.uint8)
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    drawing = ImageDraw.Draw(image)
    for _ in range(rng.integers(3, 9)):
        ends = rng.uniform(0, 1, 4) * (width, height, width, height)
        drawing.line(ends.tolist(), fill=colour(rng), width=int(rng.integers(1, 5)))
    radius = min(width, height) * rng.uniform(0.15, 0.38)
    x, y = (rng.uniform(radius, side - radius) for side in (width, height))
    corners = {"circle": 40, "cross": 12, "square": 4, "triangle": 3, "star": 10}[shape]
    turn = rng.uniform(0, 2 * math.pi)
    # Every third corner of a cross and every second one of a star points inwards.
    inwards = {"cross": 3, "star": 2}.get(shape)
    radii = [0.45 if inwards and corner % inwards == 0 else 1.0 for corner in range(corners)]
    angles = [turn + 2 * math.pi * corner / corners for corner in range(corners)]
    outline = [(x + radius * r * math.cos(a), y + radius * r * math.sin(a)) for r, a in zip(radii, angles, strict=True)]
    drawing.polygon(outline, fill=colour(rng))
    image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.5)))
    noisy = np.asarray(image) + rng.normal(0, rng.uniform(5, 30), (height, width, 3))
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def colour(rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(rng.integers(0, 256, 3).tolist())


def write_stl10(folder: Path, data: Data, each: int = 30) -> None:
    """Write some test images of every class as JPEG files, with sides of 64 to 192 pixels."""
    rng = np.random.default_rng(0)
    for label, name in enumerate(data.class_names):
        place = folder / name
        place.mkdir(parents=True)
        for index in rng.permutation(np.flatnonzero(data.test.labels == label))[:each]:
            image = Image.fromarray(data.test.inputs[index].transpose(1, 2, 0))
            image.resize(tuple(rng.integers(64, 193, 2).tolist())).save(place / f"{index:04}.jpg", quality=90)


def write_cifar10(folder: Path, data: Data) -> None:
    """Write 50,000 PNG files to train/ and 10,000 to test/."""
    for part, samples in (("train", data.without_validation().train), ("test", data.test)):
        for label, name in enumerate(data.class_names):
            (folder / part / name).mkdir(parents=True)
            for index in np.flatnonzero(samples.labels == label):
                image = Image.fromarray(samples.inputs[index].transpose(1, 2, 0))
                image.save(folder / part / name / f"{index:05}.png")


def runs(images: Images, folder: Path, work: Path, output: Path) -> Iterator[Row]:
    """Run the commands that have no row yet, and yield their rows."""
    done = {(row["command"], int(row["split_seed"])): row for row in matching(read_rows(output), data=images.name)}

    def missing(name: str, splits: range) -> Iterator[Row]:
        text = images.by_hand.get(name, "")
        given = [*images.options, *text.split()]
        epochs = next((int(row["epochs"]) for (command, _), row in done.items() if command == name), None)
        for split in splits:
            if (name, split) in done:
                continue
            if name != PLAIN and epochs is None:
                seconds = float(done[PLAIN, images.splits[0]]["training_s"])
                epochs = equal_epochs(seconds, [str(folder), *given], work / "timing" / f"{images.name}-{name}")
            own = [*given, "--split-seed", str(split), *([] if name == PLAIN else ["--epochs", str(epochs)])]
            row = run(folder, own, run_folder(work, images.name, name, split))
            done[name, split] = row | {"data": images.name, "command": name, "options": text, "split_seed": split}
            yield done[name, split]

    tried = images.splits[:CHOOSING]
    yield from missing(PLAIN, tried)
    for name in images.by_hand:
        yield from missing(name, tried)
    best = best_by_hand(images, list(done.values()))
    for split in images.splits[CHOOSING:]:
        yield from missing(PLAIN, range(split, split + 1))
        yield from missing(best, range(split, split + 1))


def best_by_hand(images: Images, rows: Sequence[Row]) -> str:
    """Return the command by hand with the highest mean validation accuracy on the splits that all of them have."""

    def validation(name: str) -> float:
        found = [row for row in rows if row["command"] == name and int(row["split_seed"]) in images.splits[:CHOOSING]]
        return float(np.mean([float(row["val_accuracy"]) for row in found]))

    return max(images.by_hand, key=validation)


def equal_epochs(seconds: float, command: list[str], folder: Path) -> int:
    """Return the number of epochs of a command that takes this time, measured from the first scoring to the second."""
    every = int(command[command.index("--evaluate-every") + 1]) if "--evaluate-every" in command else 1
    if not (folder / "model").exists():
        deeplda("train", *command, "--epochs", str(2 * every), "--run", str(folder), "--resume")
    rows = read_metrics(folder)
    return max(1, round(every * seconds / (rows[2 * every - 1].seconds - rows[every - 1].seconds)))


def run(folder: Path, options: list[str], where: Path) -> Row:
    """Train, and return the figures of the run."""
    start = time.monotonic()
    found = json.loads(deeplda("train", str(folder), *options, "--run", str(where), "--json", "--resume"))
    return {
        "epochs": found["epochs"],
        "val_accuracy": found["validation"]["accuracy"],
        "test_accuracy": found["test"]["accuracy"],
        "test_images": found["test"]["n"],
        "training_s": found["seconds"],
        "total_s": round(time.monotonic() - start, 1),
        "threads": torch.get_num_threads(),
    }


def deeplda(*words: str) -> str:
    print("deeplda", *words, flush=True)
    command = [sys.executable, "-m", "deeplda", *words, "--quiet"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def run_folder(work: Path, data: str, command: str, split: int) -> Path:
    return work / "runs" / f"{data}-{command}-{split}".replace(" ", "-").replace("/", "-")


def summary(images: Images, rows: list[Row], work: Path) -> str:
    """Return a table of the commands, and the difference between the plain one and the best by hand."""
    table: dict[str, dict[int, Row]] = {}
    for row in rows:
        table.setdefault(row["command"], {})[int(row["split_seed"])] = row
    lines = [f"\n{images.name}: command, validation, test, seconds of training, seconds in all, runs"]
    for command, found in table.items():
        means = [
            np.mean([float(row[column]) for row in found.values()])
            for column in ("val_accuracy", "test_accuracy", "training_s", "total_s")
        ]
        figures = f"{100 * means[0]:6.2f} % {100 * means[1]:6.2f} % {means[2]:7.0f} {means[3]:7.0f} {len(found):3}"
        lines.append(f"  {command:24} {figures}")
    if not table.keys() >= {PLAIN, *images.by_hand}:
        return "\n".join(lines)
    best = best_by_hand(images, rows)
    splits = sorted(table[PLAIN].keys() & table[best].keys())
    if len(images.splits) > 1:
        ours, theirs = (
            np.array([float(table[command][split]["test_accuracy"]) for split in splits]) for command in (PLAIN, best)
        )
        found = over_splits(ours - theirs)
    else:
        folders = [run_folder(work, images.name, command, images.splits[0]) for command in (PLAIN, best)]
        ours, theirs = map(correct, folders)
        found = over_images(ours.astype(float) - theirs.astype(float))
    lines.append(f"  plain - {best} (the best by validation), {len(splits)} splits: {found} points")
    return "\n".join(lines)


def over_splits(differences: NDArray[np.float64]) -> Interval:
    """Return the mean difference of accuracies over random splits with its interval, in percentage points."""
    return paired.over_splits(100 * differences, TEST_SHARE / (1 - TEST_SHARE - VAL_SHARE))


def over_images(differences: NDArray[np.float64]) -> Interval:
    """Return the mean difference over test images with its interval, in percentage points."""
    return interval(differences.mean(), differences.var(ddof=1) / len(differences), len(differences) - 1)


def interval(mean: float, variance: float, freedom: int) -> Interval:
    half = t.ppf((1 + CONFIDENCE) / 2, freedom) * math.sqrt(variance)
    return Interval(100 * mean, 100 * (mean - half), 100 * (mean + half))


def correct(run: Path) -> NDArray[np.bool_]:
    """Return which test images a run classifies correctly."""
    test, model = read_data(RunConfig.of(run)).test, load(run)
    right: NDArray[np.bool_] = model.predict(test.inputs) == np.asarray(model.class_names)[test.labels]
    return right


if __name__ == "__main__":
    main()
