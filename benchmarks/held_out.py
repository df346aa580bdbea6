"""CIFAR-10 without its test set, for a search that must not see it: 10,000 training images take its place.

    python benchmarks/held_out.py held_out.npz

The file has 39,000 images for training, 1,000 for validation and 10,000 for testing; each part has as many images of
every class.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from deeplda.data import load_data


def main(path: Path) -> None:
    """Write the three parts to an .npz file."""
    data = load_data("cifar10").without_validation()
    rng = np.random.default_rng(0)
    members = [rng.permutation(np.flatnonzero(data.train.labels == label)) for label in range(len(data.class_names))]
    arrays: dict[str, np.ndarray] = {"class_names": np.array(data.class_names)}
    for part, which in {"test": slice(1000), "val": slice(1000, 1100), "train": slice(1100, None)}.items():
        chosen = np.concatenate([places[which] for places in members])
        arrays |= {f"x_{part}": data.train.inputs[chosen], f"y_{part}": data.train.labels[chosen]}
    np.savez(path, **arrays)  # type: ignore[arg-type]  # numpy's stub mistakes the names for options


if __name__ == "__main__":
    main(Path(sys.argv[1]))
