"""Data frames of pandas and Arrow tables, encoded like files."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from deeplda.data.data_frames import encoded_frame, fit_encoder, needs_encoding
from deeplda.errors import InputError
from missing_modules import run_without


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "number": np.where(np.arange(60) % 7, rng.normal(size=60), np.nan),
            "whole": pd.array(rng.integers(0, 5, 60), dtype="Int64"),
            "category": pd.Categorical(rng.choice(["x", "y"], 60)),
            "text": np.where(np.arange(60) % 5, "u", None),
            "day": pd.date_range("2020-01-01", periods=60).where(np.arange(60) % 9 > 0),
            "flag": rng.random(60) < 0.5,
            "row": range(60),
        },
        index=range(60, 0, -1),
    )


def test_every_kind_of_column_is_encoded(frame):
    encoder = fit_encoder(frame)
    assert encoder.kinds == {
        "number": "number",
        "whole": "number",
        "category": "text",
        "text": "text",
        "day": "date",
        "flag": "boolean",
    }
    assert list(encoder.left_out) == ["row"]
    missing = [column.name for column in encoder.columns if column.missing]
    assert missing == ["number", "text", "day"]


@pytest.mark.parametrize("missing", ["", None])
def test_strings_are_dates_if_all_of_them_are(frame, missing):
    days = frame["day"].astype(object).map(lambda day: missing if pd.isna(day) else f"{day:%Y-%m-%d}")
    encoder = fit_encoder(frame.assign(day=days))
    assert encoder == fit_encoder(frame)
    np.testing.assert_array_equal(encoded_frame(frame.assign(day=days), encoder), encoded_frame(frame, encoder))
    mixed = days.where(np.arange(60) != 30, "soon")
    assert "day" in fit_encoder(frame.assign(day=mixed)).left_out
    for texts in (["2020", "2021"] * 30, [missing] * 60, pd.Categorical(["2020-01-01", "2020-01-02"] * 30)):
        assert fit_encoder(frame.assign(day=texts)).kinds.get("day") in ("text", None)


def test_the_index_is_ignored(frame):
    encoder = fit_encoder(frame)
    named = frame.set_index(pd.Index(range(60), name="number of the row"))
    assert fit_encoder(named) == encoder
    np.testing.assert_array_equal(encoded_frame(named, encoder), encoded_frame(frame, encoder))


def test_a_pandas_frame_and_an_arrow_table_are_encoded_alike(frame):
    table = pa.Table.from_pandas(frame, preserve_index=False)
    assert fit_encoder(table) == fit_encoder(frame)
    encoder = fit_encoder(frame)
    np.testing.assert_array_equal(encoded_frame(table, encoder), encoded_frame(frame, encoder))


def test_types_may_change_after_fitting(frame):
    """A column of whole numbers with missing values becomes one of floats, for example."""
    encoder = fit_encoder(frame)
    changed = frame.astype({"whole": float, "category": str, "flag": float, "day": str})
    np.testing.assert_array_equal(encoded_frame(changed, encoder), encoded_frame(frame, encoder))
    empty = frame.head(2).assign(category=None, number=None, day=None)
    assert np.isfinite(encoded_frame(empty, encoder)).all()


def test_columns_are_found_by_name(frame):
    encoder = fit_encoder(frame)
    other = frame[frame.columns[::-1]].drop(columns="row").assign(more=1)
    np.testing.assert_array_equal(encoded_frame(other, encoder), encoded_frame(frame, encoder))
    with pytest.raises(InputError, match="the data frame has no column 'day'; its columns are number, whole"):
        encoded_frame(frame.drop(columns="day"), encoder)


@pytest.mark.parametrize(
    ("column", "needed"),
    [
        ([1, 2], False),
        ([1.5, 2.5], False),
        ([True, False], False),
        (np.array([1, 2.5], dtype=object), False),
        ([1.5, np.inf], False),  # scikit-learn's own check rejects it
        ([1.5, np.nan], True),
        (["a", "b"], True),
        (pd.Categorical([1, 2]), True),
        (pd.to_datetime(["2020-01-01", "2020-01-02"]), True),
        (pd.array([1, None], dtype="Int64"), True),
    ],
)
def test_frames_of_finite_numbers_are_arrays(column, needed):
    assert needs_encoding(pd.DataFrame({"x": column, "y": [1, 2]})) is needed
    assert not needs_encoding(np.array([[np.nan]]))


def test_a_column_of_mixed_values_is_rejected(frame):
    with pytest.raises(InputError, match=r"column text .*: convert columns of mixed values with astype.str."):
        fit_encoder(frame.assign(text=[1, "a"] * 30))
    with pytest.raises(InputError, match="Duplicate column names"):
        fit_encoder(pd.concat([frame, frame], axis=1))


def test_without_pyarrow_a_sentence_names_the_extra(tmp_path):
    code = """
import numpy as np
from deeplda.data.data_frames import fit_encoder
from deeplda.errors import InputError
class Frame:
    __arrow_c_stream__ = shape = None
try:
    fit_encoder(Frame())
except InputError as error:
    print(error)
"""
    done = run_without({"pyarrow"}, code, cwd=tmp_path)
    assert "needs the table extra (pyarrow is not installed): pip install 'deeplda[table]'" in done.stdout, done.stderr
