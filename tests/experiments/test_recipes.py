"""Recipes: all valid, and the paper's as the paper has them."""

import pytest

from deeplda.errors import InputError
from deeplda.experiments.recipes import RECIPES, read_recipe
from deeplda.training.config import RunConfig


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_a_valid_setting(name):
    RunConfig.parse(read_recipe(name), name)


@pytest.mark.parametrize(
    ("name", "batch_size", "epochs", "outputs", "flip"),
    [("paper-cifar10", 1000, 400, 10, True), ("paper-stl10", 150, 400, 10, False), ("paper-xray", 100, 200, 2, False)],
)
def test_the_papers_settings(name, batch_size, epochs, outputs, flip):
    config = RunConfig.parse(read_recipe(name), name)
    assert (config.batch_size, config.epochs, config.embedding_dim, config.flip) == (batch_size, epochs, outputs, flip)
    assert (config.learning_rate, config.schedule, config.halve_every) == (0.1, "halving", 25)
    assert (config.momentum, config.weight_decay, config.lam, config.epsilon) == (0.9, 1e-4, 1e-3, 1.0)
    assert (config.network, config.width, config.sampler, config.statistic) == (
        "dorfernet", 1.0, "shuffle", "smallest",
    )  # fmt: skip
    assert (config.scatter, config.class_weight, config.translate) == ("pooled", None, 0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("paper-stl10", ("rdlda", 0.2, "smallest")),
        ("paper-cifar10", ("rdlda", 0.6, "smallest")),
        ("paper-xray", ("rdlda", 0.6, "smallest")),
        ("quick", ("lda", 1.0, "pillai")),
        ("fast-cifar10", ("lda", 1.0, "pillai")),
        ("record-cifar10", ("lda", 1.0, "pillai")),
    ],
)
def test_every_recipe_states_its_objective(name, expected):
    settings = read_recipe(name)
    assert (settings["objective"], settings["alpha"], settings["statistic"]) == expected


def test_your_own_recipe(tmp_path):
    (tmp_path / "mine.toml").write_text("alpha = 0.1\n")
    assert read_recipe(str(tmp_path / "mine.toml")) == {"alpha": 0.1}
    (tmp_path / "wrong.toml").write_text("alpha = 7\n")
    with pytest.raises(InputError, match="alpha is 7"):
        read_recipe(str(tmp_path / "wrong.toml"))
    with pytest.raises(InputError, match="did you mean 'quick'"):
        read_recipe("quikc")
