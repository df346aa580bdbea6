"""The commands on tables, from a raw file to predictions."""

import csv
import json
import random
import shutil
from datetime import date, timedelta

import numpy as np
import pytest
from command import deeplda, in_this_process, only_sentence

from deeplda import load
from deeplda.cli import main
from deeplda.data.table_source import encoded_blocks
from deeplda.model_card import read_card
from missing_modules import run_without

COLUMNS = ("customer_id", "plan", "since", "age", "spend", "tier")
TIERS = ("=bronze", "silver", "gold")
QUICK = ("--epochs", "3", "--learning-rate", "0.1", "--quiet")


def write_table(path, rows=300, seed=0):
    """Write customers with texts, dates, missing values and an unbalanced target."""
    rng = random.Random(seed)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        for row in range(rows):
            tier = rng.choices(range(3), (80, 15, 5))[0]
            day = date(2020, 1, 1) + timedelta(days=rng.randrange(700))
            age = "" if rng.random() < 0.1 else round(rng.gauss(30 + 10 * tier, 5))
            plan = rng.choice(("basic", "plus", "pro", "team")[tier : tier + 2])
            writer.writerow((5000 + row, plan, day, age, f"{rng.lognormvariate(3 + tier, 0.4):.2f}", TIERS[tier]))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    write_table(home / "customers.csv")
    done = deeplda("train", "customers.csv", "--target", "tier", *QUICK, cwd=home, check=0)
    (home / "printed").write_text(done.stdout)
    (home / "said").write_text(done.stderr)
    return home


