"""A damaged or forged model folder is rejected in one sentence."""

import errno
import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file

from deeplda import load
from deeplda.errors import InputError
from small_model import digits, small_model


@pytest.fixture
def saved(tmp_path):
    folder = tmp_path / "model"
    small_model().save(folder)
    return folder


def change_card(folder, **changes):
    card = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(card | changes))


def change_weights(folder, **changes):
    save_file(load_file(folder / "weights.safetensors") | changes, folder / "weights.safetensors")


def test_nothing_there(tmp_path):
    with pytest.raises(InputError, match="contains no model"):
        load(tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        load(tmp_path / "nowhere")


ONE_NUMBER = {"kind": "number", "name": "x", "mean": 0, "deviation": 1, "missing": False}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_names": ["a"]}, "class_names"),
        ({"class_names": list("abc")}, "does not fit model.json"),
        ({"embedding_dim": 5}, "does not fit model.json"),
        ({"embedding_dim": 0}, "embedding_dim"),
        ({"predictors": ["oracle"]}, "predictors"),
        ({"predictors": ["softmax", "hyperplanes"]}, "does not fit model.json"),
        ({"predictors": ["nearest_mean"], "scatter": "dorfer", "class_weight": "balanced"}, "dorfer"),
        ({"sample_shape": [-1, 8, 8]}, "sample_shape"),
        ({"predictors": ["nearest_mean"]}, "does not fit model.json"),
        ({"network": "resnet"}, "network 'resnet' is not known"),
        ({"surprise": 1}, "surprise"),
        ({"table": {"columns": []}}, "table.columns"),
        ({"table": {"columns": [ONE_NUMBER]}}, "table and sample_shape have different numbers of values"),
        ({"format": 9}, "format"),
    ],
)
def test_a_card_that_lies(saved, changes, message):
    change_card(saved, **changes)
    with pytest.raises(InputError, match=message) as caught:
        load(saved)
    assert "\n" not in str(caught.value)


def test_truncated_weights(saved):
    weights = saved / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"weights\.safetensors cannot be read"):
        load(saved)


def test_code_named_by_a_folder_is_not_run_on_its_word(saved, tmp_path, monkeypatch):
    (tmp_path / "trap.py").write_text("raise SystemExit('the code ran')")
    monkeypatch.chdir(tmp_path)
    change_card(saved, network="trap:make")
    with pytest.raises(InputError, match="not run without your permission"):
        load(saved)


def test_statistics_that_lie(saved):
    state = load_file(saved / "weights.safetensors")
    save_file(state | {"statistics.means": torch.zeros(10, 3)}, saved / "weights.safetensors")
    with pytest.raises(InputError, match="statistics that do not fit"):
        load(saved)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("means", torch.full((10, 4), 1e200, dtype=torch.float64)),
        ("within", -torch.eye(4)),
        ("within", torch.eye(4).double() * 1e250),
        ("within", torch.eye(4).double() * 1e-300 + (1 - torch.eye(4)).double() * 1e300),
        ("within", torch.eye(4) + torch.ones(4, 4).triu(1) / 2),
    ],
)
def test_statistics_that_no_features_have(saved, name, value):
    change_weights(saved, **{f"statistics.{name}": value.double()})
    with pytest.raises(InputError, match="statistics that do not fit"):
        load(saved)


