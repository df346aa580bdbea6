"""The part of the page about probabilities."""

import re

import numpy as np
import pytest
from trained_runs import row_set, train_run

from deeplda.formatting import wilson_interval
from deeplda.predictors.calibration import ReliabilityBin
from deeplda.report.record import inspect_run
from deeplda.report.reliability import probability_section, reliability_chart


def test_dots_lie_where_accuracy_and_confidence_say():
    bins = [ReliabilityBin(4, 0.55, 0.5), ReliabilityBin(100, 0.95, 1.0)]
    chart = reliability_chart(bins)
    edges = re.search(r'd="M(\d+) (\d+)L(\d+) (\d+)" class="kept"', chart)
    left, bottom, right, top = map(float, edges.groups())
    dots = re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', chart)
    for found, (x, y) in zip(bins, dots, strict=True):
        assert (float(x) - left) / (right - left) == pytest.approx(found.confidence, abs=1e-3)
        assert (bottom - float(y)) / (bottom - top) == pytest.approx(found.accuracy, abs=1e-3)
    low, high = re.search(r'd="M[\d.]+ ([\d.]+)V([\d.]+)"', chart).groups()
    ends = [(bottom - float(end)) / (bottom - top) for end in (low, high)]
    np.testing.assert_allclose(ends, wilson_interval(2, 4), atol=1e-3)
    assert "4 predictions: 55.0 % probability, 50.0 % right" in chart


def test_the_section_has_the_scores_of_the_summary(tmp_path):
    run = inspect_run(train_run(tmp_path / "run", row_set(tmp_path / "rows.npz", ("a", "b", "c"))))
    section, scores = probability_section(run), run.scores.predictors["hyperplanes"]
    assert f"{scores.log_loss:.4f}" in section
    assert f"{scores.brier:.4f}" in section
    assert f"{scores.ece:.4f}" in section
    assert "1.099 for a uniform guess" in section
    assert f"calibrated on {run.sizes['validation']} validation samples" in section
    assert scores.log_loss < 1.099