@pytest.fixture
def home(trained, tmp_path, monkeypatch):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    settings = tmp_path / "runs" / "customers-lda" / "run.toml"
    settings.write_text(settings.read_text().replace(str(trained), str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(capsys, *arguments):
    main(arguments)
    return capsys.readouterr()


def refusal(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_after_training_the_hints_fit_tables(trained):
    lines = (trained / "printed").read_text().splitlines()
    assert lines[-2].startswith("  deeplda predict runs/customers-lda NEW-ROWS.csv --csv    ")
    assert lines[-1].startswith("  deeplda audit runs/customers-lda --open    ")
    assert (trained / "runs" / "customers-lda" / "report.html").exists()


def test_the_messages_of_a_training_name_the_target_and_the_columns_left_out(home, capsys):
    said = printed(capsys, "train", str(home / "customers.csv"), "--epochs", "1").err
    assert "the target is the last column, 'tier'; pass --target to choose another" in said
    assert "columns left out: customer_id (it is different in almost every row, like an identifier)" in said


def test_the_encoding_is_data_in_the_model_card(home):
    card = read_card(home / "runs" / "customers-lda" / "model" / "model.json")
    assert card.table.target == "tier"
    assert card.sample_shape == (len(card.table.outputs),)
    assert [path.name for path in (home / "runs" / "customers-lda" / "model").iterdir()] == [
        "model.json",
        "weights.safetensors",
    ]


def test_predictions_as_csv_have_no_formulas(home, capsys):
    out = printed(capsys, "predict", "runs/customers-lda", "customers.csv", "--csv", "--distance").out
    rows = list(csv.DictReader(out.splitlines()))
    assert [int(row["row"]) for row in rows] == list(range(1, 301))
    assert {row["class"] for row in rows} <= {"'=bronze", "silver", "gold"}
    model = load("runs/customers-lda")
    (samples,) = encoded_blocks(home / "customers.csv", model.card.table)
    assert [row["class"].removeprefix("'") for row in rows] == model.predict(samples).tolist()
    np.testing.assert_allclose([float(row["distance"]) for row in rows], model.mahalanobis(samples), atol=1e-6)


def test_predictions_as_json_and_on_a_terminal(home, capsys):
    found = json.loads(printed(capsys, "predict", "runs/customers-lda", str(home / "customers.csv"), "--json").out)
    assert len(found["predictions"]) == 300
    assert found["predictions"][1]["row"] == 2
    assert found["calibrated_on"] == 45
    out = printed(capsys, "predict", "runs/customers-lda", "customers.csv").out
    assert out.splitlines()[-1] == "these are the first 20 rows; pass --csv to print all of them"
    assert len(out.splitlines()) == 25


def test_other_tables_are_predicted_by_the_names_of_their_columns(home, capsys):
    new = "spend,plan,note,age,since\n20.5,basic,x,NA,2021-05-06\n99,unseen,y,41,\n"
    (home / "new.csv").write_text(new)
    out = printed(capsys, "predict", "runs/customers-lda", "new.csv", "--csv").out
    assert len(out.splitlines()) == 3


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("new.csv", "age,plan\n1,basic\n", "new.csv has no column 'since'; its columns are age, plan"),
        (
            "new.csv",
            "plan,since,age,spend\nbasic,2020-01-01,old,3\n",
            "column 'age' has the text 'old' in row 1, need numbers",
        ),
        ("new.csv", "plan,since,age,spend\nbasic,2020-01-01\n", "row 1 of new.csv has 2 values, need 4"),
        ("new.csv", 'plan,since,age,spend\nbasic,2020-01-01,3,"4\n', "quote that is never closed"),
        ("new.parquet", "hello", "new.parquet cannot be read"),
        ("new.png", "hello", "new.png is not a table: the model was trained on a table, so pass a .csv"),
    ],
)
def test_a_table_that_does_not_fit_is_rejected_in_one_sentence(home, capsys, name, content, sentence):
    (home / name).write_text(content)
    assert sentence in refusal(capsys, "predict", "runs/customers-lda", name)


def test_a_bad_cell_below_printed_rows_is_named_with_what_is_missing(home, capsys, monkeypatch):
    monkeypatch.setattr("deeplda.data.table_files._BLOCK_ROWS", 40)
    lines = (home / "customers.csv").read_text().splitlines()
    lines[100] = "1,basic,2020-01-01,old,3,gold"
    (home / "new.csv").write_text("\n".join(lines))
    code, out, said = in_this_process(capsys, "predict", "runs/customers-lda", "new.csv", "--csv")
    assert code == 2
    assert out.splitlines()[-1].startswith("80,")
    assert "column 'age' has the text 'old' in row 100, need numbers; the output is incomplete: it ends after " in said
    assert said.endswith("row 80\n")


def test_a_table_without_rows_is_noted(home, capsys):
    (home / "new.csv").write_text("plan,since,age,spend\n")
    code, out, said = in_this_process(capsys, "predict", "runs/customers-lda", "new.csv", "--csv")
    assert (code, out) == (0, "row,class,probability\n")
    assert "note: new.csv has no rows, so nothing was classified" in said


def test_one_table_at_a_time(home, capsys):
    run = str(home / "runs" / "customers-lda")
    assert "need one table" in refusal(capsys, "predict", run, "customers.csv", "customers.csv")
    assert "does not exist" in refusal(capsys, "predict", run, "missing.csv")


def test_evaluate(home, capsys):
    own = json.loads(printed(capsys, "evaluate", "runs/customers-lda", "--json").out)
    assert (own["split"], own["n"]) == ("test", 45)
    write_table(home / "later.csv", seed=1)
    later = json.loads(printed(capsys, "evaluate", "runs/customers-lda", "later.csv", "--json").out)
    assert (later["split"], later["n"]) == ("all", 300)
    assert later["accuracy"] > 0.7
    said = printed(capsys, "evaluate", "runs/customers-lda", "customers.csv", "--json").err
    assert "most of its rows were used to train the model" in said


def test_a_table_that_has_changed_is_not_scored_as_if_it_had_not(home, capsys):
    write_table(home / "customers.csv", seed=1)
    assert "has changed since runs/customers-lda was trained" in refusal(capsys, "evaluate", "runs/customers-lda")
    assert "has changed since" in refusal(capsys, "report", "runs/customers-lda")


def test_report(home, capsys):
    printed(capsys, "report", "runs/customers-lda")
    page = (home / "runs" / "customers-lda" / "report.html").read_text()
    assert "rows of 4 columns, encoded as" in page
    assert "plan = " in page
    assert ">row " in page


def test_export_prints_the_encoding(home, capsys):
    lines = printed(capsys, "export", str(home / "runs/customers-lda"), "--format", "torch").out.splitlines()
    card = load("runs/customers-lda").card
    assert lines[0].startswith("verified on 45 of 45 test samples from ")
    assert lines[1] == f"the graph takes encoded rows, {len(card.table.outputs)} numbers each:"
    assert [line.strip() for line in lines[2:-1]] == card.table.describe()


def test_sweep(home):
    options = ("--target", "tier", "--objectives", "lda", "--alphas", "1", "--seeds", "0", "--epochs", "1", "--json")
    found = json.loads(deeplda("sweep", "customers.csv", *options, cwd=home, check=0).stdout)
    assert list(found["done"]) == ["lda-alpha1-seed0"]


def test_a_mistyped_target_is_rejected_before_anything_is_written(home):
    line = only_sentence(deeplda("train", "customers.csv", "--target", "teir", "--run", "new", cwd=home))
    assert "has no column 'teir'" in line
    assert not (home / "new").exists()


def test_a_group_column_may_have_any_name(home, capsys):
    text = (home / "customers.csv").read_text().replace("customer_id", "house(")
    (home / "customers.csv").write_text(text)
    printed(capsys, "train", "customers.csv", "--group-by", "house(", *QUICK, "--run", "grouped")
    outputs = load("grouped").card.table.outputs
    assert not any("house" in name for name in outputs)


def test_without_pyarrow_a_sentence_names_the_extra(home):
    code = "import sys; from deeplda.cli import main; main(sys.argv[1:])"
    for command in (("train", "customers.csv"), ("predict", "runs/customers-lda", "customers.csv")):
        done = run_without({"pyarrow"}, code, *command, cwd=home)
        assert done.returncode == 2
        assert "pip install 'deeplda[table]'" in done.stderr
