"""`deeplda audit`: planted mistakes are found, and `train --drop` and `--relabel` apply the decisions."""

import csv
import io
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from command import deeplda, in_this_process
from PIL import Image

from deeplda.cli import app
from deeplda.report.audited_run import COLUMNS
from deeplda.training.config import RunConfig
from deeplda.training.preparation import read_data
from deeplda.training.run_folder import split_of

COLOURS = {"red": (200, 60, 60), "green": (60, 200, 60), "=blue": (60, 60, 200)}
SETTINGS = ("--network", "convnet-small", "--width", "0.25", "--learning-rate", "0.1", "--batch-size", "30")
# Images that lie in the folder of another class, and an exact copy in a wrong folder.
PLANTED = ("red/g7.png", "green/b8.png", "=blue/r9.png")
COPY = "green/copy.png"


def photo(file, colour, seed):
    noise = np.random.default_rng(seed).normal(0, 40, (12, 12, 3))
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.clip(colour + noise, 0, 255).astype(np.uint8)).save(file)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder of coloured squares with planted mistakes, and a run on it."""
    home = tmp_path_factory.mktemp("audit")
    for place, (name, colour) in enumerate(COLOURS.items()):
        for number in range(40):
            photo(home / "photos" / name / f"{number:02}.png", colour, 100 * place + number)
    right = {"g": COLOURS["green"], "b": COLOURS["=blue"], "r": COLOURS["red"]}
    for place, file in enumerate(PLANTED):
        photo(home / "photos" / file, right[file.split("/")[1][0]], 1000 + place)
    shutil.copy(home / "photos" / "red" / "03.png", home / "photos" / COPY)
    deeplda("train", "photos", *SETTINGS, "--epochs", "6", "--quiet", "--run", "run", cwd=home, check=0)
    return home


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def decided(home, name, decision, samples):
    """Write the rows of these samples with a decision to a file, as the page does."""
    # The apostrophe is in front of what a spreadsheet could take for a formula.
    rows = rows_of((home / "run" / "audit.csv").read_text())
    rows = [row for row in rows if row["sample"].removeprefix("'") in samples]
    with (home / name).open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        writer.writerows({**row, "decision": decision} for row in rows)
    return name


@pytest.fixture(scope="module")
def audited(home):
    return deeplda("audit", "run", "--json", cwd=home, check=0)


def test_planted_mistakes_come_first(home, audited):
    found = json.loads(audited.stdout)
    assert found["margins_from_training"]
    first = {row["sample"]: row for row in found["samples"][:10]}
    assert set(first) >= {*PLANTED, COPY}
    for trained in (True, False):
        planted = [row["sample"] in {*PLANTED, COPY} for row in found["samples"] if (row["part"] == "train") == trained]
        assert planted == sorted(planted, reverse=True)
    assert first["red/g7.png"]["suggested"] == "green"
    assert first[COPY]["duplicate_of"] == "red/03.png"
    assert found["duplicates"] == [sorted(["red/03.png", COPY])] or found["duplicates"] == [[COPY, "red/03.png"]]
    low, high = found["estimated_mistakes_range"]
    assert low <= found["estimated_mistakes"] <= high
    assert low <= len(PLANTED) + 1 <= high < 25
    parts = [row["part"] for row in found["samples"]]
    data = read_data(RunConfig.of(home / "run"), split_of(home / "run"))
    assert [parts.count(name) for name in ("train", "val", "test")] == [len(data.train), len(data.val), len(data.test)]
    assert "changed" not in audited.stderr


def test_the_csv_file_has_all_samples_and_no_formula(home, audited):
    text = (home / "run" / "audit.csv").read_text()
    assert len(rows_of(text)) == len(json.loads(audited.stdout)["samples"]) == 124
    assert {row["given"] for row in rows_of(text)} == {"red", "green", "'=blue"}
    assert {row["decision"] for row in rows_of(text)} == {""}


@pytest.mark.usefixtures("audited")
def test_the_terminal_shows_the_first_and_says_where_margins_come_from(home, capsys, monkeypatch):
    monkeypatch.chdir(home)
    code, shown, _ = in_this_process(capsys, "audit", "run")
    assert code == 0
    assert re.search(r"\d+ to \d+ of 124 labels are estimated to be wrong \(95 % interval; the best estimate is", shown)
    assert "download decisions-run.csv to this folder" in shown
    (command,) = re.findall(r"^  (deeplda train .*)$", shown, re.MULTILINE)
    _, bound, _ = app.parse_args(shlex.split(command)[1:], exit_on_error=False)
    chosen = bound.arguments["config"]
    given = {name: getattr(chosen, name) for name in chosen.model_fields_set}
    repeated = RunConfig(data=bound.arguments["data"], **given | {"relabel": None})
    assert repeated == RunConfig.of(home / "run")
    assert chosen.relabel == (Path("decisions-run.csv"),)
    assert "near-duplicates with different labels" in shown
    assert "means over the epochs" in shown
    code, shown, _ = in_this_process(capsys, "audit", "run", "--csv")
    assert shown == (home / "run" / "audit.csv").read_text()


@pytest.mark.usefixtures("audited")
def test_accepted_samples_are_dropped_and_the_run_remembers(home):
    file = decided(home, "drop.csv", "accepted", [*PLANTED, COPY])
    options = ("--epochs", "2", "--drop", file, "--run", "dropped")
    done = deeplda("train", "photos", *SETTINGS, *options, cwd=home, check=0)
    assert "left out in the training and validation sets, as decided in" in done.stderr
    config = RunConfig.of(home / "dropped")
    assert config.drop == (home / "drop.csv",)
    data = read_data(config, split_of(home / "dropped"))
    assert not {*PLANTED, COPY} & {*data.train.files, *data.val.files}
    before = read_data(RunConfig.of(home / "run"), split_of(home / "run"))
    assert data.test.files == before.test.files
    # The run has a copy of the file.
    (home / "drop.csv").unlink()
    again = json.loads(deeplda("audit", "dropped", "--json", cwd=home, check=0).stdout)
    assert again["margins_from_training"]
    assert len(again["samples"]) == len(data.train) + len(data.val) + len(data.test)


@pytest.mark.usefixtures("audited")
def test_accepted_samples_are_relabelled(home):
    decided(home, "relabel.csv", "accepted", PLANTED)
    update = {"relabel": (home / "relabel.csv",)}
    data = read_data(RunConfig.of(home / "run").model_copy(update=update), split_of(home / "run"))
    labels = dict(zip((*data.train.files, *data.val.files), (*data.train.labels, *data.val.labels), strict=True))
    right = {"red/g7.png": "green", "green/b8.png": "=blue", "=blue/r9.png": "red"}
    found = {file: data.class_names[labels[file]] for file in right if file in labels}
    assert found == {file: name for file, name in right.items() if file in labels}
    assert found


@pytest.mark.usefixtures("audited")
@pytest.mark.parametrize("option", ["--drop", "--relabel"])
def test_a_file_without_decisions_is_rejected(home, option, capsys, monkeypatch):
    monkeypatch.chdir(home)
    code, _, error = in_this_process(capsys, "train", "photos", option, "run/audit.csv", "--run", "none")
    assert code == 2
    assert "has no row with the decision accepted" in error
    assert not (home / "none").exists()


@pytest.mark.usefixtures("audited")
def test_decisions_are_not_overwritten(home, tmp_path, capsys):
    shutil.copytree(home / "run", tmp_path / "run")
    text = (tmp_path / "run" / "audit.csv").read_text()
    (tmp_path / "run" / "audit.csv").write_text(text.replace(",\n", ",accepted\n", 1))
    code, _, error = in_this_process(capsys, "audit", tmp_path / "run")
    assert code == 2
    assert "has decisions, which would be lost" in error


def test_a_run_without_margins_is_audited_by_its_scores(home, tmp_path, capsys):
    shutil.copytree(home / "run", tmp_path / "run")
    (tmp_path / "run" / "margins.safetensors").unlink()
    code, shown, error = in_this_process(capsys, "audit", tmp_path / "run")
    assert code == 0
    assert "margins come from the scores of the finished model" in shown
    assert "kept no margins" in error


def copied_run(home, target):
    """Copy the folder and the run, and return the folder and the run on it."""
    shutil.copytree(home, target)
    settings = target / "run" / "run.toml"
    settings.write_text(settings.read_text().replace(str(home / "photos"), str(target / "photos")))
    return target / "photos", target / "run"


def test_margins_are_not_used_if_images_are_gone(home, tmp_path, capsys):
    photos, run = copied_run(home, tmp_path / "home")
    (photos / "red" / "05.png").unlink()
    code, shown, error = in_this_process(capsys, "audit", run, "--json")
    assert code == 0
    assert "margins kept during training are not used" in error
    assert not json.loads(shown)["margins_from_training"]


def test_images_added_since_the_training_are_left_out(home, tmp_path, capsys):
    photos, run = copied_run(home, tmp_path / "home")
    before = json.loads(in_this_process(capsys, "audit", run, "--json")[1])
    Image.new("RGB", (16, 16), (250, 10, 10)).save(photos / "red" / "new.png")
    (run / "audit.csv").unlink()
    code, shown, error = in_this_process(capsys, "audit", run, "--json")
    assert code == 0
    assert "with which the run was not started (broken, or added since)" in error
    assert "ignored: 1 image in" in error
    after = json.loads(shown)
    assert after["margins_from_training"]
    assert after["samples"] == before["samples"]


def test_a_table_is_audited_by_rows(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 2
    table = np.column_stack([rng.normal(4 * labels, 1), rng.normal(size=120)])
    given = labels.copy()
    given[10] = 1 - given[10]
    lines = [f"{a:.4f},{b:.4f},{'ab'[label]}" for (a, b), label in zip(table, given, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["x,y,kind", *lines, ""]))
    deeplda("train", "t.csv", "--epochs", "8", "--quiet", "--run", "run", cwd=tmp_path, check=0)
    found = json.loads(deeplda("audit", "run", "--json", cwd=tmp_path, check=0).stdout)
    assert "row 11" in [row["sample"] for row in found["samples"][:3]]
    page = (tmp_path / "run" / "audit.html").read_text()
    assert "<img" not in page
    assert "row 11" in page
