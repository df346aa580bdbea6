"""The split and the encoding of a table."""

import os
import subprocess
import sys
from collections import Counter
from datetime import date, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch

from deeplda import memory
from deeplda.data import check_data, load_data
from deeplda.data.mapped_rows import MappedRows
from deeplda.data.sources import load_labelled
from deeplda.data.table_source import encoded_blocks
from deeplda.errors import InputError
from deeplda.training.config import FitConfig
from deeplda.training.loop import train
from deeplda.training.progress import Progress
from deeplda.training.run_folder import MemoryRun
from deeplda.training.trainee import build_trainee

ROWS = 400


def customers(rows=ROWS, seed=0):
    """Return a table with numbers, categories, dates, booleans, missing values, identifiers and a rare class."""
    rng = np.random.default_rng(seed)
    tier = rng.choice(["bronze", "silver", "gold"], rows, p=[0.7, 0.25, 0.05])
    return pa.table(
        {
            "customer_id": rng.permutation(rows) + 1000,
            "plan": np.where(tier == "gold", "pro", rng.choice(["basic", "plus"], rows)),
            "since": [date(2020, 1, 1) + timedelta(days=int(days)) for days in rng.integers(0, 900, rows)],
            "age": pa.array(rng.normal(40, 10, rows).round(1), mask=rng.random(rows) < 0.1),
            "active": rng.random(rows) < 0.5,
            "country": ["AT"] * rows,
            "household": [f"h{row // 4}" for row in range(rows)],
            "tier": tier,
        }
    )


@pytest.fixture
def folder(tmp_path):
    pa.parquet.write_table(customers(), tmp_path / "t.parquet", row_group_size=150)
    pa.csv.write_csv(customers(), tmp_path / "t.csv")
    return tmp_path


def parts_of(data):
    return {"train": data.train, "val": data.val, "test": data.test}


def test_many_rows_are_kept_in_a_file(folder, monkeypatch):
    expected = load_data(folder / "t.parquet")
    monkeypatch.setattr("deeplda.data.table_source._MOST_IN_MEMORY", 100)
    data = load_data(folder / "t.parquet")
    for part, other in zip(parts_of(data).values(), parts_of(expected).values(), strict=True):
        assert isinstance(part.inputs, MappedRows)
        np.testing.assert_array_equal(np.asarray(part.inputs), other.inputs)
        np.testing.assert_array_equal(part.rows, other.rows)
    assert data.fingerprint == expected.fingerprint
    assert data.without_validation().fingerprint == expected.without_validation().fingerprint
    models = [trained(table) for table in (data, expected)]
    for one, other in zip(models[0].state_dict().values(), models[1].state_dict().values(), strict=True):
        assert torch.equal(one, other)


def trained(data):
    config = FitConfig(epochs=1, batch_size=50)
    trainee = build_trainee(config, data)
    train(config, data, trainee, MemoryRun(), Progress())
    return trainee.model


def test_the_split_is_stratified_and_complete(folder):
    data = load_data(folder / "t.parquet")
    assert [len(part) for part in parts_of(data).values()] == [280, 60, 60]
    rows = np.concatenate([part.rows for part in parts_of(data).values()])
    assert sorted(rows.tolist()) == list(range(1, ROWS + 1))
    tiers = np.array(customers()["tier"].to_pylist())
    for part in parts_of(data).values():
        assert [data.class_names[label] for label in part.labels] == tiers[part.rows - 1].tolist()
    for name, count in Counter(tiers.tolist()).items():
        in_test = (data.test.labels == data.class_names.index(name)).sum()
        assert abs(in_test - 0.15 * count) < 1


def test_csv_and_parquet_give_the_same_data(folder):
    parquet, csv = load_data(folder / "t.parquet"), load_data(folder / "t.csv")
    assert csv.table == parquet.table
    assert csv.fingerprint == parquet.fingerprint
    assert csv.class_names == ("bronze", "gold", "silver")


def test_another_seed_gives_another_split(folder):
    first, second = (load_data(folder / "t.csv", split_seed=seed) for seed in (0, 1))
    assert first.test.rows.tolist() != second.test.rows.tolist()


def test_other_processes_make_the_same_split(folder):
    rows = customers(50)
    pa.parquet.write_table(pa.concat_tables([customers(), rows.slice(0, 3), rows.slice(0, 3)]), folder / "t.parquet")
    code = "import sys; from deeplda.data import load_data"
    code += "; print(*(load_data(sys.argv[1], group_by=name).fingerprint for name in (None, 'household')))"
    command = [sys.executable, "-c", code, folder / "t.parquet"]
    found = [
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1]


