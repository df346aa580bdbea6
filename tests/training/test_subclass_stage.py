"""Algorithm 1 in a run folder: its stages are kept, taken up again and shared."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from deeplda.data import load_data
from deeplda.errors import InputError
from deeplda.loading import load
from deeplda.training.autoencoder_stage import SampleAutoencoder
from deeplda.training.config import RunConfig
from deeplda.training.evaluation import evaluate, subclass_scores
from deeplda.training.metrics import EpochRow
from deeplda.training.pipeline import run_to_end
from deeplda.training.progress import Progress
from deeplda.training.run_folder import read_metrics
from deeplda.training.subclass_stage import read_clusters, subclass_notes

QUIET = Progress()


def settings(**more):
    quick = {"epochs": 1, "width": 0.25, "autoencoder_epochs": 2, "learning_rate": 0.1, "cluster_starts": 2}
    return RunConfig(data="digits", **{**quick, "subclasses": 2, "embedding_dim": "subclasses", **more})


@pytest.fixture(scope="module")
def digits():
    return load_data("digits")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("subclasses") / "run"
    run_to_end(settings(), folder, QUIET)
    return folder


def test_every_stage_is_kept(run, digits):
    errors = [row.validation.error for row in read_metrics(run / "autoencoder") if isinstance(row, EpochRow)]
    assert len(errors) == 2
    assert errors[1] < errors[0]
    clusters = read_clusters(run / "subclasses", None, digits)
    assert clusters is not None
    assert clusters.map.parents == tuple(np.repeat(range(10), 2))
    np.testing.assert_array_equal(clusters.map.to_classes(clusters.labels), digits.train.labels)


def test_the_model_gives_classes_and_subclasses_on_request(run, digits):
    model = load(run)
    assert model.card.embedding_dim == 20
    assert model.predict_proba(digits.test.inputs).shape == (270, 10)
    names = model.predict_subclasses(digits.test.inputs)
    assert {name.split("/")[0] for name in names} <= set(model.class_names)
    np.testing.assert_array_equal([name.split("/")[0] for name in names], model.predict(digits.test.inputs))
    scores = evaluate(model, digits.test)
    by_subclass = subclass_scores(model, digits.test)
    assert sum(found["decided"] for found in by_subclass.values()) == 270
    assert sum(found["right"] for found in by_subclass.values()) == round(270 * scores.accuracy)
    assert scores.accuracy == pytest.approx(np.trace(scores.confusion) / 270)


def test_a_class_can_be_added_to_subclasses(run, digits):
    model = load(run)
    model.add_class(255 - digits.train.inputs[:40], "inverted")
    assert model.card.parents[-1] == 10
    assert (model.predict(255 - digits.test.inputs) == "inverted").mean() > 0.8
    assert model.predict_proba(digits.test.inputs).shape == (270, 11)


def test_one_subclass_is_the_plain_run_byte_for_byte(tmp_path):
    plain = RunConfig(data="digits", epochs=1, width=0.25)
    run_to_end(plain, tmp_path / "plain", QUIET)
    run_to_end(plain.model_copy(update={"subclasses": 1}), tmp_path / "one", QUIET)
    weights = [(tmp_path / name / "model" / "weights.safetensors").read_bytes() for name in ("plain", "one")]
    assert weights[0] == weights[1]


def test_finished_stages_are_not_done_again(run, monkeypatch):
    """What is left after a kill between the stages is enough to go on, to the same weights."""
    before = (run / "model" / "weights.safetensors").read_bytes()
    for name in ("model", "checkpoints", "metrics.jsonl"):
        (run / name).rename(run / f"gone-{name}")
    monkeypatch.setattr("deeplda.subclasses.split_classes", lambda *_, **__: pytest.fail("split the classes again"))
    run_to_end(settings(), run, QUIET)
    assert (run / "model" / "weights.safetensors").read_bytes() == before


def test_runs_share_their_stages(tmp_path, monkeypatch):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    run_to_end(settings(alpha=0.2), tmp_path / "first", QUIET, stages=tmp_path / "stages")
    assert sorted(path.name.split("-")[0] for path in (tmp_path / "stages").iterdir()) == ["autoencoder", "subclasses"]
    assert (tmp_path / "first" / "autoencoder").resolve().parent == (tmp_path / "stages").resolve()
    monkeypatch.setattr("deeplda.training.loop.train", lambda *_: pytest.fail("trained an autoencoder again"))
    run_to_end(settings(alpha=0.8), tmp_path / "second", QUIET, stages=tmp_path / "stages")
    first, second = ((tmp_path / name / "subclasses" / "subclasses.safetensors") for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()


def test_broken_or_foreign_subclasses_are_found_anew(run, digits, tmp_path):
    assert read_clusters(run / "subclasses", "another", digits) is None
    assert read_clusters(tmp_path, None, digits) is None
    (tmp_path / "subclasses.json").write_text(json.dumps({"identity": "x", "parents": [1, 0], "notes": []}))
    assert read_clusters(tmp_path, None, digits) is None


def test_the_number_of_subclasses_is_noted(run, digits):
    clusters = read_clusters(run / "subclasses", None, digits)
    assert subclass_notes(clusters) == ["split 10 classes into 20 subclasses", *clusters.notes]


def test_reconstructions_are_in_the_range_of_the_data_and_as_good_as_logged(run, digits):
    autoencoder = SampleAutoencoder.load(run / "autoencoder" / "model")
    found = autoencoder.reconstruct(digits.test.inputs)
    assert found.shape == digits.test.inputs.shape
    assert found.min() >= 0
    assert found.max() <= 255
    error = np.square(found / 255 - digits.test.inputs / 255).mean()
    assert error == pytest.approx(read_metrics(run / "autoencoder")[-1].test.error, rel=1e-4)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-2.0, 3.0), (0.0, 255.0)])
def test_images_of_floats_are_brought_to_what_a_sigmoid_gives(low, high):
    images = np.random.default_rng(0).uniform(low, high, (20, 1, 24, 24)).astype(np.float32)
    images[0, 0, 0, :2] = low, high
    autoencoder = SampleAutoencoder((1, 24, 24), 0.1)
    autoencoder.fit_normalisation(images)
    prepared = autoencoder.normalisation(torch.from_numpy(images))
    assert (float(prepared.min()), float(prepared.max())) == pytest.approx((0, 1))


def test_rows_are_split_on_standardised_inputs(tmp_path):
    rng = np.random.default_rng(0)
    corners = np.array([[0, 0], [9, 9], [0, 9], [9, 0]])
    group = np.arange(400) % 4
    rows = (corners[group] + rng.normal(size=(400, 2))) * [1, 1000]
    np.savez(tmp_path / "xor.npz", x_train=rows.astype(np.float32), y_train=group // 2)
    config = settings(cluster_on=None).model_copy(update={"data": str(tmp_path / "xor.npz")})
    run_to_end(config, tmp_path / "run", QUIET)
    assert not (tmp_path / "run" / "autoencoder").exists()
    labels = read_clusters(tmp_path / "run" / "subclasses", None, load_data(str(tmp_path / "xor.npz"))).labels
    assert np.bincount(labels).min() > 50


@pytest.mark.parametrize("stage", ["autoencoder", "run"])
def test_killed_in_any_stage_it_goes_on_to_the_same_weights(run, tmp_path, stage):
    """The process ends without warning at the checkpoint after the first epoch of a stage."""
    folder = tmp_path / "run"
    code = (
        "import os, sys; from pathlib import Path\n"
        "from deeplda.training import run_folder; from deeplda.training.config import RunConfig\n"
        "from deeplda.training.pipeline import run_to_end; from deeplda.training.progress import Progress\n"
        "save = run_folder.RunFolder.save\n"
        "def saved_then_killed(self, name, snapshot):\n"
        "    save(self, name, snapshot)\n"
        f"    if name == 'last' and self.path.name == {stage!r}: os._exit(9)\n"
        "run_folder.RunFolder.save = saved_then_killed\n"
        "run_to_end(RunConfig.read(Path(sys.argv[1])), Path(sys.argv[2]), Progress())\n"
    )
    (tmp_path / "run.toml").write_text(settings().to_toml())
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "run.toml", folder], check=False, timeout=300)
    assert done.returncode == 9
    run_to_end(settings(), folder, QUIET)
    assert (folder / "model" / "weights.safetensors").read_bytes() == (
        run / "model" / "weights.safetensors"
    ).read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        {"labels": np.zeros(3, dtype=np.int64)},
        {"labels": None},
        {"labels": np.full(1257, np.nan)},
        {"labels": np.full(1257, 10**9)},
        {"centres": np.zeros((3, 2), dtype=np.float32)},
        {"centres": np.zeros(20, dtype=np.float32)},
    ],
)
def test_subclasses_that_lie_are_found_anew(run, digits, tmp_path, change):
    shutil.copytree(run / "subclasses", tmp_path / "subclasses")
    file = tmp_path / "subclasses" / "subclasses.safetensors"
    arrays = {name: value for name, value in (load_file(file) | change).items() if value is not None}
    assert read_clusters(tmp_path / "subclasses", None, digits) is not None
    save_file(arrays, file)
    assert read_clusters(tmp_path / "subclasses", None, digits) is None


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    "card", [{"width": 1e9}, {"sample_shape": [10**9]}, {"sample_shape": [1, 10**5, 10**5]}, {"width": "x"}]
)
def test_an_autoencoder_that_declares_more_than_it_holds(run, tmp_path, card):
    shutil.copytree(run / "autoencoder" / "model", tmp_path / "model")
    file = tmp_path / "model" / "model.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | card))
    with pytest.raises(InputError, match="not a complete autoencoder"):
        SampleAutoencoder.load(tmp_path / "model")


def test_an_autoencoder_rejects_samples_of_a_different_shape():
    """An untrusted run folder may contain the autoencoder of other data."""
    autoencoder = SampleAutoencoder((1, 24, 24), 0.1)
    images = np.zeros((2, 1, 24, 48), np.uint8)
    for method in (autoencoder.embed, autoencoder.reconstruct):
        with pytest.raises(InputError, match=r"have shape \(1, 24, 48\), but .* trained on \(1, 24, 24\)"):
            method(images)
