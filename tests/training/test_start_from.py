"""Weights to start from: which layers are kept, which settings are inherited, and what is rejected."""

import json
import shutil
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from deeplda.data.dataset import Data, Part
from deeplda.errors import InputError
from deeplda.loading import load
from deeplda.training.config import RunConfig
from deeplda.training.pipeline import run_to_end
from deeplda.training.progress import Progress
from deeplda.training.start_from import StartingWeights, inherited_settings
from deeplda.training.trainee import build_trainee

SMALL = {"data": "digits", "width": 0.1, "epochs": 1, "batch_size": 400}


def made(classes=("a", "b", "c"), shape=(1, 24, 24), **settings):
    """A trainee for random samples of these classes."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % len(classes)
    part = Part(rng.integers(0, 256, (60, *shape), dtype=np.uint8) if len(shape) == 3 else
                rng.normal(size=(60, *shape)).astype(np.float32), labels)  # fmt: skip
    data = Data("random", part, part, part, tuple(classes))
    return build_trainee(RunConfig(seed=settings.pop("seed", 1), width=0.1, **settings), data)


def saved(trainee, folder):
    """Write the model of a trainee, with predictors as after a training."""
    for predictor in trainee.model.predictors.values():
        predictor._reserve(len(trainee.model.card.subclass_map), trainee.model.card.embedding_dim)
        predictor.classes.copy_(torch.arange(len(predictor.classes)))
    if "softmax" in trainee.model.predictors:
        trainee.fit_predictors(Part(np.zeros((0, 1)), np.zeros(0, dtype=np.int64)))
    trainee.model.save(folder)
    return folder


def differing(one, other):
    """The layers of a network whose weights are not the same in two trainees."""
    pairs = ((name, tensor, other.trained.state_dict()[name]) for name, tensor in one.trained.state_dict().items())
    unequal = [name for name, ours, theirs in pairs if not torch.equal(ours, theirs)]
    return {name.removeprefix("network.").partition(".")[0] for name in unequal}


NETWORKS = [("fastnet", {"output"}), ("dorfernet", {"block6"}), ("convnet-small", {"output"})]


@pytest.mark.parametrize(("network", "output"), NETWORKS)
@pytest.mark.parametrize("classes", [("a", "b", "c"), ("a", "b", "c", "d"), ("a", "b", "x")])
def test_all_layers_are_kept_except_an_output_layer_for_other_classes(tmp_path, network, output, classes):
    earlier = made(network=network)
    with torch.no_grad():  # a trained network has other weights than its initialisation, and so have its buffers
        for tensor in earlier.trained.state_dict().values():
            tensor.add_(1)
    start = StartingWeights.read(saved(earlier, tmp_path / "model"), None)
    trainee = made(classes, network=network, seed=2)
    fresh = made(classes, network=network, seed=2)
    note = start.load_into(trainee)
    same = classes == ("a", "b", "c")
    if same:
        assert differing(trainee, earlier) == set()
        assert note.startswith(f"starting from {tmp_path / 'model'}: kept all layers (")
    else:
        kept = {name for name, _ in trainee.model.network.named_children()} - output
        assert note.endswith(f"; reinitialised {', '.join(output)}")
        assert differing(trainee, fresh) == kept
        for name in kept:
            state = getattr(earlier.model.network, name).state_dict()
            for key, tensor in getattr(trainee.model.network, name).state_dict().items():
                assert torch.equal(tensor, state[key]), (name, key)


def test_rows_of_numbers_keep_their_hidden_layers(tmp_path):
    earlier = made(shape=(5,), network="mlp")
    start = StartingWeights.read(saved(earlier, tmp_path / "model"), None)
    trainee = made("abcd", shape=(5,), network="mlp", seed=2)
    assert start.load_into(trainee).endswith("kept the layers hidden; reinitialised linear, output")
    assert torch.equal(trainee.model.network.hidden[0].weight, earlier.model.network.hidden[0].weight)


def test_the_layer_for_class_scores_is_kept_with_its_classes(tmp_path):
    settings = {"network": "convnet-small", "objective": "cce", "embedding_dim": 7}
    earlier = made(**settings)
    start = StartingWeights.read(saved(earlier, tmp_path / "model"), None)
    trainee = made(**settings, seed=2)
    assert "kept all layers" in start.load_into(trainee)
    assert torch.equal(trainee.head.weight, earlier.head.weight)
    other = made("abcd", **settings, seed=2)
    assert start.load_into(other).endswith("reinitialised output, softmax")


def test_subclasses_are_other_classes(tmp_path):
    start = StartingWeights.read(saved(made(network="convnet-small"), tmp_path / "model"), None)
    card = made(network="convnet-small").model.card
    assert start._has_classes_of(card)
    assert not start._has_classes_of(card.model_copy(update={"parents": (0, 0, 1, 2)}))


def test_another_head_replaces_only_the_output_layer(tmp_path):
    start = StartingWeights.read(saved(made(network="fastnet"), tmp_path / "model"), None)
    assert start.load_into(made(network="fastnet", head="plain", seed=2)).endswith("reinitialised output")


def test_an_image_size_may_change(tmp_path):
    start = StartingWeights.read(saved(made(network="fastnet"), tmp_path / "model"), None)
    assert "kept all layers" in start.load_into(made(shape=(1, 32, 32), network="fastnet", seed=2))


@pytest.mark.parametrize("whole", [True, False])
def test_a_file_of_weights(tmp_path, whole):
    """The file of a model, or the state of a network from a loop of one's own, in half precision."""
    earlier = made(network="fastnet")
    file = saved(earlier, tmp_path / "model") / "weights.safetensors"
    if not whole:
        file = tmp_path / "mine.safetensors"
        save_file(
            {name: tensor.contiguous() for name, tensor in earlier.model.network.half().state_dict().items()}, file
        )
        earlier.model.network.float()
    trainee = made(network="fastnet", seed=2)
    assert "kept all layers" in StartingWeights.read(file, None).load_into(trainee)
    assert differing(trainee, earlier) == set()
    assert "reinitialised output" in StartingWeights.read(file, None).load_into(made("abcd", network="fastnet"))


