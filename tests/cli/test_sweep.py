"""`deeplda sweep` as users run it."""

import json
import subprocess
import sys

import pytest
from PIL import Image

from deeplda.cli import main
from deeplda.experiments.sweep_definition import SweepDefinition, paper_table

# A network that moves the sweep's folder during its training.
MOVER = """
import os
from torch import nn
from deeplda.networks import build_network

class Mover(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        if self.training and os.path.exists("s") and not os.path.exists("moved"):
            os.rename("s", "moved")
        return self.network(x)

def make(shape, embedding_dim, width=1.0):
    return Mover(build_network("convnet-small", shape, embedding_dim, width=width))
"""
TINY = ("--epochs", "1", "--width", "0.1", "--batch-size", "400", "--learning-rate", "0.1")


@pytest.fixture
def sweep(tmp_path, monkeypatch, capsys):
    """Runs `deeplda sweep` in a folder of its own; gives its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = 0
        try:
            main(["sweep", *arguments])
        except SystemExit as left:
            code = left.code
        return code, *capsys.readouterr()

    return run


class AskedError(Exception):
    """What would have been run."""


@pytest.fixture
def defined(tmp_path, monkeypatch):
    """What `deeplda sweep` would run: the folder and the definition."""
    monkeypatch.chdir(tmp_path)

    def refuse(folder, definition, *_, **__):
        raise AskedError(str(folder), definition)

    monkeypatch.setattr("deeplda.cli.sweep._run", refuse)

    def define(*arguments):
        with pytest.raises(AskedError) as asked:
            main(["sweep", *arguments])
        return asked.value.args

    return define


def test_images_of_your_own_have_settings_from_the_data_and_fixed_epochs(defined, tmp_path):
    for number in range(40):
        place = tmp_path / "photos" / ("cat", "dog")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (30 + number, 50)).save(place / f"{number}.png")
    _, definition = defined("photos", "--width", "0.3")
    settings = definition.config(next(iter(definition.trials().values())))
    assert (settings.network, settings.image_size, settings.width) == ("fastnet", 48, 0.3)
    # There are 28 training images, so a batch is an epoch.
    assert (settings.batch_size, settings.epochs) == (64, 300)
    _, again = defined("photos", "--width", "0.3")
    assert again == definition
    _, search = defined("photos", "--search", "3")
    assert search.settings["epochs"] == 300
    _, as_before = defined("photos", "--epochs", "2")
    assert as_before.settings.keys() == {"data", "epochs"}


def test_a_grid_from_start_to_end(sweep, tmp_path):
    arguments = ("--alphas", "0,0.5", "--objectives", "rdlda,dlda,cce", "--seeds", "3", *TINY)
    code, output, errors = sweep(*arguments, "--json")
    assert code == 0, errors
    found = json.loads(output)
    assert set(found["done"]) == {"rdlda-alpha0-seed3", "rdlda-alpha0.5-seed3", "dlda-seed3", "cce-seed3"}
    assert (found["sweep"], found["scale"], found["failed"], found["left"]) == ("sweeps/digits", None, {}, 0)
    assert found["best"]["validation"] == max(found["done"].values())
    assert "rdlda-alpha0-seed3: done, validation" in errors
    assert (tmp_path / "sweeps/digits/trials/dlda-seed3/run.toml").read_text().count("alpha = 1.0") == 1

    journal = (tmp_path / "sweeps/digits/journal.jsonl").read_text()
    code, output, errors = sweep(*arguments)
    assert code == 0
    assert "4 of 4 done" in output
    assert "deeplda table sweeps/digits" in output
    assert journal.count('"op_code":4') == (tmp_path / "sweeps/digits/journal.jsonl").read_text().count('"op_code":4')
    assert "Warning" not in errors

    code, output, errors = sweep("--sweep", "sweeps/digits", "--quiet")
    assert (code, errors) == (0, "")


def test_a_failed_trial_gives_exit_code_1_and_the_others_continue(sweep, tmp_path):
    (tmp_path / "mine").mkdir()
    SweepDefinition(settings={"epochs": 1}, grid={"network": ["dorfernet", "convnet-small"], "seed": [0]}).write(
        tmp_path / "mine" / "sweep.toml"
    )
    code, output, errors = sweep("--sweep", "mine", "--json")
    assert code == 1
    found = json.loads(output)
    assert list(found["done"]) == ["lda-networkconvnet-small-seed0"]
    assert list(found["failed"]) == ["lda-networkdorfernet-seed0"]
    last = errors.splitlines()[-1]
    assert last.startswith("deeplda: 1 of 2 trials failed; the first was lda-networkdorfernet-seed0: ")
    assert last.endswith("--retry")


def test_a_search(sweep):
    code, output, errors = sweep("--search", "2", "--seeds", "4", *TINY, "--json")
    assert code == 0, errors
    found = json.loads(output)
    assert set(found["done"]) == {"search-000", "search-001"}
    assert found["sweep"] == "sweeps/digits-search"
    assert set(found["best"]["settings"]) == {"alpha", "lam", "learning_rate", "statistic"}


@pytest.mark.parametrize("table", ["stl10", "cifar10", "subclasses"])
def test_the_papers_tables(defined, table):
    folder, definition = defined("--table", table)
    assert folder == f"sweeps/table-{table}"
    assert definition == paper_table(table, "full")
    folder, definition = defined("--table", table, "--scale", "quick", "--seeds", "5")
    assert folder == f"sweeps/table-{table}-quick"
    (grid,) = paper_table(table, "quick").grids
    assert definition.grids == (grid | {"seed": [5]},)
    assert definition.scale == "quick"


@pytest.mark.parametrize(("number", "name"), [("1", "stl10"), ("2", "cifar10"), ("3", "subclasses")])
def test_numbers_are_old_names_of_the_tables(defined, capsys, number, name):
    assert defined("--table", number) == defined("--table", name)
    assert f"note: --table {number} is deprecated, use --table {name}" in capsys.readouterr().err


def test_stl10_at_the_papers_length(defined):
    folder, definition = defined("--table", "stl10", "--scale", "long")
    assert (folder, definition) == ("sweeps/table-stl10-long", paper_table("stl10", "long"))


def test_a_table_with_other_settings_is_marked(defined):
    assert defined("--table", "cifar10", "--device", "cpu")[1].scale == "full"
    folder, definition = defined("--table", "cifar10", "--epochs", "3")
    assert (folder, definition.scale) == ("sweeps/table-cifar10-changed", "changed")
    assert definition.settings["epochs"] == 3
    assert defined("--table", "cifar10", "--scale", "quick", "--epochs", "3")[1].scale == "changed"


def test_arguments_make_the_definition(defined, tmp_path):
    (tmp_path / "photos").mkdir()
    folder, definition = defined("photos", "--recipe", "quick", "--subclasses", "1,auto", "--lam", "0.01")
    assert folder == "sweeps/photos"
    assert definition.settings["data"] == str(tmp_path / "photos")
    assert definition.settings["lam"] == 0.01
    assert definition.settings["network"] == "fastnet"
    assert "alpha" not in definition.settings
    (grid,) = definition.grids
    assert grid == {
        "objective": ["lda", "cce"],
        "subclasses": [1, "auto"],
        "alpha": [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0],
        "seed": [0, 1, 2],
    }
    assert defined("--objectives", "cce")[1].grids == ({"objective": ["cce"], "seed": [0, 1, 2]},)
    assert defined("--objectives", "dlda")[1].grids == ({"objective": ["dlda"], "seed": [0, 1, 2]},)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), {("lda", "wilks")}),
        (("--objectives", "lda,rdlda,cce"), {("lda", "wilks"), ("rdlda", "smallest")}),
        (("--objectives", "dlda"), {("dlda", "smallest")}),
        (("--recipe", "quick"), {("lda", "pillai")}),
        (("--recipe", "paper-stl10"), {("rdlda", "smallest")}),
        (("--recipe", "quick", "--objectives", "lda,rdlda"), {("lda", "pillai"), ("rdlda", "smallest")}),
        (("--statistic", "hotelling", "--objectives", "lda,rdlda"), {("lda", "hotelling"), ("rdlda", "hotelling")}),
        (("--recipe", "quick", "--statistic", "wilks", "--objectives", "rdlda,cce"), {("rdlda", "wilks")}),
        (("--table", "cifar10", "--objectives", "lda,rdlda,cce"), {("lda", "wilks"), ("rdlda", "smallest")}),
        (("--table", "cifar10", "--statistic", "wilks"), {("rdlda", "wilks")}),
    ],
)
def test_the_statistic_of_each_objective(defined, arguments, expected):
    definition = defined(*arguments)[1]
    configs = [definition.config(own) for own in definition.trials().values()]
    assert {(config.objective, config.statistic) for config in configs if config.objective != "cce"} == expected
    if "--objectives" not in arguments:
        assert any(config.objective == "cce" for config in configs)


@pytest.mark.parametrize("recipe", ["quick", "paper-stl10"])
def test_a_search_is_of_the_general_objective(defined, recipe):
    definition = defined("--search", "2", "--recipe", recipe)[1]
    assert definition.config({"alpha": 0.3, "statistic": "wilks"}).objective == "lda"


def test_a_search_keeps_objective_joint(defined, tmp_path):
    (tmp_path / "joint.toml").write_text('objective = "joint"\nlda_weight = 0.5')
    config = defined("--search", "2", "--recipe", "joint.toml")[1].config({"alpha": 0.3, "statistic": "wilks"})
    assert (config.objective, config.lda_weight) == ("joint", 0.5)


def test_joint_has_values_of_alpha_and_gce_has_none(defined):
    definition = defined("--objectives", "joint,gce", "--alphas", "0.5,1", "--seeds", "0")[1]
    assert list(definition.trials()) == ["joint-alpha0.5-seed0", "joint-alpha1-seed0", "gce-seed0"]


def test_without_optuna_one_sentence_says_what_to_install(sweep, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    code, output, errors = sweep(*TINY)
    assert (code, output) == (2, "")
    (line,) = errors.splitlines()
    assert "pip install 'deeplda[sweep]'" in line


def test_without_file_locks_a_sweep_runs_with_a_warning(tmp_path):
    """As on Windows."""
    arguments = ["sweep", "--objectives", "cce", "--seeds", "0", *TINY, "--quiet"]
    code = f"import sys; sys.modules['fcntl'] = None; from deeplda.cli import main; main({arguments})"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 of 1 done" in done.stdout
    lines = done.stderr.splitlines()
    assert all(line.startswith("deeplda: ") for line in lines)
    assert "sweeps/digits cannot be locked" in lines[0]


def test_a_known_name_wins_over_a_folder_and_paths_are_absolute(defined, tmp_path):
    (tmp_path / "digits").mkdir()
    settings = defined("digits", "--data-dir", "digits")[1].settings
    assert (settings["data"], settings["data_dir"]) == ("digits", str(tmp_path / "digits"))


def test_a_search_with_the_scatters_of_dorfer(defined):
    definition = defined("--search", "2", "--scatter", "dorfer", "--statistic", "smallest")[1]
    assert definition.config({}).scatter == "dorfer"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--alphas", "0,x"), "alphas is '0,x'"),
        (("--alphas", "0,2"), "alpha is 2.0"),
        (("--alpha", "0.5"), "Did you mean --alphas?"),
        (("--seeds", ""), "seeds is ''"),
        (("--objectives", "rdlda,ccee"), "objectives contains 'ccee'"),
        (("--objectives", "cce", "--alphas", "0"), "--alphas applies only to lda, rdlda and joint"),
        (("--workers", "0"), "workers is 0"),
        (("--table", "4"), "stl10"),
        (("--table", "cifar10", "--scale", "long"), "table cifar10 has no scale long: use --scale quick"),
        (("--scale", "quick"), "needs --table"),
        (("cifar10", "--table", "cifar10"), "omit data cifar10"),
        (("--table", "cifar10", "--search", "3"), "omit search 3"),
        (("--search", "0"), "search"),
        (("--search", "3", "--alphas", "0"), "a search has no axis alpha"),
        (("--search", "3", "--seeds", "0,1"), "a search uses a single seed"),
        (("--search", "3", "--lam", "0.5"), "a search draws lam itself"),
        (("--search", "3", "--statistic", "pillai"), "a search draws statistic itself"),
        (("--search", "3", "--scatter", "dorfer", "--statistic", "smallest", "--lam", "0"), "draws lam itself"),
        (("--search", "3", "--recipe", "cce.toml"), "which objective cce does not have"),
        (("--search", "1.5"), "1.5"),
        (("--workers", "1.5"), "1.5"),
        (("--storage", "postgresql://host:abc/db", *TINY), "storage is not the URL"),
        (("nowhere/",), "nowhere/ does not exist"),
        (("--recipe", "quik"), "did you mean 'quick'?"),
        (("--network", "dorfernet"), "24"),
        (("--epochs", "-1"), "epochs is"),
        (("--storage", "nonsense", *TINY), "storage is not the URL"),
        (("--sweep", "typo"), "typo is not a sweep folder"),
        (("--sweep", ".", *TINY), "need a new or empty folder, or a sweep"),
        (("--storage", "postgresql+psycopg://me:secret@host/db", *TINY), "DEEPLDA_STORAGE"),
        (("--train-on-all", *TINY), "pass --no-train-on-all"),
        (("--storage", "sqlite:///x.db", *TINY), "two workers can take the same trial"),
    ],
)
def test_mistakes_give_one_sentence(sweep, arguments, message, tmp_path):
    (tmp_path / "cce.toml").write_text('objective = "cce"')
    code, output, errors = sweep(*arguments)
    assert code == 2, errors
    assert output == ""
    (line,) = errors.splitlines()
    assert line.startswith("deeplda: ")
    assert message in line
    assert "secret" not in line
    assert [file.name for file in tmp_path.iterdir()] == ["cce.toml"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql+psycopg://deep:sec@ret@127.0.0.1:1/db", "%40"),
        ("postgresql+psycopg://deep:sec?ret@127.0.0.1:1/db", "%3F"),
        ("postgresql+psycopg://deep:secret@127.0.0.1:1/db", "postgresql+psycopg://127.0.0.1:1/db cannot be used"),
        ("deep:secret@127.0.0.1:1/db", "storage is not the URL"),
    ],
)
def test_a_mistake_in_the_url_of_the_environment_gives_one_sentence(sweep, monkeypatch, url, message):
    monkeypatch.setattr("deeplda.experiments.sweep_storage._TRIES", 1)
    monkeypatch.setenv("DEEPLDA_STORAGE", url)
    code, output, errors = sweep(*TINY)
    assert (code, output) == (2, "")
    (line,) = errors.splitlines()
    assert message in line
    assert "sec" not in line
    assert "ret" not in line


def test_a_sweep_in_its_folder_does_not_use_the_database_of_the_environment(sweep, monkeypatch):
    assert sweep("--objectives", "cce", "--seeds", "0", *TINY)[0] == 0
    monkeypatch.setenv("DEEPLDA_STORAGE", "postgresql+psycopg://deep:secret@127.0.0.1:1/db")
    code, _, errors = sweep("--sweep", "sweeps/digits")
    assert code == 2
    assert "unset DEEPLDA_STORAGE" in errors
    assert "secret" not in errors


def test_a_note_in_the_journal_cannot_control_the_terminal(sweep, tmp_path):
    (tmp_path / "mine").mkdir()
    SweepDefinition(settings={"epochs": 1}, grid={"network": ["dorfernet"], "seed": [0]}).write(
        tmp_path / "mine" / "sweep.toml"
    )
    assert sweep("--sweep", "mine")[0] == 1
    journal = tmp_path / "mine" / "journal.jsonl"
    journal.write_text(journal.read_text().replace('"error":"', r'"error":"\u001b]0;gotcha\u0007'))
    assert "gotcha" in journal.read_text()
    for arguments in ((), ("--quiet",), ("--json",)):
        code, output, errors = sweep("--sweep", "mine", *arguments)
        assert code == 1
        assert "gotcha" in errors
        assert not {"\x1b", "\x07"} & set(output + errors)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_moved_sweep_ends_in_one_sentence(sweep, tmp_path, workers):
    """Each worker says it, and then the command."""
    (tmp_path / "mover.py").write_text(MOVER)
    code, _, errors = sweep(
        "--network", "mover:make", "--objectives", "cce", "--seeds", "0,1", "--sweep", "s", "--workers", workers, *TINY
    )
    assert code == 2
    last = errors.splitlines()[-1]
    assert "was moved, run the command again with its new path" in last
    assert "Traceback" not in errors
    assert (tmp_path / "moved" / "sweep.toml").exists()
    assert not (tmp_path / "s" / "journal.jsonl").exists()


def test_another_command_in_the_same_folder_is_rejected(sweep):
    assert sweep("--alphas", "0", "--objectives", "rdlda", "--seeds", "0", *TINY)[0] == 0
    code, _, errors = sweep("--alphas", "0", "--objectives", "rdlda", "--seeds", "0,1", *TINY)
    assert code == 2
    assert "sweeps/digits was defined with grid of seed 0, not 0, 1" in errors


def test_help_needs_no_torch_and_shows_examples(tmp_path):
    code = (
        "import sys; from deeplda.cli import app; app(['sweep', '--help']); app(['table', '--help']);"
        "sys.exit('torch' in sys.modules or 'optuna' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "deeplda sweep " in done.stdout
    assert "deeplda table " in done.stdout
    assert "--alpha " not in done.stdout
