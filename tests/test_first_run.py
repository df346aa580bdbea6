"""The generated photos, the intervals and the bookkeeping of benchmarks/first_run.py."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.stats import ttest_1samp


@pytest.fixture
def first_run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    import first_run as module  # type: ignore[import-not-found]  # not a package

    found: ModuleType = module
    return found


def test_photos_are_mixed_and_some_labels_are_wrong(first_run: ModuleType, tmp_path: Path) -> None:
    first_run.write_photos(tmp_path, count=200, wrong=0.2)
    files = sorted(tmp_path.rglob("*.*"))
    assert len(files) == 200
    assert {file.suffix for file in files} == {".jpg", ".png", ".webp", ".bmp"}
    sizes = set()
    for file in files:
        with Image.open(file) as image:
            sizes.add(image.size)
    assert len(sizes) > 100
    # The number in a file's name tells its true class.
    wrong = [first_run.SHAPES[int(file.stem) % 4] != file.parent.name for file in files]
    assert 0.1 < np.mean(wrong) < 0.3


def test_the_interval_over_splits_is_wider_than_that_of_independent_runs(first_run: ModuleType) -> None:
    differences = np.array([0.01, 0.03, -0.01, 0.02, 0.04, 0.0, 0.01, 0.02, 0.03, -0.02])
    plain = 100 * np.array(ttest_1samp(differences, 0).confidence_interval(0.95))
    found = first_run.over_splits(differences)
    assert found.mean == pytest.approx(100 * differences.mean())
    # By hand: the test set has 15 % of the images and the training set 70 %, in 10 splits.
    assert found.high - found.low == pytest.approx((plain[1] - plain[0]) * np.sqrt(1 + 10 * 0.15 / 0.7))


def test_the_interval_over_images(first_run: ModuleType) -> None:
    differences = np.random.default_rng(0).choice([-1.0, 0.0, 1.0], 500, p=[0.1, 0.8, 0.1])
    low, high = 100 * np.array(ttest_1samp(differences, 0).confidence_interval(0.95))
    found = first_run.over_images(differences)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_all_commands_run_on_the_first_split_and_the_best_on_all_and_no_row_twice(
    first_run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def run(_folder: Path, options: list[str], _where: Path) -> dict[str, Any]:
        ran.append(options)
        figures = dict.fromkeys(first_run.COLUMNS, 0.5)
        return figures | {"epochs": 7, "training_s": 60.0, "val_accuracy": 0.9 if "quick" in options else 0.8}

    monkeypatch.setattr(first_run, "run", run)
    monkeypatch.setattr(first_run, "equal_epochs", lambda seconds, *_: int(seconds))
    images = first_run.Images("photos", ("--group-by", "x"), {"quick": "--recipe quick", "slow": "--width 2"}, range(2))
    output = tmp_path / "rows.csv"
    for row in first_run.runs(images, tmp_path, tmp_path, output):
        first_run.append_rows(output, first_run.COLUMNS, [row])
    assert [" ".join(options) for options in ran] == [
        "--group-by x --split-seed 0",
        "--group-by x --recipe quick --split-seed 0 --epochs 60",
        "--group-by x --width 2 --split-seed 0 --epochs 60",
        "--group-by x --split-seed 1",
        "--group-by x --recipe quick --split-seed 1 --epochs 7",
    ]
    assert list(first_run.runs(images, tmp_path, tmp_path, output)) == []
    assert "plain - quick (the best by validation), 2 splits: +0.00" in first_run.summary(
        images, first_run.read_rows(output), tmp_path
    )


def test_only_the_chosen_sets_are_summarised(
    first_run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The summary of the others would need their runs."""
    output = tmp_path / "rows.csv"
    figures = dict.fromkeys(first_run.COLUMNS, 0.5)
    for images in first_run.SETS:
        for command in (first_run.PLAIN, *images.by_hand):
            rows = [figures | {"data": images.name, "command": command, "split_seed": split} for split in range(2)]
            first_run.append_rows(output, first_run.COLUMNS, rows)
    monkeypatch.setattr(first_run, "runs", lambda *_: iter(()))
    monkeypatch.setattr(first_run, "make_sets", lambda _: dict.fromkeys([images.name for images in first_run.SETS]))
    monkeypatch.setattr("sys.argv", ["first_run.py", str(tmp_path), "--output", str(output), "--only", "photos"])
    first_run.main()
    printed = capsys.readouterr().out
    assert "photos: command" in printed
    assert "xrays" not in printed
