"""Settings: written and read again, mistakes named."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeplda.errors import InputError
from deeplda.training.config import AutoencoderConfig, FitConfig, RunConfig, layer_sizes, merged, with_absolute_paths
from deeplda.training.optim import learning_rate


def test_toml_is_read_back_as_written(tmp_path):
    more = {"start_from": tmp_path / "a", "start_hash": "1f", "extended_to": (40, 50), "drop": (tmp_path / "a.csv",)}
    config = RunConfig(data='a "strange" näme\\', epsilon=math.inf, patience=3, data_dir=tmp_path, lam=1e-9, **more)
    (tmp_path / "run.toml").write_text(config.to_toml())
    assert RunConfig.read(tmp_path / "run.toml") == config


def test_decision_files_are_a_list_or_the_one_path_of_earlier_versions(tmp_path):
    several = RunConfig(relabel=("/1.csv", "/2.csv"))
    assert 'relabel = ["/1.csv", "/2.csv"]\n' in several.to_toml()
    assert "drop" not in several.to_toml()
    (tmp_path / "run.toml").write_text('relabel = "/1.csv"\ndrop = "/2.csv"\n')
    assert RunConfig.read(tmp_path / "run.toml") == RunConfig(relabel=(Path("/1.csv"),), drop=(Path("/2.csv"),))


def test_paths_of_decision_files_are_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.csv").touch()
    found = with_absolute_paths({"relabel": (Path("a.csv"), Path("missing.csv")), "drop": "a.csv"})
    assert RunConfig(**found) == RunConfig(relabel=(tmp_path / "a.csv", "missing.csv"), drop=(tmp_path / "a.csv",))


@given(st.text(max_size=30))
def test_any_name_of_data_survives(name):
    import tomllib

    assert tomllib.loads(RunConfig(data=name).to_toml())["data"] == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alpha = 2", "alpha is 2: input should be less than or equal to 1"),
        ("alhpa = 1", "alhpa is not a setting"),
        ("gce_q = 0", "gce_q is 0: input should be greater than 0"),
        ('epochs = "many"', "epochs is 'many'"),
        ("alpha = [", "cannot be read as TOML"),
        ('objective = "dlda"\nalpha = 0.5', "dlda has no alpha"),
        ('scatter = "dorfer"\nstatistic = "wilks"', "scatter is 'dorfer'"),
        ("train_on_all = true\npatience = 3", "patience needs the validation set"),
        ("epochs = 20\nextended_to = [30, 25]", r"extended_to is \[30, 25\]: need ascending numbers above epochs"),
        ("epochs = 20\nextended_to = [20]", r"extended_to is \[20\]: need ascending numbers above epochs"),
    ],
)
def test_mistakes_are_named_on_one_line(tmp_path, text, message):
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        RunConfig.read(tmp_path / "run.toml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "sizes"), [("128", (128,)), ("64, 32,1", (64, 32, 1)), ("none", ())])
def test_sizes_of_hidden_layers(text, sizes):
    assert layer_sizes(FitConfig(hidden_layer_sizes=text).hidden_layer_sizes) == sizes


@pytest.mark.parametrize("text", ["", "0", "64,", "64x32", "-3", "1.5", "9" * 10, "None"])
def test_other_texts_are_not_sizes_of_hidden_layers(text):
    with pytest.raises(InputError, match=r"hidden_layer_sizes is '.*': need positive integers separated by commas"):
        FitConfig.parse({"hidden_layer_sizes": text}, "here")


def test_dlda_is_alpha_one():
    assert RunConfig(objective="dlda").alpha == 1.0


def test_lda_and_joint_share_alpha_and_statistic():
    quick = {"objective": "lda", "alpha": 0.5, "statistic": "pillai", "lam": 0.1}
    assert merged(quick, {"objective": "joint"}) == quick | {"objective": "joint"}
    assert merged(quick, {"objective": "rdlda"}) == {"objective": "rdlda", "lam": 0.1}
    assert merged(quick, {"objective": "gce"}) == {"objective": "gce", "lam": 0.1}
    assert merged({"statistic": "pillai"}, {"objective": "joint"}) == {"objective": "joint", "statistic": "pillai"}


def test_an_extension_belongs_to_its_epochs_and_a_hash_to_its_weights():
    base = {"epochs": 20, "extended_to": (30,), "start_from": "a", "start_hash": "1f"}
    assert merged(base, {"lam": 0.1}) == base | {"lam": 0.1}
    assert merged(base, {"epochs": 40}) == {"epochs": 40, "start_from": "a", "start_hash": "1f"}
    assert merged(base, {"start_from": "b"}) == {"epochs": 20, "extended_to": (30,), "start_from": "b"}


def test_an_autoencoder_has_no_settings_for_label_noise():
    """Its batches depend on the labels, so it is the fingerprint of the data that tells one from the other."""
    clean, noisy = (AutoencoderConfig.of(RunConfig(split_seed=3, label_noise=noise)) for noise in (0.0, 0.4))
    assert noisy.to_toml() == clean.to_toml()
    assert clean.split_seed == 3
    assert "noise" not in clean.to_toml()


def test_the_papers_schedule_halves():
    config = RunConfig(schedule="halving", learning_rate=0.1, halve_every=25, epochs=400)
    rates = [learning_rate(config, epoch * 10, 10) for epoch in (0, 24, 25, 50, 399)]
    assert rates == pytest.approx([0.1, 0.1, 0.05, 0.025, 0.1 / 2**15])


def test_one_cycle_rises_and_falls():
    config = RunConfig(schedule="one-cycle", learning_rate=1.0, epochs=10)
    rates = [learning_rate(config, step, 10) for step in range(100)]
    assert max(rates) == rates[25]
    assert rates[0] == pytest.approx(0.1)
    assert rates[:26] == sorted(rates[:26])
    assert rates[26:] == sorted(rates[26:], reverse=True)
    assert 0 < rates[-1] < 0.02
