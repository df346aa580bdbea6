"""Which columns are used, and statistics that do not depend on the blocks in which rows arrive."""

import numpy as np
import pytest

from deeplda.data.table_encoding import Texts
from deeplda.data.table_statistics import TableStatistics
from deeplda.errors import InputError


def texts(values):
    words, codes = np.unique(np.asarray(values, dtype=str), return_inverse=True)
    return Texts(codes, tuple(words.tolist()))


def encoder(kinds, columns):
    statistics = TableStatistics(kinds)
    statistics.update(columns)
    return statistics.encoder()


def reason(values, kind="number", name="x"):
    """Return why a column is left out, beside another one that is not."""
    other = np.linspace(0, 1, len(values.codes) if isinstance(values, Texts) else len(values))
    return encoder({name: kind, "other": "number"}, {name: values, "other": other}).left_out.get(name)


@pytest.mark.parametrize("sizes", [[100], [1, 99], [50, 0, 50], [10] * 10])
def test_blocks_make_no_difference(sizes):
    rng = np.random.default_rng(0)
    numbers = rng.normal(1e5, 2, 100)
    numbers[::9] = np.nan
    words = rng.choice(list("abcde"), 100)
    statistics, start = TableStatistics({"x": "number", "c": "text"}), 0
    for size in sizes:
        rows = slice(start, start + size)
        statistics.update({"x": numbers[rows], "c": texts(words[rows])})
        start += size
    number, category = statistics.encoder().columns
    assert number.mean == pytest.approx(np.nanmean(numbers), rel=1e-12)
    assert number.deviation == pytest.approx(np.nanstd(numbers), rel=1e-9)
    assert number.missing
    assert category.words == tuple("abcde")
    assert not category.missing


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.arange(100.0), "identifier"),
        (np.random.default_rng(0).permutation(140)[:100].astype(float), "identifier"),
        (texts([f"{number:x}" for number in range(100)]), "identifier"),
        (texts([f"{min(number, 60)}" for number in range(100)]), "identifier"),
        (np.full(100, 7.0), "same in every row"),
        (texts(["yes"] * 100), "same in every row"),
        (np.full(100, np.nan), "empty"),
        (Texts(np.full(100, -1), ()), "empty"),
    ],
)
def test_useless_columns_are_left_out(values, words):
    assert words in reason(values, "text" if isinstance(values, Texts) else "number")


@pytest.mark.parametrize(
    "values",
    [
        np.linspace(0, 1, 100),  # fractions differ in every row without being identifiers
        np.random.default_rng(0).choice(100_000, 100, replace=False).astype(float),  # so do amounts
        np.array([0.0, np.nan] * 50),
        texts([f"{number // 2}" for number in range(100)]),
        texts(list("abcdefghij") * 2),
    ],
)
def test_useful_columns_are_used(values):
    assert reason(values, "text" if isinstance(values, Texts) else "number") is None


@pytest.mark.parametrize("name", ["id", "customer_id", "customerId", "Order ID", "uuid"])
def test_a_column_of_different_whole_numbers_that_is_named_like_an_id_is_left_out(name):
    amounts = np.random.default_rng(0).choice(100_000, 100, replace=False).astype(float)
    assert "identifier" in reason(amounts, name=name)
    assert reason(amounts // 1000, name=name) is None
    assert reason(amounts, name="paid") is None


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__"])
def test_the_index_of_a_data_frame_is_left_out(name):
    assert "index" in reason(np.array([1.5, 2.5] * 50), name=name)


def test_consecutive_days_are_not_identifiers():
    assert reason(np.arange(18_000.0, 18_100.0), "date") is None


def test_only_dates_with_a_time_of_day_have_a_daily_cycle():
    days = np.arange(18_000.0, 18_100.0)
    for values, cycles in ((days, ("year", "week")), (days + 0.5, ("year", "week", "day"))):
        assert encoder({"d": "date"}, {"d": values}).columns[0].cycles == cycles


def test_values_that_cannot_be_encoded_are_left_out():
    found = encoder({"pixels": None, "x": "number"}, {"x": np.array([0.0, 0.5])})
    assert list(found.left_out) == ["pixels"]
    assert found.left_out_note() == "columns left out: pixels (its values are neither numbers, dates nor strings)"


def test_a_table_of_useless_columns_is_rejected():
    with pytest.raises(InputError, match="no column can be used to predict: x"):
        encoder({"x": "number"}, {"x": np.ones(9)})


def test_a_column_of_too_many_texts_does_not_fill_the_memory():
    statistics = TableStatistics({"c": "text", "x": "number"})
    for block in range(12):
        words = tuple(f"{block} {number}" for number in range(10_000))
        twice = np.repeat(np.arange(10_000), 2)
        statistics.update({"c": Texts(twice, words), "x": np.linspace(0, 1, len(twice))})
    assert statistics.encoder().left_out["c"] == "it has more than 100,000 different strings"
    assert len(statistics._columns["c"]._words) <= 110_000


def test_a_long_text_is_never_a_category():
    column = texts(["short"] * 5 + ["x" * 5000] * 5)
    (category,) = encoder({"c": "text"}, {"c": column}).columns
    assert category.words == ("short",)
    assert category.other
