"""A folder of STL-10 photos, some of them in the wrong class folder, to try `deeplda audit` on.

    python benchmarks/planted_photos.py STL10_BINARY FOLDER

STL10_BINARY is the unpacked folder `stl10_binary`. FOLDER/photos gets 60 training images each of airplanes, cats, ships
and trucks, of which 12 are in a wrong class folder: FOLDER/planted.csv lists them. FOLDER/heldout gets 150 test images
of each of these classes, and FOLDER/unknown 60 test images each of birds and horses.
"""

from __future__ import annotations

import argparse
import csv
import random
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

KNOWN, UNKNOWN = ("airplane", "cat", "ship", "truck"), ("bird", "horse")
PHOTOS, PLANTED, HELD_OUT, SEED = 60, 12, 150, 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, metavar="STL10_BINARY")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    write_photos(arguments.source, arguments.folder)


def write_photos(source: Path, folder: Path) -> None:
    """Write the images and the list of those in a wrong folder. No name of a file tells the class."""
    names = (source / "class_names.txt").read_text().split()
    rng, choice = np.random.default_rng(SEED), random.Random(SEED)
    images, labels = _read(source, "train")
    chosen = [(name, int(i)) for name in KNOWN for i in rng.permutation(_places(labels, names, name))[:PHOTOS]]
    wrong = {
        place: choice.choice([name for name in KNOWN if name != chosen[place][0]])
        for place in choice.sample(range(len(chosen)), PLANTED)
    }
    rows = []
    for place, (name, i) in enumerate(chosen):
        given = wrong.get(place, name)
        _write(images[i], folder / "photos" / given / f"photo_{i:04}.jpg")
        if place in wrong:
            rows.append((f"{given}/photo_{i:04}.jpg", name, given))
    with (folder / "planted.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("file", "true", "given"), *rows])
    images, labels = _read(source, "test")
    for name in KNOWN:
        for i in rng.permutation(_places(labels, names, name))[:HELD_OUT]:
            _write(images[i], folder / "heldout" / name / f"{i:04}.jpg")
    for name in UNKNOWN:
        for i in _places(labels, names, name)[:PHOTOS]:
            _write(images[i], folder / "unknown" / name / f"{i:04}.jpg")


def _read(source: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return images, N x 96 x 96 x 3, and labels from 1 to 10. The file stores each channel by columns."""
    images = np.fromfile(source / f"{part}_X.bin", np.uint8).reshape(-1, 3, 96, 96)
    return images.transpose(0, 3, 2, 1), np.fromfile(source / f"{part}_y.bin", np.uint8)


def _places(labels: NDArray[np.uint8], names: list[str], name: str) -> NDArray[np.intp]:
    return np.flatnonzero(labels == names.index(name) + 1)


def _write(image: NDArray[np.uint8], file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(file, quality=95)


if __name__ == "__main__":
    main()
