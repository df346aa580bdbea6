"""The encoding of columns, compared with scikit-learn's transformers."""

import numpy as np
import pytest
from pydantic import ValidationError
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from deeplda.data.table_encoding import CategoryEncoding, DateEncoding, NumberEncoding, TableEncoder, Texts
from deeplda.data.table_statistics import TableStatistics

COLOURS = ("red", "green", "blue")


def fitted(**columns):
    kinds = {name: "text" if isinstance(values, Texts) else "number" for name, values in columns.items()}
    statistics = TableStatistics(kinds)
    statistics.update(columns)
    return statistics.encoder()


def texts(*values):
    words = tuple(dict.fromkeys(value for value in values if value is not None))
    return Texts(np.array([-1 if value is None else words.index(value) for value in values]), words)


def test_numbers_are_imputed_with_the_mean_and_standardised():
    values = np.random.default_rng(0).normal(1e6, 3, 50)
    values[::7] = np.nan
    encoded = fitted(x=values).transform({"x": values})
    imputed = SimpleImputer(add_indicator=True).fit_transform(values[:, None])
    scale = StandardScaler().fit(values[~np.isnan(values), None])
    np.testing.assert_allclose(encoded[:, 0], scale.transform(imputed[:, :1])[:, 0], atol=1e-5)
    np.testing.assert_array_equal(encoded[:, 1], imputed[:, 1])
    assert encoded.dtype == np.float32


def test_a_missing_value_that_training_did_not_have_is_the_mean():
    encoder = fitted(x=np.arange(0, 10.5, 0.5), c=texts("a", "b", *"ab" * 3))
    found = encoder.transform({"x": np.array([np.nan, 5.0]), "c": texts(None, "a")})
    np.testing.assert_array_equal(found, [[0, 0, 0], [0, 1, 0]])


def test_numbers_far_from_the_mean_are_clipped():
    encoder = fitted(x=np.array([0.0, 0.5] * 10))
    np.testing.assert_array_equal(encoder.transform({"x": np.array([1e100, -1e100])}), [[10], [-10]])


@pytest.mark.parametrize("values", [[1e100, -1e100, 0.5], [1e-200, 2e-200, 3e-200], [0.1] * 4 + [np.nan]])
def test_extreme_numbers_give_finite_encodings(values):
    column = np.array(values * 3)
    assert np.isfinite(fitted(x=column).transform({"x": column})).all()


def test_categories_are_those_of_a_one_hot_encoder():
    rng = np.random.default_rng(0)
    column = rng.choice(COLOURS, 40).tolist()
    encoded = fitted(c=texts(*column)).transform({"c": texts(*column, "unseen")})
    expected = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(np.array(column)[:, None])
    np.testing.assert_array_equal(encoded, expected.transform(np.array([*column, "unseen"])[:, None]))


def test_rare_and_unseen_categories_share_an_output():
    common = [f"{number:02d}" for number in range(60) for _ in range(2 + number)]
    encoder = fitted(c=texts(*common, "once"))
    encoded = encoder.transform({"c": texts("59", "10", "00", "once", "unseen")})
    assert encoder.outputs[0] == "c = 10"
    assert encoder.outputs[-2:] == ("c = 59", "c is another text")
    assert encoded.shape == (5, 51)
    assert encoded.argmax(1).tolist() == [49, 0, 50, 50, 50]
    assert encoded.sum(1).tolist() == [1] * 5


def test_dates_have_a_trend_and_a_place_in_year_week_and_day():
    days = np.array([0.0, 7.25, 365.2425, np.nan])  # 1 January 1970 was a Thursday
    encoding = DateEncoding(name="d", mean=0, deviation=365.2425, cycles=("year", "week", "day"), missing=True)
    encoder = TableEncoder(columns=(encoding,))
    trend, *waves, missing = encoder.transform({"d": days}).T
    np.testing.assert_allclose(trend, [0, 7.25 / 365.2425, 1, 0], atol=1e-6)
    np.testing.assert_array_equal(missing, [0, 0, 0, 1])
    np.testing.assert_allclose(np.array(waves)[:, 0], [0, 1, 0, 1, 0, 1], atol=1e-6)
    np.testing.assert_allclose(np.array(waves)[:2, 2], [0, 1], atol=1e-6)
    quarter_of_a_day = 2 * np.pi * 0.25 / 7
    found = np.array(waves)[2:, 1]
    np.testing.assert_allclose(found, [np.sin(quarter_of_a_day), np.cos(quarter_of_a_day), 1, 0], atol=1e-6)
    np.testing.assert_array_equal(np.array(waves)[:, 3], 0)
    assert len(encoder.outputs) == 8


def test_the_encoding_survives_json():
    columns = {"x": np.array([1.0, np.nan, 2.5] * 5), "c": texts(*"abc" * 4, None, "é\n", "é\n")}
    encoder = fitted(**columns)
    again = TableEncoder.model_validate_json(encoder.model_dump_json())
    assert again == encoder
    np.testing.assert_array_equal(again.transform(columns), encoder.transform(columns))


def test_the_description_numbers_the_outputs():
    encoder = fitted(x=np.array([1.0, np.nan, 2.5] * 5), c=texts(*"abc" * 5))
    first, second = encoder.describe()
    assert first.startswith("0 to 1: x (number), (x - 1.75) / 0.75, 0 if missing; 1 is 1")
    assert second.startswith("2 to 4: c (text), ")
    assert encoder.outputs == ("x", "x is missing", "c = a", "c = b", "c = c")


@pytest.mark.parametrize(
    "columns",
    [
        (),
        ({"kind": "number", "name": "x", "mean": "nan", "deviation": 1, "missing": False},),
        ({"kind": "number", "name": "x", "mean": 0, "deviation": 0, "missing": False},),
        ({"kind": "text", "name": "x", "words": ["a", "a"], "other": False, "missing": False},),
        ({"kind": "text", "name": "x", "words": [], "other": True, "missing": False},),
        ({"kind": "date", "name": "x", "mean": 0, "deviation": 1, "cycles": ["month"], "missing": False},),
        ({"kind": "number", "name": "x", "mean": 0, "deviation": 1, "missing": False},) * 2,
        ({"kind": "pickle", "name": "x"},),
    ],
)
def test_a_contradictory_description_is_rejected(columns):
    with pytest.raises(ValidationError):
        TableEncoder.model_validate({"columns": columns})


def test_booleans_are_numbers():
    encoding = NumberEncoding(name="b", kind="boolean", mean=0.25, deviation=0.5, missing=False)
    category = CategoryEncoding(name="c", words=("x",), other=False, missing=True)
    encoder = TableEncoder(columns=(encoding, category))
    found = encoder.transform({"b": np.array([1.0, 0.0]), "c": texts("x", None)})
    np.testing.assert_array_equal(found, [[1.5, 1, 0], [-0.5, 0, 1]])
