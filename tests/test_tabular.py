"""The summary of benchmarks/tabular.py, from rows that are made up."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def tabular(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    import tabular as module  # type: ignore[import-not-found]  # not a package

    found: ModuleType = module
    return found


def test_the_summary_tells_level_tables_from_lost_ones(tabular: ModuleType) -> None:
    """Ours is 0 ± 1 points from the best other on iris, 5 ± 1 behind on wine and 5 ± 1 ahead on digits."""
    noise = np.array([-1.0, 1.0] * 5)
    rows = [
        {"table": table, "classifier": classifier, "split": split, "accuracy": 90 + gain + spread}
        for table, ours in (("iris", 0), ("wine", -5), ("digits", 5))
        for classifier, gain, wave in ((tabular.OURS, ours, noise), ("LDA", 0, 0 * noise), ("MLP", -9, 0 * noise))
        for split, spread in enumerate(wave)
    ]
    frame = pd.DataFrame(rows).assign(cpu_seconds=1.0, train_rows=70, test_rows=30)
    frame["log_loss"] = 1 - frame["accuracy"] / 100
    text = tabular.summary(frame)
    # A loss is better if it is smaller, so both scores agree.
    assert text.count("At least level on 2 of 3 tables, ahead on ['digits'], behind on ['wine'].") == 2
    # By hand: s = 1.054, variance (1 / 10 + 30 / 70) s^2, and 2.262 is the 97.5 % quantile of t with 9 degrees.
    half = 2.262 * np.sqrt((0.1 + 3 / 7) * 10 / 9)
    assert f"LDA: -5.00 ({-5 - half:+.2f} to {-5 + half:+.2f})" in text


def test_rows_that_exist_are_not_measured_again(
    tabular: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[object] = []
    scores = dict.fromkeys(tabular.COLUMNS[3:], 1.0)
    monkeypatch.setattr(tabular, "fit_and_score", lambda classifier, *_: fitted.append(classifier) or scores)
    options = type("Options", (), {"output": tmp_path / "rows.csv", "folder": tmp_path, "classifiers": ["LDA", "MLP"]})
    for _ in range(2):
        tabular.measure("iris", tabular.BENCHMARK["iris"], options)
    assert len(fitted) == 2 * tabular.SPLITS
    assert pd.read_csv(options.output).groupby("classifier")["split"].apply(list)["MLP"] == list(range(10))
