"""Definitions of sweeps, and the trials that follow from them."""

import csv
import math
from pathlib import Path

import pytest

from deeplda.errors import InputError
from deeplda.experiments.sweep_definition import SweepDefinition, paper_table, trial_name
from deeplda.experiments.sweep_folder import open_sweep
from deeplda.training.config import RunConfig

RESULTS = Path(__file__).parents[2] / "results"
TENTHS = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
FIFTHS = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]


def grid(**axes):
    return SweepDefinition(grid=axes)


@pytest.mark.parametrize(("data", "batch_size", "flip"), [("stl10", 150, False), ("cifar10", 1000, True)])
@pytest.mark.parametrize(("scale", "alphas"), [("full", TENTHS), ("quick", FIFTHS)])
def test_tables_of_one_data_set(data, batch_size, flip, scale, alphas):
    definition = paper_table(data, scale)
    assert (definition.table, definition.scale, definition.data) == (data, scale, data)
    trials = definition.trials()
    expected = [("rdlda", alpha, seed) for seed in range(3) for alpha in alphas] + [("cce", None, s) for s in range(3)]
    found = [(own["objective"], own.get("alpha"), own["seed"]) for own in trials.values()]
    assert len(found) == len(expected)
    assert set(found) == set(expected)
    for own in trials.values():
        config = definition.config(own)
        assert (config.batch_size, config.flip, config.network, config.lam) == (batch_size, flip, "dorfernet", 1e-3)
        assert (config.statistic, config.scatter, config.seed) == ("smallest", "pooled", own["seed"])
        full = (1.0, 400, "halving", 0.1)
        assert ((config.width, config.epochs, config.schedule, config.learning_rate) == full) == (scale == "full")
        if scale == "quick":
            assert (config.width, config.epochs) == (0.25, 4)


@pytest.mark.parametrize(
    ("scale", "alphas", "splits", "cross_entropy"), [("full", TENTHS, [2, 3, 4], 0), ("quick", FIFTHS, [1, 2, 3, 4], 3)]
)
def test_table_of_subclasses(scale, alphas, splits, cross_entropy):
    definition = paper_table("subclasses", scale)
    assert (definition.table, definition.scale, definition.data) == ("subclasses", scale, "cifar10")
    trials = list(definition.trials().values())
    found = {(own["alpha"], own["subclasses"], own["seed"]) for own in trials if own["objective"] == "rdlda"}
    assert found == {(alpha, k, seed) for alpha in alphas for k in splits for seed in range(3)}
    assert sum(own["objective"] == "cce" for own in trials) == cross_entropy
    assert len(trials) == len(found) + cross_entropy
    assert all(definition.config(own).subclasses == own.get("subclasses", 1) for own in trials)


def test_names_contain_the_settings():
    names = list(grid(objective=["rdlda", "cce"], alpha=[0.0, 0.25], subclasses=[2], seed=[0]).trials())
    assert names == ["rdlda-alpha0-subclasses2-seed0", "rdlda-alpha0.25-subclasses2-seed0", "cce-seed0"]
    assert trial_name({"objective": "rdlda", "network": "my.net:make"}) == "rdlda-networkmy.net_make"
    assert trial_name({"alpha": 1.0, "lam": 1e-5}) == "lda-alpha1-lam1e-05"


def test_the_seed_varies_slowest():
    seeds = [own["seed"] for own in grid(alpha=[0.0, 1.0], seed=[3, 4]).trials().values()]
    assert seeds == [3, 3, 4, 4]


def test_dlda_is_alpha_1_and_run_once():
    assert list(grid(objective=["rdlda", "dlda"], alpha=[0.0, 1.0], seed=[0]).trials()) == [
        "rdlda-alpha0-seed0", "rdlda-alpha1-seed0",
    ]  # fmt: skip
    definition = SweepDefinition(settings={"alpha": 0.3}, grid={"objective": ["dlda"], "seed": [0]})
    (own,) = definition.trials().values()
    assert definition.config(own).alpha == 1.0


