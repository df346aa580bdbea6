"""Arrow arrays as values of columns, and the kinds of columns of texts."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from deeplda.data.table_columns import KindFinder, kind_of, values_of
from deeplda.errors import InputError

NOON = datetime(1970, 1, 3, 12)


@pytest.mark.parametrize(
    ("array", "kind", "expected"),
    [
        (pa.array([1, None, -3], pa.int8()), "number", [1, np.nan, -3]),
        (pa.array([2**64 - 1], pa.uint64()), "number", [2.0**64]),
        (pa.array([1.5, np.nan, np.inf]), "number", [1.5, np.nan, np.nan]),
        (pa.array([np.float16(0.5), None], pa.float16()), "number", [0.5, np.nan]),
        (pa.array([Decimal("1.25"), None]), "number", [1.25, np.nan]),
        (pa.array([timedelta(minutes=1)]), "number", [60]),
        (pa.array([time(0, 1)]), "number", [60]),
        (pa.array([True, None, False]), "boolean", [1, np.nan, 0]),
        (pa.array([date(1970, 1, 2), None]), "date", [1, np.nan]),
        (pa.array([NOON], pa.timestamp("ns")), "date", [2.5]),
        (pa.array([NOON], pa.timestamp("s")), "date", [2.5]),
        (pa.array([NOON.replace(tzinfo=UTC)], pa.timestamp("us", "Europe/Vienna")), "date", [2.5]),
    ],
)
def test_types_have_a_kind_and_numbers(array, kind, expected):
    assert kind_of(array.type) == kind
    np.testing.assert_array_equal(values_of(array, kind, "x"), expected)


@pytest.mark.parametrize(
    ("kind", "texts", "expected"),
    [
        ("number", ["1", " 2.5 ", "-1e3", "NA", "", "1e400"], [1, 2.5, -1000, np.nan, np.nan, np.nan]),
        ("boolean", ["true", "False", "?", "TRUE"], [1, 0, np.nan, 1]),
        ("date", ["1970-01-02", "1970-01-03 12:00", "1970-01-03T12:00:00", "NaT"], [1, 2.5, 2.5, np.nan]),
        ("date", ["1970-01-03T12:00:00Z", "1970-01-03 13:00:00+01:00"], [2.5, 2.5]),
    ],
)
def test_texts_are_read_as_their_kind(kind, texts, expected):
    finder = KindFinder(["x"])
    finder.update({"x": pa.array(texts)})
    assert finder.kinds() == {"x": kind}
    np.testing.assert_array_equal(values_of(pa.array(texts), kind, "x"), expected)


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["b", None, "a", " b", "n/a"]),
        pa.array(["b", None, "a", "b", None]).dictionary_encode(),
        pa.array(["b", None, "a", "b", None], pa.string_view()),
    ],
)
def test_texts_are_trimmed_and_numbered(array):
    assert kind_of(array.type) == "text"
    found = values_of(array, "text", "x")
    assert [None if code < 0 else found.words[code] for code in found.codes] == ["b", None, "a", "b", None]


@pytest.mark.parametrize("array", [pa.array([3, 1]), pa.array([3.0, 1.0]), pa.array([3, 1]).dictionary_encode()])
def test_numbers_as_categories_are_their_digits(array):
    assert values_of(array, "text", "x").words == ("3", "1")


@pytest.mark.parametrize("split", range(5))
def test_the_kind_does_not_depend_on_the_order_of_the_rows(split):
    rows = [["1", "", "true", "2020-01-01"]] * 4
    rows.insert(split, ["1.5", "x", "false", "01/02/2020"])
    finder = KindFinder(list("abcd"))
    for start in (0, 2, 4):
        columns = list(zip(*rows[start : start + 2], strict=True))
        finder.update({name: pa.array(cells) for name, cells in zip("abcd", columns, strict=True)})
    assert finder.kinds() == {"a": "number", "b": "text", "c": "boolean", "d": "text"}


@pytest.mark.parametrize(
    "type_", [pa.list_(pa.int8()), pa.large_list(pa.float64()), pa.list_(pa.float32(), 4), pa.list_(pa.float16())]
)
def test_lists_of_numbers_are_vectors(type_):
    assert kind_of(type_) == "vector"


@pytest.mark.parametrize(
    "type_", [pa.list_(pa.string()), pa.struct({"a": pa.int8()}), pa.binary(), pa.map_(pa.int8(), pa.int8())]
)
def test_other_types_have_no_kind(type_):
    assert kind_of(type_) is None
    assert kind_of(pa.dictionary(pa.int8(), pa.binary())) is None


@pytest.mark.parametrize(
    ("array", "kind", "sentence"),
    [
        (pa.array(["1", "two"]), "number", "column 'x' has the text 'two' in row 2, need numbers"),
        (pa.array(["maybe"]), "boolean", "column 'x' has the text 'maybe' in row 1, need true or false"),
        (
            pa.array(["31.12.2024"]),
            "date",
            "column 'x' has the text '31.12.2024' in row 1, need dates such as 2024-12-31",
        ),
        (pa.array(["2024-12-30", "soon", "2024-12-31"]), "date", "column 'x' has the text 'soon' in row 2, need dates"),
        (
            pa.array(["2024-12-30T00:00Z", "soon", "2024-12-31T00:00Z"]),
            "date",
            "column 'x' has the text 'soon' in row 2, need dates",
        ),
        (
            pa.array(["2024-12-30"] * 9 + ["2024-12-31T00:00Z"] * 9),
            "date",
            "column 'x' has the text '.*' in row 10, need dates",
        ),
        (pa.array([5]), "date", "column 'x' has values of type int64, need dates"),
        (pa.array([date(2020, 1, 1)]), "number", "column 'x' has values of type date32"),
        (pa.array([[1]]), "text", "column 'x' has values of type list<.*>, need strings"),
        (pa.array(["a\nb" * 999]), "number", r"column 'x' has the text 'a\\nb"),
    ],
)
def test_values_of_another_kind_are_named(array, kind, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        values_of(array, kind, "x")
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("place", [0, 1, 499, 998, 999])
def test_the_row_of_a_value_of_another_kind_is_found(place):
    texts = [str(number) for number in range(1000)]
    texts[place] = texts[-1] = "old"
    with pytest.raises(InputError, match=f"the text 'old' in row {place + 5001:,}, need numbers"):
        values_of(pa.array(texts), "number", "x", 5001)


def test_a_column_without_values_fits_every_kind():
    for kind in ("number", "boolean", "date"):
        assert np.isnan(values_of(pa.nulls(2), kind, "x")).all()
    assert values_of(pa.nulls(2), "text", "x").codes.tolist() == [-1, -1]
