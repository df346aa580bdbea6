"""Charts show what they are given."""

import math
import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from deeplda.report.charts import Line, line_chart, nice_steps

NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False)


def dots(svg):
    return [(float(x), float(y)) for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', svg)]


@given(NUMBERS, st.floats(1e-3, 1e6))
def test_steps_are_even_round_and_within(low, span):
    high = low + span
    steps = nice_steps(low, high)
    assert 2 <= len(steps) <= 6
    assert all(low - 1e-6 * span <= step <= high + 1e-6 * span for step in steps)
    gaps = {float(f"{b - a:.2g}") for a, b in pairwise(steps)}
    assert len(gaps) == 1
    assert float(f"{gaps.pop():.1e}"[:3].rstrip(".")) in (1, 2, 2.5, 5)


@given(st.lists(NUMBERS, min_size=1, max_size=40))
def test_points_stand_in_order_within_the_drawing(values):
    found = dots(line_chart([Line(values, "k0", "loss")], words="loss"))
    assert len(found) == len(values)
    assert [x for x, _ in found] == sorted(x for x, _ in found)
    assert all(46 <= x <= 330 and 12 <= y <= 190 for x, y in found)
    highest, lowest = max(range(len(values)), key=values.__getitem__), min(range(len(values)), key=values.__getitem__)
    assert found[highest][1] == min(y for _, y in found)
    assert found[lowest][1] == max(y for _, y in found)


def test_what_is_not_finite_is_a_gap():
    svg = line_chart([Line([1.0, 2.0, math.nan, 4.0, math.inf], "k0", "loss")], words="loss")
    (path,) = re.findall(r'<path d="([^"]*)"', svg)
    assert re.sub(r"[^ML]", "", path) == "MLM"
    assert len(dots(svg)) == 3
    assert "nan" not in svg


def test_nothing_finite_at_all_is_still_a_chart():
    assert "nan" not in line_chart([Line([math.nan], "k0", "loss")], words="loss")


def test_many_epochs_go_without_dots_and_names_are_escaped():
    assert not dots(line_chart([Line([1.0] * 100, "k0", "loss")], words="loss"))
    svg = line_chart([Line([1.0], "k0", "<b>")], words='"<i>', percent=True)
    assert "<b>" not in svg
    assert "<i>" not in svg
    assert "100 %" in svg