@pytest.mark.parametrize(
    ("settings", "own", "expected"),
    [
        ({}, {}, ("lda", 1.0, "wilks")),
        ({}, {"objective": "rdlda"}, ("rdlda", 0.6, "smallest")),
        ({}, {"objective": "dlda"}, ("dlda", 1.0, "smallest")),
        ({}, {"objective": "rdlda", "alpha": 0.2, "statistic": "pillai"}, ("rdlda", 0.2, "pillai")),
        # Without a shared objective, the shared alpha and statistic apply to every trial.
        ({"statistic": "pillai", "alpha": 0.3}, {"objective": "rdlda"}, ("rdlda", 0.3, "pillai")),
        ({"statistic": "pillai", "alpha": 0.3}, {"objective": "dlda"}, ("dlda", 1.0, "pillai")),
        # With one, they belong to it.
        ({"objective": "lda", "statistic": "pillai"}, {"alpha": 0.5}, ("lda", 0.5, "pillai")),
        ({"objective": "lda", "statistic": "pillai"}, {"objective": "rdlda"}, ("rdlda", 0.6, "smallest")),
        ({"objective": "rdlda", "alpha": 0.2}, {"objective": "lda"}, ("lda", 1.0, "wilks")),
        # The loss of lda is a part of joint.
        ({"objective": "lda", "statistic": "pillai"}, {"objective": "joint"}, ("joint", 1.0, "pillai")),
        ({"objective": "rdlda", "alpha": 0.2}, {"objective": "joint"}, ("joint", 1.0, "wilks")),
    ],
)
def test_the_meaning_of_objectives(settings, own, expected):
    config = SweepDefinition(settings=settings, grid={"seed": [0]}).config(own)
    assert (config.objective, config.alpha, config.statistic) == expected


def test_cross_entropy_accepts_the_settings_of_lda():
    settings = {"objective": "rdlda", "statistic": "smallest", "scatter": "dorfer", "alpha": 0.2}
    definition = SweepDefinition(settings=settings, grid={"objective": ["rdlda", "cce", "gce"]})
    assert [definition.config(own).objective for own in definition.trials().values()] == ["rdlda", "cce", "gce"]


def test_an_objective_as_an_axis_keeps_the_recipe_of_its_own_objective(tmp_path):
    (tmp_path / "s.toml").write_text('recipe = "quick"\n[grid]\nobjective = ["lda", "rdlda", "cce"]\nseed = [0]\n')
    definition = SweepDefinition.read(tmp_path / "s.toml")
    configs = [definition.config(own) for own in definition.trials().values()]
    assert [(config.objective, config.alpha, config.statistic) for config in configs[:2]] == [
        ("lda", 1.0, "pillai"),
        ("rdlda", 0.6, "smallest"),
    ]


def test_another_objective_in_a_file_drops_the_recipes_alpha_and_statistic(tmp_path):
    (tmp_path / "s.toml").write_text('recipe = "quick"\n[settings]\nobjective = "rdlda"\n[grid]\nseed = [0]\n')
    config = SweepDefinition.read(tmp_path / "s.toml").config({})
    assert (config.objective, config.alpha, config.statistic) == ("rdlda", 0.6, "smallest")


@pytest.mark.parametrize("objective", ["cce", "gce", "dlda"])
def test_a_search_needs_an_objective_with_alpha(objective):
    with pytest.raises(InputError, match=f"which {objective} does not have"):
        SweepDefinition.parse({"settings": {"objective": objective}, "search": {"trials": 1}}, "it")


@pytest.mark.parametrize("objective", ["lda", "rdlda", "joint"])
def test_a_search_draws_for_the_objective_it_was_given(objective):
    definition = SweepDefinition.parse({"settings": {"objective": objective}, "search": {"trials": 1}}, "it")
    assert definition.config({"alpha": 0.5, "statistic": "pillai"}).objective == objective


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*/trials.csv")), ids=lambda file: file.parent.name)
def test_committed_definitions_describe_the_trials_that_were_run(file):
    definition = SweepDefinition.read(file.with_name("sweep.toml"))
    trials = definition.trials()
    with file.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["trial"] for row in rows} <= trials.keys()
    assert definition.states_objectives()
    for row in rows:
        config = definition.config(trials[row["trial"]])
        assert (config.objective, config.seed) == (row["objective"], int(row["seed"]))
        if config.objective != "cce":
            assert config.alpha == float(row["alpha"])
            # 0.1.0, which ran them, did not write the statistic if it was the same in all trials.
            assert config.statistic == (row.get("statistic") or "pillai")


def test_any_setting_can_be_an_axis():
    definition = SweepDefinition(
        settings={"data": "digits"}, grid={"alpha": [0.5], "learning_rate": [0.1, 0.2], "seed": [0]}
    )
    configs = [definition.config(own) for own in definition.trials().values()]
    assert [config.learning_rate for config in configs] == [0.1, 0.2]
    assert "lda-alpha0.5-learning_rate0.1-seed0" in definition.trials()


