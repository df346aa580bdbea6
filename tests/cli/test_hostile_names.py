"""Names of folders, files and classes cannot control a terminal or run as formulas, whichever command prints them."""

import csv
import io
import json
import shutil
from contextlib import chdir, redirect_stderr, redirect_stdout

import numpy as np
import pytest
from PIL import Image

from deeplda.cli import main

HOSTILE = "\x1b]0;pwned\x07\x1b[31m\r\n\x9b"
CLASSES = (f"=cmd|' /C calc'!A0{HOSTILE}", f"@cat{HOSTILE}")
SMALL = ("--epochs", "1", "--width", "0.1")


def run(*command):
    """Run a command; return its exit code and what it prints to stdout and stderr."""
    shown, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(shown), redirect_stderr(errors):
        try:
            main(command)
        except SystemExit as error:
            return error.code, shown.getvalue(), errors.getvalue()
    return 0, shown.getvalue(), errors.getvalue()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run, as a sweep's only trial too, in which every name that a user or a stranger chooses is hostile."""
    home = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(0)
    for name, brightness in zip(CLASSES, (40, 200), strict=True):
        (home / f"data{HOSTILE}" / name).mkdir(parents=True)
        for number in range(12):
            pixels = np.clip(rng.normal(brightness, 20, (8, 8)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(home / f"data{HOSTILE}" / name / f"-{number}{HOSTILE}.png")
    (home / f"broken{HOSTILE}.png").write_bytes(b"not an image")
    with chdir(home):
        code, shown, errors = run("train", f"data{HOSTILE}", *SMALL, "--run", f"run{HOSTILE}")
    assert code == 0, errors
    (home / "trained").write_text(shown + errors, newline="")
    sweep = home / f"sweep{HOSTILE}"
    sweep.mkdir()
    data = json.dumps(str(home / f"data{HOSTILE}"))
    (sweep / "sweep.toml").write_text(f"settings = {{ data = {data}, epochs = 1 }}\ngrid = {{ seed = [0] }}\n")
    shutil.copytree(home / f"run{HOSTILE}", sweep / "trials" / "lda-seed0")
    return home


@pytest.fixture
def home(trained, monkeypatch):
    monkeypatch.chdir(trained)
    return trained


def require_printable(text):
    strange = {letter for letter in text if not letter.isprintable()} - {"\n", "\t"}
    assert not strange, repr(text)


def test_training_prints_no_control_characters(home):
    shown = (home / "trained").read_bytes().decode()
    assert "pwned" in shown
    require_printable(shown)


COMMANDS = {
    "summary": ("train", "--resume", "--run", "RUN"),
    "summary as JSON": ("train", "--resume", "--run", "RUN", "--json"),
    "another data set": ("train", "digits", "--resume", "--run", "RUN"),
    "no run to resume": ("train", "DATA", *SMALL, "--resume", "--run", "new{}"),
    "evaluate": ("evaluate", "RUN"),
    "evaluate as JSON": ("evaluate", "RUN", "--json"),
    "evaluate with a data folder": ("evaluate", "RUN", "--data-dir", "other{}"),
    "predict": ("predict", "RUN", "DATA"),
    "predict as CSV": ("predict", "RUN", "DATA", "--csv"),
    "predict as JSON": ("predict", "RUN", "DATA", "--json"),
    "predict a broken file": ("predict", "RUN", "broken{}.png"),
    "skip a broken file": ("predict", "RUN", "broken{}.png", "--skip-unreadable"),
    "predict nothing": ("predict", "RUN", "nothing{}"),
    "doctor": ("doctor", "RUN"),
    "doctor as JSON": ("doctor", "RUN", "--json"),
    "report": ("report", "RUN"),
    "report to": ("report", "RUN", "--output", "page{}.html"),
    "compare": ("report", "RUN", "RUN"),
    "report on a sweep": ("report", "SWEEP"),
    "export": ("export", "RUN", "--format", "torch"),
    "table": ("table", "SWEEP"),
    "table as Markdown": ("table", "SWEEP", "--format", "markdown"),
    "table as CSV": ("table", "SWEEP", "--format", "csv"),
    "table as JSON": ("table", "SWEEP", "--format", "json"),
    "table to": ("table", "SWEEP", "--output", "table{}.txt"),
    "data check": ("data", "check", "DATA"),
    "data check as JSON": ("data", "check", "DATA", "--json"),
    "data list": ("data", "list", "--data-dir", "sets{}"),
    "unknown data": ("train", "nothing{}"),
    "unknown network": ("network", "net{}"),
    "network of the user": ("network", "net{}:make"),
    "unknown option": ("evaluate", "RUN", "--opt{}"),
}


FAILURES = {"another data set": 2, "predict a broken file": 1, "skip a broken file": 1, "predict nothing": 2}
FAILURES |= {"unknown data": 2, "unknown network": 2, "network of the user": 2, "unknown option": 2}


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_prints_control_characters(name):
    paths = {"RUN": f"run{HOSTILE}", "DATA": f"data{HOSTILE}", "SWEEP": f"sweep{HOSTILE}"}
    code, shown, errors = run(*(paths.get(word, word.format(HOSTILE)) for word in COMMANDS[name]))
    assert code == FAILURES.get(name, 0)
    assert shown + errors
    require_printable(shown + errors)


def test_a_table_in_a_file_is_printable_too(home):
    run("table", f"sweep{HOSTILE}", "--output", "table.txt")
    require_printable((home / "table.txt").read_text())


@pytest.mark.usefixtures("home")
def test_predictions_are_not_formulas():
    _, shown, _ = run("predict", f"run{HOSTILE}", ".", "--csv", "--skip-unreadable")
    rows = list(csv.DictReader(io.StringIO(shown)))
    read = [row for row in rows if row["class"]]
    assert (len(read), len(rows)) == (24, 25)  # one file is broken
    assert {row["class"][:3] for row in read} <= {"'=c", "'@c"}
    assert all(0 < float(row["probability"]) <= 1 for row in read)
