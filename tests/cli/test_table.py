"""`deeplda table` on a sweep that was run."""

import json
import subprocess
import sys

import pytest

from deeplda.cli import main


def table(capsys, *arguments):
    main(["table", *map(str, arguments)])
    return capsys.readouterr()


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home") / "sweep"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder.parent)
        settings = "--epochs 1 --width 0.1 --batch-size 400 --quiet"
        main(f"sweep --objectives rdlda,cce --alphas 0,1 --seeds 0,1 {settings} --sweep {folder}".split())
    return folder


def test_text_is_the_default(sweep, capsys):
    shown = table(capsys, sweep).out
    assert "RDLDA alpha=0" in shown
    assert "DLDA (alpha=1)" in shown
    assert "over 2 seeds" in shown


def test_the_numbers_are_those_of_the_runs(sweep, capsys):
    found = json.loads(table(capsys, sweep, "--format", "json").out)
    for row in found["rows"]:
        name = "cce" if row["alpha"] is None else f"rdlda-alpha{row['alpha']:g}"
        summaries = [
            json.loads((sweep / "trials" / f"{name}-seed{seed}" / "metrics.jsonl").read_text().splitlines()[-1])
            for seed in (0, 1)
        ]
        for predictor, spread in row["test"].items():
            values = [summary["test"]["predictors"][predictor]["accuracy"] for summary in summaries]
            assert spread["mean"] == pytest.approx(sum(values) / 2)
        assert row["validation"]["mean"] == pytest.approx(sum(s["validation"]["accuracy"] for s in summaries) / 2)
    best = max((row for row in found["rows"] if row["alpha"] is not None), key=lambda row: row["validation"]["mean"])
    assert best["chosen"]


def test_written_to_a_file(sweep, capsys, tmp_path):
    shown = table(capsys, sweep, "--format", "markdown", "--output", tmp_path / "deep" / "table.md")
    assert shown.out == ""
    assert (tmp_path / "deep" / "table.md").read_text().startswith("### digits")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "nowhere is not a sweep"),
        (("nowhere", "--format", "xml"), "--format"),
        (("nowhere", "--output", "."), ". is a folder"),
        ((), "SWEEP"),
    ],
)
def test_mistakes(arguments, message, capsys):
    with pytest.raises(SystemExit) as left:
        main(["table", *arguments])
    assert left.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize("command", ["table", "report"])
def test_reading_a_sweep_does_not_need_optuna(sweep, command):
    code = (
        "import sys; sys.modules['optuna'] = None; from deeplda.cli import main;"
        f"main({[command, str(sweep)]!r}); sys.exit('deeplda.experiments.trial_queue' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=sweep, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