def test_statistics_of_a_softmax(saved):
    """A softmax with statistics would offer to learn a new class, which it cannot."""
    state = load_file(saved / "weights.safetensors")
    kept = {name: tensor for name, tensor in state.items() if not name.startswith("predictors.")}
    found = {part: state[f"predictors.nearest_mean.{part}"] for part in ("classes", "weight", "bias")}
    save_file(kept | {f"predictors.softmax.{part}": t for part, t in found.items()}, saved / "weights.safetensors")
    change_card(saved, predictors=["softmax"])
    with pytest.raises(InputError, match="statistics that do not fit"):
        load(saved)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    "changes",
    [
        {"sample_shape": [1, 200_000, 200_000]},
        {"sample_shape": [10**30, 8, 8]},
        {"embedding_dim": 10**9},
    ],
    ids=str,
)
def test_sizes_declared_for_an_own_network_are_checked(saved, tmp_path, monkeypatch, changes):
    made = "nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(shape[0], dim))"
    source = f"from torch import nn\ndef make(shape, dim, width): return {made}\n"
    (tmp_path / "own_network_of_any_size.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    name = "own_network_of_any_size:make"
    change_card(saved, network=name, **changes)
    with pytest.raises(InputError, match="does not fit"):
        load(saved, network=name)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    "changes",
    [
        {"class_names": ["a" * 10**7, *"bcdefghij"]},
        {"embedding_dim": 10**9},
        {"embedding_dim": 10**30},
        {"width": 1e9},
        {"width": 1e300},
        {"sample_shape": [10**6, 10**6, 10**6]},
        {"sample_shape": [10**30, 8, 8]},
        {"sample_shape": [1, 10**5, 10**5]},
        {"sample_shape": [1, 10**9, 10**9]},
        {"sample_shape": [1, 8, 10**400]},
        {"class_names": [str(number) for number in range(10**6)]},
        {"class_names": list("ab"), "parents": [0] * 10**6 + [1]},
        {"network": "dorfernet", "sample_shape": [10**6, 32, 32]},
        {"network": "mlp", "sample_shape": [10**9]},
        {"scatter": "dorfer", "class_weight": "balanced"},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_a_card_that_declares_other_sizes_than_its_weights_have(saved, changes):
    change_card(saved, **changes)
    with pytest.raises(InputError, match=r"model\.json") as caught:
        load(saved)
    assert len(str(caught.value)) < 2_100


@pytest.mark.parametrize(
    "network", ["../x", "/etc/passwd", "os:system", "os.path:join", "__main__:x", ":", "a:", "\x00", ""]
)
def test_names_of_networks_are_never_paths_or_imports(saved, network):
    change_card(saved, network=network)
    with pytest.raises(InputError, match=r"is not known|without your permission"):
        load(saved)


def test_names_of_classes_are_names(saved, tmp_path):
    """They are never used as paths: nothing is opened or written."""
    names = ["../../x", "/etc/passwd", "a\nb", "\x1b[2J", "[/b]", "%s", "", " ", "con", "é"]
    change_card(saved, class_names=names)
    before = sorted(tmp_path.rglob("*"))
    model = load(saved)
    assert set(model.predict(digits()[0]).tolist()) <= set(names)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("statistics.counts", torch.full((10,), -1.0).double()),
        ("statistics.counts", torch.full((10,), torch.nan).double()),
        ("statistics.counts", torch.full((10,), 1e308, dtype=torch.float64)),
        ("statistics.counts", torch.ones(10).int()),
        ("statistics.classes", torch.zeros(10).long()),
        ("statistics.classes", torch.arange(10).double()),
        ("statistics.within", torch.full((4, 4), torch.inf).double()),
        ("statistics.announced", torch.tensor([True, False])),
        ("statistics.announced", torch.tensor(1.0)),
        ("predictors.hyperplanes.classes", torch.arange(10).double()),
        ("network.output.weight", torch.ones(4, 32).int()),
        ("normalisation.mean", torch.ones(1, 1, 1).to(torch.float8_e5m2)),
    ],
)
def test_weights_of_another_kind(saved, name, value):
    change_weights(saved, **{name: value})
    with pytest.raises(InputError, match="not fit"):
        load(saved)


def test_complex_weights(saved):
    """safetensors before 0.7 neither writes nor reads them, so the type is written into the header."""
    name, file = "predictors.hyperplanes.weight", saved / "weights.safetensors"
    change_weights(saved, **{name: torch.ones(10, 4).long()})
    before = f'"{name}":{{"dtype":"I64"'.encode()
    content = file.read_bytes()
    assert before in content
    file.write_bytes(content.replace(before, before.replace(b"I64", b"C64")))
    with pytest.raises(InputError, match=r"not fit|cannot be read"):
        load(saved)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("normalisation.mean", torch.nan),
        ("normalisation.deviation", torch.inf),
        ("normalisation.deviation", 0.0),
        ("normalisation.deviation", -1.0),
        ("predictors.hyperplanes.weight", torch.nan),
        ("predictors.classic_lda.bias", -torch.inf),
        ("predictors.hyperplanes.prior_shift", torch.nan),
        ("predictors.hyperplanes.calibration.uniform_share", torch.nan),
    ],
)
def test_a_normalisation_or_predictor_that_cannot_be_used(saved, name, value):
    state = load_file(saved / "weights.safetensors")
    change_weights(saved, **{name: torch.full_like(state[name], value)})
    with pytest.raises(InputError, match=rf"'{name}' in .* has values that are not (finite|positive)"):
        load(saved)


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("inverse_temperature", 0.0, "not positive"),
        ("uniform_share", 1.0, "not between 0 and 1"),
        ("uniform_share", -0.1, "not between 0 and 1"),
        ("samples", -1, "negative"),
    ],
)
def test_a_calibration_that_cannot_be_used(saved, name, value, what):
    name = f"predictors.hyperplanes.calibration.{name}"
    state = load_file(saved / "weights.safetensors")
    change_weights(saved, **{name: torch.full_like(state[name], value)})
    with pytest.raises(InputError, match=rf"'{name}' in .* is {what}"):
        load(saved)


@pytest.mark.parametrize("name", ["model.json", "weights.safetensors"])
def test_a_file_that_may_not_be_read(saved, monkeypatch, name):
    """Root may read everything, so the system's answer is simulated."""
    original = os.open

    def forbid(path, *arguments, **options):
        if str(path).endswith(name):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return original(path, *arguments, **options)

    monkeypatch.setattr(os, "open", forbid)
    with pytest.raises(InputError, match=rf"{name} cannot be read \(Permission denied\): ask its owner"):
        load(saved)


def test_class_ids_that_are_not_positions_of_classes(saved):
    name = next(name for name in load_file(saved / "weights.safetensors") if name.endswith(".classes"))
    change_weights(saved, **{name: load_file(saved / "weights.safetensors")[name] + 1})
    with pytest.raises(InputError, match="positions of the classes"):
        load(saved)
