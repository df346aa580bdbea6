"""Sweeps whose records are published without their models: tables, reports, and sweeps that go on with them."""

import csv
import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from deeplda.errors import InputError
from deeplda.experiments import sweep_worker
from deeplda.experiments.result_table import format_table, result_table
from deeplda.experiments.results import read_results, write_trials
from deeplda.experiments.sweep_definition import SweepDefinition
from deeplda.experiments.sweep_folder import open_sweep
from deeplda.report.record import finished_trials
from deeplda.report.report_files import write_comparison

ROOT = Path(__file__).parents[2]
PUBLISHED = sorted(file.parent for file in (ROOT / "results").glob("*/trials.csv"))


@pytest.fixture(scope="module")
def published(finished, tmp_path_factory):
    """The finished sweep, copied by the script for that."""
    spec = importlib.util.spec_from_file_location("publish_sweep", ROOT / "benchmarks" / "publish_sweep.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    write_trials(finished.folder, finished.definition)
    folder = tmp_path_factory.mktemp("published") / "sweep"
    assert script.publish(finished.folder, folder) == 6
    return folder


@pytest.fixture
def only_scores(published, tmp_path):
    """The same with trials.csv alone."""
    (tmp_path / "scores").mkdir()
    for name in ("sweep.toml", "trials.csv"):
        shutil.copy(published / name, tmp_path / "scores" / name)
    return tmp_path / "scores"


def table_of(folder):
    return json.loads(format_table(result_table(read_results(folder)), "json"))


def test_the_copy_has_neither_weights_nor_paths(published, finished):
    names = {file.name for file in published.rglob("*") if file.is_file()}
    assert names == {"sweep.toml", "trials.csv", "run.toml", "metrics.jsonl", "environment.json"}
    text = "".join(file.read_text() for file in published.rglob("*") if file.is_file())
    assert str(finished.folder) not in text
    assert "data_dir" not in text


def test_the_table_is_that_of_the_sweep(published, finished):
    assert table_of(published) == table_of(finished.folder)


def test_scores_alone_give_the_same_table_up_to_their_rounding(only_scores, finished):
    found, true = table_of(only_scores), table_of(finished.folder)
    assert [row["setting"] for row in found["rows"]] == [row["setting"] for row in true["rows"]]
    for ours, theirs in zip(found["rows"], true["rows"], strict=True):
        assert ours["seeds"] == theirs["seeds"]
        assert ours["validation"]["mean"] == pytest.approx(theirs["validation"]["mean"], abs=1e-4)
        assert ours["test"].keys() == theirs["test"].keys()
        for name, spread in theirs["test"].items():
            assert ours["test"][name]["mean"] == pytest.approx(spread["mean"], abs=1e-4)
        for name, spread in theirs["probabilities"].items():
            assert ours["probabilities"][name]["mean"] == pytest.approx(spread["mean"], abs=1e-4)


def test_a_report_needs_the_records_of_the_runs_but_no_models(published, only_scores, tmp_path):
    records = finished_trials(published)
    page = write_comparison("published", records, tmp_path / "page.html").read_text()
    assert all(record.path.name in page for record in records)
    assert 'id="embedding"' not in page
    with pytest.raises(InputError, match=r"has only the scores of its trials, in trials\.csv.*use deeplda table"):
        finished_trials(only_scores)


def test_a_sweep_skips_the_trials_that_the_folder_holds(published, only_scores, tmp_path, monkeypatch):
    records = tmp_path / "records"
    shutil.copytree(published, records)
    monkeypatch.setattr(sweep_worker, "run_to_end", lambda *_args, **_options: pytest.fail("a trial was trained"))
    for folder in (records, only_scores):
        before = table_of(folder)
        sweep = open_sweep(folder, SweepDefinition.read(folder / "sweep.toml"))
        sweep_worker.work(sweep, lambda: False)
        assert {attempt.status for attempt in sweep.current_attempts().values()} == {"done"}
        write_trials(folder, sweep.definition)
        assert table_of(folder) == before


def test_only_missing_trials_are_trained(only_scores):
    rows = (only_scores / "trials.csv").read_text().splitlines(keepends=True)
    (only_scores / "trials.csv").write_text("".join(rows[:-1]))
    sweep = open_sweep(only_scores)
    sweep_worker.work(sweep, lambda: False)
    trained = [run.name for run in (only_scores / "trials").iterdir() if (run / "model").exists()]
    assert trained == [rows[-1].split(",")[0]]
    write_trials(only_scores, sweep.definition)
    assert len((only_scores / "trials.csv").read_text().splitlines()) == len(rows)


def test_a_record_with_other_settings_does_not_count(published, tmp_path):
    folder = tmp_path / "changed"
    shutil.copytree(published, folder)
    run = folder / "trials" / "cce-seed0" / "run.toml"
    run.write_text(run.read_text().replace("batch_size = 400", "batch_size = 300"))
    sweep = open_sweep(folder)
    sweep_worker.work(sweep, lambda: False)
    assert sweep.current_attempts()["cce-seed0"].status == "failed"
    assert "has a run with different settings" in sweep.current_attempts()["cce-seed0"].error


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "is not a table of trials"),
        (b"name,validation\nx,1\n", "is not a table of trials"),
        (
            b"trial,validation,test softmax\ncce-seed0,high,50\n",
            "score for cce-seed0 that is not a number in its range",
        ),
        (b"trial,validation,test softmax\ncce-seed0,50,101\n", "score for cce-seed0 that is not a number in its range"),
        (b"trial,validation,test softmax,seconds\ncce-seed0,50,50,-1\n", "not a number in its range"),
        (b"trial,validation,test softmax\nanother,50,50\n", "has no finished trial"),
    ],
)
def test_scores_that_cannot_be_used(only_scores, content, message):
    (only_scores / "trials.csv").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_results(only_scores)


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_every_sweep_in_results_can_be_read(folder):
    with (folder / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = read_results(folder)
    assert found.done == len(rows)
    for row in rows:
        (group,) = (group for group in found.groups if any(run.name == row["trial"] for run in group.runs.values()))
        assert group.validation[int(row["seed"])] == pytest.approx(float(row["validation"]) / 100)


def test_the_published_table_of_cifar10_is_that_of_its_runs():
    """table.csv was written from the runs; trials.csv has their scores."""
    found = {row["setting"]: row for row in table_of(ROOT / "results" / "table2-quick")["rows"]}
    with (ROOT / "results" / "table2-quick" / "table.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["predictor"] in ("hyperplanes", "softmax")]
    assert len(rows) == len(found) == 7
    for row in rows:
        ours = found[row["setting"]]
        assert 100 * ours["test"][row["predictor"]]["mean"] == pytest.approx(float(row["test_percent"]), abs=1e-3)
        assert 100 * ours["validation"]["std"] == pytest.approx(float(row["validation_std"]), abs=1e-3)
        for name, against in ours["against"].items():
            assert against["verdict"] == row[f"{name}_verdict"]
            assert 100 * against["low"] == pytest.approx(float(row[f"{name}_low"]), abs=1e-3)