OWN = """
from torch import nn

def make(shape, embedding_dim, width=1.0, depth=16):
    body = nn.Sequential(nn.Flatten(), nn.Linear(24 * 24, depth), nn.ReLU())
    return nn.Sequential(body, nn.Linear(depth, embedding_dim), nn.BatchNorm1d(embedding_dim))

def deeper(shape, embedding_dim, width=1.0):
    return make(shape, embedding_dim, depth=32)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_for_start.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("own_for_start", None)


@pytest.mark.usefixtures("own")
def test_a_network_of_ones_own(tmp_path):
    earlier = made(network="own_for_start:make")
    folder = saved(earlier, tmp_path / "model")
    with pytest.raises(InputError, match="is not run without your permission"):
        StartingWeights.read(folder, None)
    with pytest.raises(InputError, match="pass --network own_for_start:make"):
        inherited_settings(folder, {})
    start = StartingWeights.read(folder, "own_for_start:make")
    trainee = made("abcd", network="own_for_start:make", seed=2)
    assert start.load_into(trainee).endswith("kept the layers 0; reinitialised 1, 2")
    assert torch.equal(trainee.model.network[0][1].weight, earlier.model.network[0][1].weight)
    assert trainee.model.network[1].weight.shape == (4, 16)
    with pytest.raises(InputError, match=r"do not fit network own_for_start:deeper .*\('0.1.bias' has shape"):
        start.require_fit(made(network="own_for_start:deeper").model.card)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"network": "dorfernet"}, "need network fastnet with width 0.1 .*: pass --network fastnet --width 0.1"),
        (
            {"network": "fastnet", "shape": (3, 24, 24)},
            r"for samples of shape \(1, 24, 24\): use samples of that shape",
        ),
    ],
)
def test_weights_that_do_not_fit_are_one_sentence(tmp_path, settings, says):
    folder = saved(made(network="fastnet"), tmp_path / "model")
    card = made(**settings).model.card
    with pytest.raises(InputError, match=says):
        StartingWeights.read(folder, None).require_fit(card)
    with pytest.raises(InputError, match="pass the --network and --width with which they were trained"):
        StartingWeights.read(folder / "weights.safetensors", None).require_fit(card)
    wide = card.model_copy(update={"network": "fastnet", "sample_shape": (1, 24, 24), "width": 0.5})
    with pytest.raises(InputError, match=r"with width 0.5 .*: pass --network fastnet --width 0.1"):
        StartingWeights.read(folder, None).require_fit(wide)


def test_weights_that_are_not_finite_are_rejected(tmp_path):
    for part in ("groups.1.weight", "groups.3.running_var"):
        earlier = made(network="fastnet")
        earlier.model.network.state_dict()[part][0] = torch.nan
        start = StartingWeights.read(saved(earlier, tmp_path / part), None)
        with pytest.raises(InputError, match=f"'{part}' in .* has values that are not finite"):
            start.require_fit(made(network="fastnet").model.card)


def header(text, size=0):
    return struct.pack("<Q", len(text)) + text + bytes(size)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x04K\x00.",  # a pickle
        header(b"{"),
        header(b'{"a": {"dtype": "F32", "shape": [9999999999], "data_offsets": [0, 4]}}', 4),
        header(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}', 0),
        struct.pack("<Q", 2**62) + b"{}",
        header(json.dumps({"groups.1.weight": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}).encode(), 8),
        header(b'{"a": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}}', 8),
    ],
)
def test_hostile_files_are_one_sentence(tmp_path, content):
    file = tmp_path / "weights.safetensors"
    file.write_bytes(content)
    card = made(network="fastnet").model.card
    with pytest.raises(InputError) as error:
        StartingWeights.read(file, None).require_fit(card)
    assert len(str(error.value).splitlines()) == 1


def test_the_digest_is_about_the_weights_and_the_classes(tmp_path):
    earlier = made(network="convnet-small")
    first = StartingWeights.read(saved(earlier, tmp_path / "a"), None).digest
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert StartingWeights.read(tmp_path / "b", None).digest == first
    card = json.loads((tmp_path / "b" / "model.json").read_text())
    (tmp_path / "b" / "model.json").write_text(json.dumps(card | {"class_names": ["a", "b", "x"]}))
    assert StartingWeights.read(tmp_path / "b", None).digest != first
    with torch.no_grad():
        earlier.model.network.output.bias[0] += 1e-3
    assert StartingWeights.read(saved(earlier, tmp_path / "c"), None).digest != first


def test_inherited_settings(tmp_path):
    folder, run = saved(made(network="fastnet", embedding_dim=7), tmp_path / "run" / "model"), tmp_path / "run"
    assert inherited_settings(folder, {}) == {
        "network": "fastnet", "width": 0.1, "logit_scale": 1.0, "embedding_dim": 7,
    }  # fmt: skip
    assert inherited_settings(folder, {"data": str(tmp_path)})["image_size"] == 24
    assert inherited_settings(folder / "weights.safetensors", {}) == {}
    config = RunConfig(data="digits", width=0.1, patience=3, epochs=4, extended_to=(6,), start_from="x", start_hash="y")
    (run / "run.toml").write_text(config.to_toml())
    found = inherited_settings(run, {})
    assert RunConfig(**found) == RunConfig(data="digits", width=0.1, patience=3, epochs=4, network="fastnet")
    # Decisions are those that the run has stored.
    (run / "run.toml").write_text(RunConfig(relabel=("/1.csv", "/2.csv")).to_toml())
    (run / "relabel-2.csv").touch()
    assert inherited_settings(run, {})["relabel"] == (Path("/1.csv"), run / "relabel-2.csv")
    for missing in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(InputError):
            inherited_settings(missing, {})


def test_a_run_that_is_not_finished_has_no_weights(tmp_path):
    (tmp_path / "run.toml").write_text(RunConfig().to_toml())
    with pytest.raises(InputError, match="is not finished: resume it"):
        inherited_settings(tmp_path, {})


class Notes(Progress):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def test_a_note_says_that_test_samples_may_have_been_seen(tmp_path):
    """Unless the data and its split are the same, or the split of a folder is known."""
    run_to_end(RunConfig(**SMALL), tmp_path / "a", Progress())
    file = tmp_path / "a" / "model" / "weights.safetensors"
    cases = [(tmp_path / "a", {}, False), (tmp_path / "a", {"split_seed": 1}, True), (file, {}, True)]
    for number, (start, more, seen) in enumerate(cases):
        progress = Notes()
        run_to_end(RunConfig(**SMALL, start_from=start, **more), tmp_path / f"b{number}", progress)
        assert any("may contain samples" in note for note in progress.notes) == seen
    assert RunConfig.of(tmp_path / "b0").start_hash == RunConfig.of(tmp_path / "b1").start_hash


def test_networks_that_start_from_data_keep_the_loaded_weights(tmp_path):
    """FastNet computes its whitening from the data, here of another scale than before."""
    rng = np.random.default_rng(0)
    for name, scale in (("one", 256), ("two", 40)):
        images = rng.integers(0, scale, (80, 24, 24), dtype=np.uint8)
        np.savez(tmp_path / f"{name}.npz", x_train=images, y_train=np.arange(80) % 2)
    settings = {"network": "fastnet", "width": 0.1, "epochs": 1, "batch_size": 40}
    run_to_end(RunConfig(**settings, data=str(tmp_path / "one.npz")), tmp_path / "a", Progress())
    run_to_end(
        RunConfig(**settings, data=str(tmp_path / "two.npz"), start_from=tmp_path / "a", learning_rate=1e-6),
        tmp_path / "b",
        Progress(),
    )
    run_to_end(RunConfig(**settings, data=str(tmp_path / "two.npz")), tmp_path / "c", Progress())
    one, two, anew = (load(tmp_path / name).network.whitening.convolution.weight for name in "abc")
    assert torch.equal(one, two)
    assert not torch.allclose(two, anew, rtol=0.1)
