"""The command line as a whole: help, mistakes and missing extras."""

import json
import subprocess
import sys

import pytest
from command import deeplda, only_sentence

from deeplda.cli import app
from deeplda.data import KNOWN
from deeplda.extras import EXTRAS
from missing_modules import run_without

MAIN = "from deeplda.__main__ import main; main()"


def test_the_extras_name_every_command():
    assert {name for name in app if not name.startswith("-")} == set(EXTRAS["cli"].commands)


@pytest.mark.parametrize("command", EXTRAS["cli"].commands)
def test_a_command_without_its_extra_says_what_to_install(command, tmp_path):
    line = only_sentence(run_without(EXTRAS["cli"].modules, MAIN, command, cwd=tmp_path))
    assert line.startswith(f"deeplda: {command} needs the command-line extra")
    assert line.endswith("pip install 'deeplda[cli]'")


def test_without_one_module_or_a_command(tmp_path):
    assert "matplotlib is not installed" in only_sentence(run_without(["matplotlib"], MAIN, "--help", cwd=tmp_path))
    assert "pip install 'deeplda[cli]'" in only_sentence(run_without(["cyclopts"], MAIN, cwd=tmp_path))


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ("sweep", ("sweep", "digits")),
        ("tensorboard", ("train", "--tensorboard")),
        ("export", ("export", "runs/digits")),
    ],
)
def test_other_extras_are_needed_only_by_their_commands(extra, arguments, home):
    hidden = EXTRAS[extra].modules
    assert f"pip install 'deeplda[{extra}]'" in only_sentence(run_without(hidden, MAIN, *arguments, cwd=home))
    assert run_without(hidden, MAIN, arguments[0], "--help", cwd=home).returncode == 0


def test_help_needs_no_torch(tmp_path):
    code = "import sys; from deeplda.cli import app; app(['--help']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    for command in EXTRAS["cli"].commands:
        assert command in done.stdout
    assert "deeplda train photos/" in done.stdout


@pytest.mark.parametrize("command", [*EXTRAS["cli"].commands, "data list", "data fetch", "data check"])
def test_help_of_each_command_shows_an_example(command, capsys):
    app([*command.split(), "--help"])
    assert f"Example: deeplda {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "--run", "runs/digits"), "already contains a run: pass --resume"),
        (("train", "--resume", "--run", "runs/digits", "--alpha", "0.1"), "with alpha 1.0, not with alpha 0.1"),
        (
            ("train", "--resume", "--run", "runs/digits", "--recipe", "quick"),
            "resume it with deeplda train --resume --run",
        ),
        (("train", "--alpah", "1"), "Did you mean"),
        (("train", "--alpha", "1.5"), "alpha is '1.5'"),
        (("train", "--statistic", "wilk"), "statistic is 'wilk'"),
        (("train", "--objective", "dlda", "--alpha", "0.5"), "dlda has no alpha"),
        (("train", "nowhere/"), "nowhere/ does not exist"),
        (("train", 300 * "é"), "is too long for the file system"),
        (("train", "--run", 300 * "é"), "is too long for the file system"),
        (("train", "--recipe", 300 * "é"), "is too long for the file system"),
        (("predict", "runs/digits", 300 * "é"), "is too long for the file system"),
        (("train", "cifar"), "did you mean cifar10?"),
        (("train", "~nobody-of-that-name/photos"), "unknown user"),
        (("sweep", "cifar10", "--data-dir", "~nobody-of-that-name"), "unknown user"),
        (("train", "--recipe", "quik"), "did you mean 'quick'?"),
        (("train", "--device", "cuda:7"), "device 'cuda:7'"),
        (("train", "--device", "meta"), "device 'meta'"),
        (("train", "--split-seed", "99999999999999999999"), "split_seed is"),
        (("train", "--translate", "9223372036854775807"), "translate is"),
        (("train", "--learning-rate", "1e300"), "learning_rate is"),
        (("train", "--processes", "1.5"), "1.5"),
        (("train", "--processes", "0"), "--processes must be at least 1, got 0"),
        (("train", "--run", "runs/digits/run.toml"), "runs/digits/run.toml is a file"),
        (("predict", "runs/digits", "/dev/null"), "/dev/null is neither a file nor a folder"),
        (("train", "--network", "dorfernet"), "24"),
        (("train", "a.csv", "b.csv"), "the command takes no further argument such as 'b.csv': see --help"),
        (("train", "my_data.py:blobs"), "need module.path:name: leave out .py, as in my_data:blobs"),
        (("trian",), 'Did you mean "train"?'),
        (("train", "--run", "runs/digits/model"), "but no run, need a new or empty folder"),
        (("evaluate", "nothing"), "nothing is not a run"),
        (("evaluate", "runs/digits/model"), "runs/digits/model is not a run"),
        (("predict", "runs/digits", "images", "--csv", "--json"), "omit one of them"),
        (("predict", "nothing", "images"), "there is no folder nothing"),
        (("predict", "runs/digits"), "no files were given"),
        (("predict", "runs/digits", "nowhere.png"), "nowhere.png does not exist"),
        (("network", "--input", "3by3"), "is not a shape"),
        (("network", "--embedding-dim", "9.9"), "9.9"),
        (("network", "--width", "10000"), "does not fit in memory"),
        (("data", "fetch", "digits"), "scikit-learn"),
    ],
)
def test_a_mistake_gets_one_sentence(home, arguments, message):
    before = sorted((home / "runs").iterdir())
    assert message in only_sentence(deeplda(*arguments, cwd=home))
    assert sorted((home / "runs").iterdir()) == before


def test_network_and_data_commands(tmp_path):
    found = json.loads(deeplda("network", "dorfernet", "--json", cwd=tmp_path, check=0).stdout)
    assert found["parameters"] == sum(layer["parameters"] for layer in found["layers"]) == 5_749_204
    assert "1024" in deeplda("network", cwd=tmp_path, check=0).stdout
    shown = deeplda("data", "list", "--data-dir", tmp_path, cwd=tmp_path, check=0).stdout
    assert "digits" in shown
    assert f"missing: run deeplda data fetch stl10 --data-dir {tmp_path}" in shown
    listed = json.loads(deeplda("data", "list", "--json", "--data-dir", tmp_path, cwd=tmp_path, check=0).stdout)
    assert listed == {"data": {name: name == "digits" for name in KNOWN}}
    assert deeplda("data", "check", "digits", cwd=tmp_path, check=0).stdout.startswith("ok")
