"""The charts of the page show the values they are given."""

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeplda.report.curves import Curve, eigenvalue_curves, page_chart

# Each example draws a chart, which takes some hundredths of a second.
QUICK = settings(max_examples=25, deadline=None)


def chart(values, **options):
    return page_chart([Curve("loss", range(1, len(values) + 1), values)], label="loss", **options)


def dots(svg):
    return [(float(x), float(y)) for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', svg)]


@QUICK
@given(st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=40))
def test_points_are_in_order_and_within_the_drawing(values):
    found = dots(chart(values))
    assert len(found) == len(values)
    assert [x for x, _ in found] == sorted(x for x, _ in found)
    assert all(46 <= x <= 330 and 12 <= y <= 190 for x, y in found)
    highest, lowest = max(range(len(values)), key=values.__getitem__), min(range(len(values)), key=values.__getitem__)
    assert found[highest][1] == min(y for _, y in found)
    assert found[lowest][1] == max(y for _, y in found)


@QUICK
@given(st.lists(st.floats(), min_size=1, max_size=5), st.booleans())
def test_any_numbers_can_be_drawn(values, logarithmic):
    assert "nan" not in chart(values, logarithmic=logarithmic, kept=1)


def test_values_that_are_not_finite_are_gaps():
    svg = chart([1.0, 2.0, math.nan, 4.0, math.inf])
    (path,) = re.findall(r'<g class="line k0"><path d="([^"]*)"', svg)
    assert re.sub(r"[^ML]", "", path) == "MLM"
    assert len(dots(svg)) == 3
    assert "epoch 4: 4<" in svg


def test_the_page_sets_colours_and_fonts():
    svg = chart([1.0, 2.0], kept=2)
    assert "style" not in svg
    assert "#" not in svg
    assert svg.count('class="kept"') == 1
    assert "tick middle" in svg
    assert "tick end" in svg
    assert "grid" in svg
    assert ">epoch</text>" in svg


def test_many_epochs_have_no_dots_and_names_are_escaped():
    assert not dots(chart([1.0] * 100))
    svg = page_chart([Curve("<b>", [1], [1.0])], label='"<i>', shares=True)
    assert "<b>" not in svg
    assert "<i>" not in svg
    assert "100.00 %" in svg


def test_lost_epochs_keep_their_place():
    curve = Curve("loss", [1, 2, 10], [1.0, 2.0, 3.0])
    (first, second, last) = [x for x, _ in dots(page_chart([curve], label="loss"))]
    assert last - second == pytest.approx(8 * (second - first), abs=1)


def test_each_eigenvalue_is_a_curve_and_the_smallest_stands_out():
    curves = eigenvalue_curves([1, 2], [[0.1, 1.0], [0.2, 2.0, 3.0]])
    assert [curve.name for curve in curves] == ["smallest eigenvalue", "eigenvalue 2 of 3", "eigenvalue 3 of 3"]
    assert [curve.colour is None for curve in curves] == [False, True, True]
    svg = page_chart(curves, label="eigenvalues", logarithmic=True)
    assert svg.count('class="line others"') == 2
    assert len(dots(svg)) == 5
