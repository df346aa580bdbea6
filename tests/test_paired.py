"""The interval over seeds and test images in benchmarks/paired.py."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray


@pytest.fixture
def paired(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    import paired as module  # type: ignore[import-not-found]  # not a package

    found: ModuleType = module
    return found


def decisions(rng: np.random.Generator, images: NDArray[np.float64], seeds: int) -> NDArray[np.bool_]:
    """Draw which images are classified correctly; seeds and images both shift the probability."""
    skill = rng.normal(0, 0.3, (seeds, 1))
    return rng.random((seeds, len(images))) < 1 / (1 + np.exp(-(images + skill)))


def test_interval_covers_the_true_difference_for_new_seeds_and_new_images(paired: ModuleType) -> None:
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(400):
        difficulty = rng.normal(1.5, 1.0, 300)
        # Each method finds other images hard, so the difference depends on which images are drawn.
        ours, theirs = (decisions(rng, difficulty + rng.normal(0, 1.0, 300), seeds=3) for _ in range(2))
        found = paired.interval(ours, theirs)
        covered.append(found.low <= 0 <= found.high)
    assert np.mean(covered) >= 0.94


def test_interval_of_many_seeds_on_the_same_images_does_not_shrink_to_nothing(paired: ModuleType) -> None:
    rng = np.random.default_rng(1)
    difference = rng.random(500) < 0.1
    found = paired.interval(np.tile(~difference, (1000, 1)), np.tile(rng.random(500) >= 0.1, (1000, 1)))
    # By hand: the differences are -1, 0 and 1 for single images, and 500 images are a sample.
    assert found.high - found.low == pytest.approx(100 * 2 * 1.96 * np.sqrt(2 * 0.1 * 0.9 / 500), rel=0.15)
