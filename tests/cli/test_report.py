"""`deeplda report`: where it writes the page, and what it prints."""

import json
import shutil
import subprocess
import sys

import pytest
from trained_runs import image_set, row_set, train_run

from deeplda.cli import main


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    data = row_set(home / "rows.npz", ("a", "b", "c"))
    for name, alpha in (("one", 0.0), ("two", 1.0)):
        train_run(home / "sweep" / "trials" / name, data, alpha=alpha)
    (home / "sweep" / "sweep.toml").touch()
    return home


@pytest.fixture
def home(trained, monkeypatch):
    monkeypatch.chdir(trained)
    return trained


def test_a_run_is_written_and_shown(home, tmp_path, monkeypatch, capsys):
    # A browser that records what it is asked to open.
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path / "shown"}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    main(["report", "sweep/trials/one", "--open"])
    assert capsys.readouterr().out == "wrote sweep/trials/one/report.html\n"
    file = home / "sweep" / "trials" / "one" / "report.html"
    assert file.read_text().startswith("<!doctype html>")
    assert (tmp_path / "shown").read_text().strip() == file.as_uri()


@pytest.mark.usefixtures("home")
def test_without_a_browser_the_report_is_written_all_the_same(monkeypatch, capsys):
    monkeypatch.setattr("webbrowser.open", lambda _: False)
    main(["report", "sweep/trials/one", "--open"])
    assert capsys.readouterr().out.endswith("open the file yourself\n")


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (("sweep",), "sweep/report.html"),
        (("sweep/trials/one", "sweep/trials/two"), "report-compare.html"),
        (("sweep/trials/one", "sweep/trials/two", "--output", "mine.html"), "mine.html"),
    ],
)
def test_runs_are_compared(home, capsys, arguments, file):
    main(["report", *arguments])
    assert capsys.readouterr().out == f"wrote {file}\n"
    assert (home / file).read_text().count('class="scatter"') == 2


def test_a_comparison_without_an_output_overwrites_nothing(home, tmp_path, monkeypatch, capsys):
    runs = [str(home / "sweep" / "trials" / name) for name in ("one", "two")]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report-compare.html").write_text("mine")
    (tmp_path / "report-compare-2.html").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "report-compare-3.html").mkdir()
    for number in (4, 5):
        main(["report", *runs])
        assert capsys.readouterr().out == f"wrote report-compare-{number}.html\n"
        assert (tmp_path / f"report-compare-{number}.html").read_text().count('class="scatter"') == 2
    assert (tmp_path / "report-compare.html").read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("lost", ["first", "all"])
def test_lost_epochs_are_reported(home, tmp_path, lost, capsys):
    run = tmp_path / "run"
    shutil.copytree(home / "sweep" / "trials" / "one", run)
    *epochs, summary = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join([*(epochs[1:] if lost == "first" else []), summary]))
    for command in (["report", str(run), "--figures"], ["doctor", str(run)]):
        main(command)
    assert ("All epochs are missing" if lost == "all" else "is missing 1 epoch") in (run / "report.html").read_text()
    assert ("training history of this run is lost" in capsys.readouterr().out) == (lost == "all")


def test_a_damaged_environment_file_is_tolerated(home, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(home / "sweep" / "trials" / "one", run)
    environment = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps(environment | {"versions": ["a"], "threads": "many"}))
    main(["report", str(run)])


def test_figures_of_a_run(home):
    main(["report", "sweep/trials/one", "--figures"])
    names = ("confusion", "densities", "dimension-power", "eigenvalues", "embedding", "learning-curves")
    files = {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
    assert {file.name for file in (home / "sweep" / "trials" / "one" / "figures").iterdir()} == files


def test_figures_of_a_run_on_images(tmp_path):
    train_run(tmp_path / "run", image_set(tmp_path / "images.npz", ("a", "b")), objective="cce")
    main(["report", str(tmp_path / "run"), "--figures"])
    found = {file.stem for file in (tmp_path / "run" / "figures").iterdir()}
    assert found == {"confusion", "densities", "dimension-power", "embedding", "learning-curves", "mistakes"}


def test_two_classes_have_one_discriminant_and_the_second_axis_says_so(tmp_path):
    data = row_set(tmp_path / "rows.npz", ("a", "b"))
    for name in ("one", "two"):
        train_run(tmp_path / name, data)
    main(["report", str(tmp_path / "one"), "--figures"])
    assert "random spread" in (tmp_path / "one" / "figures" / "embedding.svg").read_text()
    main(["report", str(tmp_path / "one"), str(tmp_path / "two"), "--output", str(tmp_path / "both.html")])
    page = (tmp_path / "both.html").read_text()
    assert "random spread" in page
    assert "discriminant 2" not in page


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "no run was given"),
        (("sweep", "--figures"), "--figures needs a single run"),
        (("nowhere",), "is not a run"),
        (("sweep/trials/one", "--output", "nowhere/x.html"), "nowhere does not exist"),
        (("sweep/trials/one", "--output", "sweep"), "sweep is a folder"),
    ],
)
@pytest.mark.usefixtures("home")
def test_a_mistake_is_one_sentence(capsys, arguments, sentence):
    with pytest.raises(SystemExit) as left:
        main(["report", *arguments])
    assert left.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert sentence in line


def test_help_needs_no_torch(tmp_path):
    code = "import sys; from deeplda.cli import app; app(['report', '--help']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--open" in done.stdout