def test_the_encoding_is_fitted_on_training_rows_only(folder):
    data = load_data(folder / "t.parquet")
    ages = np.array(customers()["age"].to_pylist(), dtype=float)[data.train.rows - 1]
    (age,) = (column for column in data.table.columns if column.name == "age")
    assert age.mean == pytest.approx(np.nanmean(ages))
    assert age.deviation == pytest.approx(np.nanstd(ages))
    np.testing.assert_allclose(data.train.inputs.mean(0)[data.table.outputs.index("since")], 0, atol=1e-5)


def test_a_category_outside_the_training_rows_is_unseen(folder):
    test_rows = load_data(folder / "t.parquet").test.rows
    table = customers()
    plans = np.array(table["plan"].to_pylist(), dtype=object)
    plans[test_rows - 1] = "secret"
    pa.parquet.write_table(table.set_column(1, "plan", pa.array(plans)), folder / "t.parquet")
    data = load_data(folder / "t.parquet")
    assert not any("secret" in name for name in data.table.outputs)
    plan = [place for place, name in enumerate(data.table.outputs) if name.startswith("plan")]
    assert (data.test.inputs[:, plan] == 0).all()


def test_messages(folder):
    notes = load_data(folder / "t.csv").notes
    assert notes[0] == "the target is the last column, 'tier'; pass --target to choose another"
    assert notes[1].startswith("columns left out: customer_id (it is different")
    assert "country (it is the same in every row)" in notes[1]
    (note,) = load_data(folder / "t.csv", target="tier").notes
    assert note == notes[1]


def test_groups_stay_together_and_are_not_predictors(folder):
    data = load_data(folder / "t.parquet", group_by="household", target="tier")
    households = np.array(customers()["household"].to_pylist())
    parts = [set(households[part.rows - 1]) for part in parts_of(data).values()]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    assert [len(part) for part in parts] == [70, 15, 15]
    assert not any("household" in name for name in data.table.outputs)
    assert data.notes[0] == "'household' has 100 groups in 400 rows"


def test_rows_without_a_group_are_on_their_own(tmp_path):
    table = customers().set_column(6, "household", pa.array([None] * 200 + ["a", "b"] * 100))
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    data = load_data(tmp_path / "t.parquet", group_by="household")
    alone = [int((part.rows <= 200).sum()) for part in parts_of(data).values()]
    assert min(alone) > 20


def test_copies_of_a_row_stay_together(tmp_path):
    table = customers()
    pa.parquet.write_table(pa.concat_tables([table, table.slice(0, 30)]), tmp_path / "t.parquet")
    data = load_data(tmp_path / "t.parquet")
    for part in parts_of(data).values():
        first, copies = set(part.rows[part.rows <= 30]), set(part.rows[part.rows > ROWS] - ROWS)
        assert first == copies


def test_rows_of_a_table_with_few_different_rows_are_not_copies(tmp_path):
    table = pa.table({"x": ["a", "b"] * 100, "y": ["p", "q"] * 100})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    data = load_data(tmp_path / "t.parquet")
    assert [len(part) for part in parts_of(data).values()] == [140, 30, 30]


def test_rows_without_a_class_are_left_out(tmp_path):
    table = customers()
    tiers = pa.array([None, "", *table["tier"].to_pylist()[2:]])
    pa.parquet.write_table(table.set_column(7, "tier", tiers), tmp_path / "t.parquet")
    data = load_data(tmp_path / "t.parquet", target="tier")
    assert sum(map(len, parts_of(data).values())) == ROWS - 2
    assert data.notes[0] == "2 rows without a value in 'tier' left out"


@pytest.mark.parametrize(
    ("labels", "names"),
    [([10, 9, 2], ("2", "9", "10")), ([1.0, 0.0, 2.0], ("0", "1", "2")), ([True, False, True], ("false", "true"))],
)
def test_numbers_and_booleans_as_classes(labels, names, tmp_path):
    rows = 60
    table = pa.table({"x": np.linspace(0, 1, rows), "y": labels * (rows // 3)})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    data = load_data(tmp_path / "t.parquet")
    assert data.class_names == names
    expected = [str(np.array(labels * rows)[row - 1].item()).lower().removesuffix(".0") for row in data.train.rows]
    assert [names[label] for label in data.train.labels] == expected


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"target": "teir"}, "has no column 'teir'; its columns are customer_id, plan"),
        (
            {"target": "age"},
            "column 'age' has .* different values, need classes, because regression is not supported: pass the column",
        ),
        ({"target": "customer_id"}, "column 'customer_id' has 400 different values, need classes"),
        ({"target": "country"}, "only one class .AT."),
        ({"group_by": "house"}, "has no column 'house'"),
        ({"group_by": "tier"}, "group_by is 'tier', which is the target"),
        ({"group_by": "country"}, "too few to split off a test set"),
    ],
)
def test_options_that_cannot_be_used(folder, options, sentence):
    with pytest.raises(InputError, match=sentence):
        load_data(folder / "t.csv", **options)


