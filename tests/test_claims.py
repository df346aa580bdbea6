"""The measures of benchmarks/claims.py."""

import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def claims(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    import claims

    yield claims
    del sys.modules["claims"]


def test_stability_counts_dimensions_and_pairs(claims):
    runs = [np.array([0, 1, 2, -1]), np.array([0, 2, 2, -1]), np.array([0, 1, 1, -1])]
    same = sum(a[j] == b[j] and a[j] >= 0 for j in range(4) for a, b in ((runs[0], runs[1]), (runs[0], runs[2]))) + 1
    assert claims.stability(runs) == pytest.approx(same / 12)
    assert claims.stability([np.arange(5)] * 3) == 1


def test_agreement_of_each_pair(claims):
    decisions = {"a": np.array([0, 1, 2, 2]), "b": np.array([0, 1, 1, 2]), "c": np.array([1, 1, 1, 2])}
    assert claims.agreement(decisions) == {("a", "b"): 0.75, ("a", "c"): 0.5, ("b", "c"): 0.75}
