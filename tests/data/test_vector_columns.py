"""Tables with a column of lists of numbers, such as embeddings."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from deeplda.data import load_data
from deeplda.data.table_source import encoded_blocks
from deeplda.errors import InputError

RNG = np.random.default_rng(0)
ROWS = RNG.normal(3, 5, size=(2_500, 4)).astype(np.float32)
ROWS[:, 2] = 7  # a number that never changes
LABELS = np.array(["a", "b", "c"])[np.arange(len(ROWS)) % 3]


def written(path, column, **others):
    pyarrow.parquet.write_table(pa.table({"embedding": column, **others, "label": LABELS}), path)
    return path


def kinds_of_lists():
    flat = pa.array(ROWS.ravel())
    return {
        "list": pa.array(list(ROWS)),
        "large": pa.array(list(ROWS), pa.large_list(pa.float64())),
        "fixed": pa.FixedSizeListArray.from_arrays(flat, 4),
        "half": pa.FixedSizeListArray.from_arrays(flat.cast(pa.float32()), 4),
    }


@pytest.mark.parametrize("kind", ["list", "large", "fixed", "half"])
def test_each_number_is_standardised_by_the_training_rows(tmp_path, kind):
    path = written(tmp_path / "table.parquet", kinds_of_lists()[kind])
    data = load_data(path)
    assert data.sample_shape == (4,)
    assert len(data.train) + len(data.val) + len(data.test) == len(ROWS)
    training = ROWS[data.train.rows - 1].astype(np.float64)
    mean, deviation = training.mean(0), training.std(0)
    deviation[2] = 1
    for part in (data.train, data.test):
        np.testing.assert_allclose(part.inputs, (ROWS[part.rows - 1] - mean) / deviation, atol=1e-5)
        np.testing.assert_array_equal(np.asarray(data.class_names)[part.labels], LABELS[part.rows - 1])
    again = np.concatenate(list(encoded_blocks(path, data.table)))
    np.testing.assert_array_equal(again[data.val.rows - 1], data.val.inputs)


def test_a_list_beside_other_columns(tmp_path):
    size = np.arange(len(ROWS)) * 1.5
    data = load_data(written(tmp_path / "table.parquet", kinds_of_lists()["fixed"], size=size))
    assert data.table.outputs == ("embedding[0]", "embedding[1]", "embedding[2]", "embedding[3]", "size")


def test_copies_of_a_row_stay_in_one_part(tmp_path):
    rows = ROWS.copy()
    rows[:100] = rows[100:200]
    labels = LABELS.copy()
    labels[:100] = labels[100:200]
    table = pa.table({"embedding": list(rows), "label": labels})
    pyarrow.parquet.write_table(table, tmp_path / "table.parquet")
    data = load_data(tmp_path / "table.parquet")
    part_of = {row: name for name in ("train", "val", "test") for row in getattr(data, name).rows.tolist()}
    assert all(part_of[row] == part_of[row + 100] for row in range(1, 101))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[1500].append(1.0), "column 'embedding' has lists of 4 and of 5 numbers, need one length"),
        (lambda rows: rows.__setitem__(3, None), "column 'embedding' has rows without a list"),
        (lambda rows: rows[3].__setitem__(0, np.nan), "column 'embedding' has lists with NaN or infinity"),
        (lambda rows: rows[3].__setitem__(0, None), "column 'embedding' has lists with NaN or infinity"),
    ],
)
def test_incomplete_lists_are_rejected(tmp_path, change, message):
    rows = ROWS.tolist()
    change(rows)
    with pytest.raises(InputError, match=message) as caught:
        load_data(written(tmp_path / "table.parquet", pa.array(rows)))
    assert str(tmp_path / "table.parquet") in str(caught.value)


def test_lists_of_another_length_than_in_each_block(tmp_path):
    rows = [row[:3] if place >= 2_048 else row for place, row in enumerate(ROWS.tolist())]
    with pytest.raises(InputError, match="has lists of 4 and of 3 numbers, need one length"):
        load_data(written(tmp_path / "table.parquet", pa.array(rows)))


def test_embeddings_of_another_network_are_rejected(tmp_path):
    data = load_data(written(tmp_path / "table.parquet", kinds_of_lists()["list"]))
    other = written(tmp_path / "other.parquet", pa.array(ROWS[:, :3].tolist()))
    with pytest.raises(InputError, match="has lists of 3 numbers, but the model needs 4"):
        list(encoded_blocks(other, data.table))
