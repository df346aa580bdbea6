"""Numbers as people read them."""

import pytest
from scipy.stats import binomtest

from deeplda.formatting import Spread, counted, duration, flops, percent, points, wilson_interval


def test_shares_and_counts():
    assert percent(0.93434) == "93.43 %"
    assert percent(0.5, 0) == "50 %"
    assert points(0.0083) == "+0.83 points"
    assert (counted(1, "trial"), counted(1200, "trial")) == ("1 trial", "1,200 trials")


def test_the_spread_over_seeds():
    assert str(Spread.of([0.5, 0.7])) == "60.00 ± 14.14"
    assert str(Spread.of([0.5])) == "50.00"


@pytest.mark.parametrize(("right", "n"), [(0, 5), (5, 5), (267, 270), (3895, 10_000)])
def test_the_interval_is_wilsons(right, n):
    expected = binomtest(right, n).proportion_ci(method="wilson")
    assert wilson_interval(right, n) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (59.7, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("operations", "text"),
    [(283_110_835_200_000, "0.283 PFLOP"), (5e13, "50 TFLOP"), (2.345e9, "2.35 GFLOP"), (1e6, "0.001 GFLOP")],
)
def test_compute(operations, text):
    assert flops(operations) == text