def test_several_grids_in_one_sweep(tmp_path):
    (tmp_path / "s.toml").write_text(
        """
        recipe = "quick"
        [[grid]]
        statistic = ["wilks", "pillai"]
        learning_rate = [1.5]
        seed = [0, 1]
        [[grid]]
        objective = ["cce"]
        label_smoothing = [0.2]
        seed = [1, 0, 2]
        """
    )
    definition = SweepDefinition.read(tmp_path / "s.toml")
    assert list(definition.trials()) == [
        "lda-statisticwilks-learning_rate1.5-seed0", "lda-statisticpillai-learning_rate1.5-seed0",
        "cce-label_smoothing0.2-seed0",
        "lda-statisticwilks-learning_rate1.5-seed1", "lda-statisticpillai-learning_rate1.5-seed1",
        "cce-label_smoothing0.2-seed1",
        "cce-label_smoothing0.2-seed2",
    ]  # fmt: skip
    rates = {own["objective"]: definition.config(own).learning_rate for own in definition.trials().values()}
    assert rates == {"lda": 1.5, "cce": 0.5}


def test_a_trial_of_two_grids_is_run_once():
    definition = SweepDefinition(grid=[{"alpha": [0.5, 1.0], "seed": [0]}, {"alpha": [1.0], "seed": [0, 1]}])
    assert list(definition.trials()) == ["lda-alpha0.5-seed0", "lda-alpha1-seed0", "lda-alpha1-seed1"]


def test_axes_without_effect_on_an_objective_are_not_run_twice():
    found = grid(objective=["rdlda", "cce"], statistic=["wilks", "pillai"], label_smoothing=[0.0, 0.2], seed=[0])
    assert list(found.trials()) == [
        "rdlda-statisticwilks-seed0", "rdlda-statisticpillai-seed0",
        "cce-label_smoothing0-seed0", "cce-label_smoothing0.2-seed0",
    ]  # fmt: skip


def test_each_objective_has_its_own_axes():
    axes = {"alpha": [1.0], "subclasses": [2], "gce_q": [0.5], "lda_weight": [3.0], "seed": [0]}
    assert list(grid(objective=["lda", "gce", "joint"], **axes).trials()) == [
        "lda-alpha1-subclasses2-seed0", "gce-gce_q0.5-seed0", "joint-alpha1-subclasses2-lda_weight3-seed0",
    ]  # fmt: skip


def test_names_that_would_collide_are_rejected():
    with pytest.raises(InputError, match="two trials of the grid would be named"):
        grid(network=["a:b", "a/b"], seed=[0]).trials()


def test_the_trials_of_a_search_are_numbered():
    definition = SweepDefinition(search={"trials": 3, "seed": 5})
    assert definition.trials() == {"search-000": {}, "search-001": {}, "search-002": {}}


def test_written_and_read_again(tmp_path):
    file = tmp_path / "sweep.toml"
    for definition in (
        paper_table("cifar10", "quick"),
        SweepDefinition(settings={"data": 'odd "name"\x7f', "flip": True, "lam": 1e-5}, search={"trials": 2}),
        SweepDefinition(storage="postgresql+psycopg://host/db", grid={"seed": [0]}),
        SweepDefinition(grid=[{"alpha": [0.5], "seed": [0]}, {"objective": ["cce"]}]),
        SweepDefinition(settings={"epsilon": math.inf}, grid={"epsilon": [1.0, math.inf]}),
        SweepDefinition(settings={"relabel": ["/1.csv", "/2.csv"]}, grid={"seed": [0]}),
    ):
        definition.write(file)
        assert SweepDefinition.read(file) == definition
        assert definition.difference(SweepDefinition.read(file)) is None