def test_a_target_is_for_tables():
    with pytest.raises(InputError, match="target is 'x', but digits is not a table: omit it"):
        load_data("digits", target="x")


@pytest.mark.parametrize("content", ["y\n" + "a\nb\n" * 20, "x,y\n1,\n2,\n", "x,y\n"])
def test_a_table_without_samples_is_rejected(content, tmp_path):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(InputError, match=r"no column to predict from|no row with a value"):
        load_data(tmp_path / "t.csv")


@pytest.mark.parametrize("available", [1_000, 20_000])
def test_a_table_that_does_not_fit_in_memory_is_rejected(folder, monkeypatch, available):
    monkeypatch.setattr(memory, "available_memory", lambda: available)
    with pytest.raises(InputError, match=r"t.parquet.* does not fit in memory: .* use fewer rows or columns"):
        load_data(folder / "t.parquet")


def test_a_table_of_billions_of_equal_rows_is_rejected_before_they_are_read(tmp_path, monkeypatch):
    """Runs of equal values take no space in a Parquet file."""
    table = pa.table({"x": pa.nulls(3_000_000, pa.int8()), "y": pa.nulls(3_000_000, pa.string())})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    assert (tmp_path / "t.parquet").stat().st_size < 20_000
    monkeypatch.setattr(memory, "available_memory", lambda: 10**8)
    with pytest.raises(InputError, match="does not fit in memory"):
        load_data(tmp_path / "t.parquet")


def test_other_rows_are_encoded_alike_whatever_their_columns_and_order(folder):
    data = load_data(folder / "t.parquet")
    table = customers().append_column("new", pa.array(range(ROWS))).drop_columns(["customer_id", "tier"])
    pa.csv.write_csv(table.select(table.column_names[::-1]), folder / "new.csv")
    (encoded,) = encoded_blocks(folder / "new.csv", data.table)
    for part in parts_of(data).values():
        np.testing.assert_array_equal(encoded[part.rows - 1], part.inputs)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda table: table.drop_columns(["age"]), "has no column 'age'"),
        (
            lambda table: table.set_column(3, "age", pa.array(["old"] * ROWS)),
            "column 'age' has the text 'old' in row 1, need n",
        ),
        (lambda table: table.set_column(2, "since", table["age"]), "column 'since' has .*, need dates"),
    ],
)
def test_rows_that_do_not_fit_the_encoding_are_rejected(folder, change, sentence):
    encoder = load_data(folder / "t.parquet").table
    pa.parquet.write_table(change(customers()), folder / "new.parquet")
    with pytest.raises(InputError, match=f"new.parquet.*{sentence}"):
        list(encoded_blocks(folder / "new.parquet", encoder))


def test_a_model_is_scored_on_all_rows_of_another_table(folder):
    data = load_data(folder / "t.parquet")
    extra = customers(10).set_column(7, "tier", pa.array(["bronze"] * 8 + ["iron", None]))
    pa.parquet.write_table(pa.concat_tables([customers(), extra]), folder / "new.parquet")
    found = load_labelled(
        folder / "new.parquet", class_names=data.class_names, sample_shape=data.sample_shape, table=data.table
    )
    assert found.split == "all"
    assert len(found.part) == ROWS + 8
    assert found.notes == ("left out: the class iron (1 sample), which the model does not have",)
    np.testing.assert_array_equal(found.part.inputs[data.test.rows - 1], data.test.inputs)
    with pytest.raises(InputError, match="is a table, but the model was not trained on one"):
        load_labelled(folder / "t.csv", class_names=data.class_names, sample_shape=data.sample_shape)


def test_check_data_counts_rows(folder):
    rows = check_data(folder / "t.csv")
    assert [row.found.partition(" of")[0] for row in rows] == [
        "train: 280 samples",
        "val: 60 samples",
        "test: 60 samples",
    ]
    (folder / "t.csv").write_text("a,b\n1\n")
    (row,) = check_data(folder / "t.csv")
    assert not row.ok