def test_settings_and_axes_of_a_file_replace_those_of_its_recipe(tmp_path):
    (tmp_path / "s.toml").write_text('recipe = "quick"\n[settings]\nepochs = 9\n[grid]\nalpha = [0.5]\n')
    definition = SweepDefinition.read(tmp_path / "s.toml")
    assert definition.settings["epochs"] == 9
    assert definition.settings["network"] == "fastnet"
    assert "alpha" not in definition.settings


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"settings": {"epochs": 5}}, "epochs 4, not 5"),
        ({"settings": {}}, "epochs 4, now missing"),
        ({"grid": {"seed": [0, 1]}}, "grid of seed 0, not 0, 1"),
        ({"storage": "sqlite:///x"}, "no storage, which is now sqlite:///x"),
        ({"grid": [{"seed": [0]}, {"seed": [1]}]}, "grid of seed 0, now missing"),
        ({"grid": (), "search": {"trials": 2}}, "grid of seed 0, now missing"),
    ],
)
def test_differences_are_named(change, words):
    mine = {"settings": {"epochs": 4}, "grid": {"seed": [0]}}
    assert SweepDefinition(**mine).difference(SweepDefinition(**(mine | change))) == words


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[grid]\nalpha = []", "no values for alpha"),
        ("[[grid]]\nseed = [0]\n[[grid]]\nalpha = []", "no values for alpha"),
        ("grid = [1]", "grid is 1"),
        ("[grid]\nseed = [[0, 1]]", "nested list for seed"),
        ("[settings]\nseed = [1]\n[grid]\nalpha = [0.5]", "need text, a number or a boolean"),
        ("[settings]\nobjective = {a = 1}\n[grid]\nseed = [0]", "need text, a number or a boolean"),
        ("[grid]\nseed = [0]\nwidth = [1979-05-27]", "need text, a number or a boolean"),
        ("[settings]\nepochs = 1", "either a grid or a search"),
        ("[search]\ntrials = 0", "search is"),
        ("tabel = 2", "tabel is not a setting"),
        ("nonsense", "cannot be read as TOML"),
    ],
)
def test_invalid_files_are_rejected(tmp_path, text, message):
    (tmp_path / "sweep.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        SweepDefinition.read(tmp_path / "sweep.toml")


def test_invalid_settings_are_rejected():
    definition = grid(alpha=[2.0], seed=[0])
    with pytest.raises(InputError, match=r"alpha is 2\.0"):
        definition.config(next(iter(definition.trials().values())))


@pytest.mark.parametrize("settings", [{"start_from": "runs/a"}, {"extended_to": (40,)}])
def test_trials_start_anew(settings):
    with pytest.raises(InputError, match="omit start_from and extended_to"):
        SweepDefinition(grid={"seed": [0]}).config(settings)


def test_the_default_data_is_that_of_a_run():
    assert grid(seed=[0]).data == RunConfig().data


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recipe = 5", "recipe is 5"),
        ('recipe = "quick"\ngrid = 3', "grid is 3"),
        ('recipe = "quick"\nsettings = []\n[grid]\nseed = [0]', "settings is"),
        ("[grid]\nseed = [0]\nobjective = [[1]]", "objective"),
        ("[search]\ntrials = 1000000000000", "search"),
        ("[grid]\n" + "".join(f"{name} = [{'0, ' * 100}]\n" for name in ("alpha", "lam", "epsilon", "seed")), "trials"),
        ("grid = " + "[" * 10_000, "cannot be read as TOML"),
        ("table = " + "9" * 10_000, "cannot be read as TOML"),
    ],
)
def test_malicious_definitions_are_rejected(tmp_path, text, message):
    (tmp_path / "sweep.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        open_sweep(tmp_path)


def test_names_stay_inside_their_folder_and_short():
    for value in ("../../x", "/etc/passwd", "..", "a" * 300, "é" * 300, "a\0b"):
        name = trial_name({"objective": "rdlda", "data": value, "seed": 0})
        assert "/" not in name
        assert "\0" not in name
        assert len(name.encode()) < 230
        assert name.startswith("rdlda-")
    long = {"objective": "rdlda", "data": "a" * 300}
    assert trial_name(long) != trial_name(long | {"data": "a" * 301})


def test_a_password_in_the_file_is_rejected_and_not_shown(tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text('storage = "postgresql+psycopg://me:secret@host/db"\n[grid]\nseed = [0]\n')
    with pytest.raises(InputError, match="omit them from the file") as error:
        SweepDefinition.read(file)
    assert "secret" not in str(error.value)


def test_stl10_at_the_papers_length_has_its_schedule():
    long, full = paper_table("stl10", "long"), paper_table("stl10", "full")
    trials = long.trials()
    assert {(own["objective"], own.get("alpha")) for own in trials.values()} == {
        ("rdlda", 0.0), ("rdlda", 0.6), ("rdlda", 1.0), ("cce", None),
    }  # fmt: skip
    assert trials.keys() <= full.trials().keys()
    for name, own in trials.items():
        ours, papers = long.config(own), full.config(full.trials()[name])
        changed = {key for key in type(ours).model_fields if getattr(ours, key) != getattr(papers, key)}
        assert changed == {"width", "image_size", "evaluate_every", "precision"}
        assert (ours.width, ours.image_size, ours.evaluate_every, ours.epochs) == (0.25, 32, 5, 400)
        assert ours.precision == "bfloat16"


def test_tables_have_the_numbers_of_earlier_files():
    for number, name in ((1, "stl10"), (2, "cifar10"), (3, "subclasses")):
        assert SweepDefinition.parse({"table": number, "grid": {"seed": [0]}}, "x").table == name
    with pytest.raises(InputError, match="table is 4"):
        SweepDefinition.parse({"table": 4, "grid": {"seed": [0]}}, "x")
