"""`deeplda export`: what is written, what is said, and the file at work without PyTorch."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from trained_runs import image_set, train_run

from deeplda import load
from deeplda.cli import main
from missing_modules import run_without

EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx_inference.py"
NAMES = ("a", "b", "größer c")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    train_run(home / "run", image_set(home / "images.npz", NAMES))
    return home


@pytest.fixture
def home(trained, tmp_path, monkeypatch):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    settings = tmp_path / "run" / "run.toml"
    settings.write_text(settings.read_text().replace(str(trained), str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def instant(monkeypatch):
    """An exporter that needs no time: its graph is the model of the folder `run`."""

    def runner(_):
        model = load("run")

        def run(rows):
            embedding = model.transform(rows)
            scores, shown = (f(torch.as_tensor(embedding)) for f in (model.class_scores, model.class_probabilities))
            found = {"scores": scores.numpy(), "probabilities": shown.numpy(), "embedding": embedding}
            return found | {"unknown_score": model.unknown_score(rows)}

        return run

    monkeypatch.setattr("deeplda.export._traced", lambda *_: None)
    monkeypatch.setattr("deeplda.export._as_onnx", lambda *_: b"a graph")
    monkeypatch.setattr("deeplda.export._onnx_runner", runner)


def sentence(capsys, *arguments):
    """What a mistake is answered with: exit code 2 and one line."""
    with pytest.raises(SystemExit) as left:
        main(["export", *arguments])
    assert left.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    return line


@pytest.mark.usefixtures("onnx_conversion")
def test_a_run_is_exported_and_works_without_torch(home, capfd):
    main(["export", "run"])
    out, err = capfd.readouterr()
    assert err == ""
    first, second = out.splitlines()
    assert first.startswith(f"verified on 60 of 60 test samples from {home / 'images.npz'}: probabilities differ by ")
    assert first.endswith(", 0 decisions differ")
    assert second == "the model is in run/model/model.onnx"
    assert {file.name for file in (home / "run" / "model").iterdir()} == {
        "model.json", "weights.safetensors", "model.onnx",
    }  # fmt: skip

    bare = f"import sys, runpy; sys.modules['torch'] = sys.modules['deeplda'] = None; runpy.run_path({str(EXAMPLE)!r}"
    command = [sys.executable, "-X", "utf8", "-W", "error", "-c", f"{bare}, run_name='__main__')"]
    done = subprocess.run(
        [*command, "run/model/model.onnx", "images.npz"], capture_output=True, text=True, check=False, encoding="utf8"
    )
    assert done.returncode == 0, done.stderr
    images = np.moveaxis(np.load("images.npz")["x_test"], 3, 1)
    model = load("run")
    lines = zip(model.predict(images), model.predict_proba(images).max(1), strict=True)
    assert done.stdout.splitlines() == [f"{place}: {name} {best:.4f}" for place, (name, best) in enumerate(lines)]


@pytest.mark.usefixtures("onnx_conversion")
def test_the_example_classifies_image_files_as_predict_does(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for number in range(24):
        file = tmp_path / "photos" / ("dark", "light")[number % 2] / f"{number}.{('jpg', 'png', 'gif')[number % 3]}"
        file.parent.mkdir(parents=True, exist_ok=True)
        # Colours that overlap, so that the probabilities are not all 1.
        colour = rng.uniform(60, 190, 3) + 20 * (number % 2)
        pixels = np.clip(rng.normal(colour, 60, (50, 40, 3)), 0, 255).astype(np.uint8)
        exif = Image.Exif()
        exif[0x0112] = 1 + number % 8
        Image.fromarray(pixels).save(file, exif=exif)
    main(["train", "photos", "--image-size", "9", "--epochs", "1", "--width", "0.1", "--quiet", "--run", "run"])
    main(["export", "run"])
    capfd.readouterr()
    main(["predict", "run", "photos", "--json"])
    expected = json.loads(capfd.readouterr().out)["predictions"]
    code = f"import runpy; runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')"
    files = [row["file"] for row in expected]
    done = run_without({"torch", "pydantic"}, code, "run/model/model.onnx", *files, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = [line.rsplit(" ", 2) for line in done.stdout.splitlines()]
    assert [row[:2] for row in found] == [[f"{row['file']}:", row["class"]] for row in expected]
    probabilities = [row["probability"] for row in expected]
    np.testing.assert_allclose([float(row[2]) for row in found], probabilities, atol=1e-4)
    assert np.ptp(probabilities) > 0.1


@pytest.mark.usefixtures("instant")
def test_another_file(home, capsys):
    main(["export", "run", "--output", "mine.onnx", "--verify-all"])
    assert capsys.readouterr().out.splitlines()[1] == "the model is in mine.onnx"
    assert (home / "mine.onnx").read_bytes() == b"a graph"
    assert not (home / "run" / "model" / "model.onnx").exists()
    assert "nowhere does not exist" in sentence(capsys, "run", "--output", "nowhere/mine.onnx")
    assert "run is a folder" in sentence(capsys, "run", "--output", "run")


@pytest.mark.usefixtures("instant")
def test_without_data_random_images_serve_unless_all_was_asked_for(home, capsys):
    (home / "images.npz").rename(home / "moved.npz")
    assert "images.npz" in sentence(capsys, "run", "--verify-all")
    main(["export", "run"])
    assert capsys.readouterr().out.startswith("verified on random images, because ")
    main(["export", "run/model"])
    assert capsys.readouterr().out.startswith("verified on random images, because run/model is not a run")


@pytest.mark.usefixtures("instant")
def test_a_graph_that_differs_is_not_written(home, monkeypatch, capsys):
    shapes = {"scores": (3,), "probabilities": (3,), "embedding": (3,), "unknown_score": ()}
    monkeypatch.setattr(
        "deeplda.export._onnx_runner",
        lambda _: lambda rows: {name: np.ones((len(rows), *shape)) for name, shape in shapes.items()},
    )
    with pytest.raises(SystemExit, match=r"^1$"):
        main(["export", "run"])
    assert "deeplda: the exported graph differs from the model: on 60 samples" in capsys.readouterr().err
    assert {file.name for file in (home / "run" / "model").iterdir()} == {"model.json", "weights.safetensors"}


@pytest.mark.usefixtures("home")
def test_the_extra_is_missing(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    line = sentence(capsys, "run")
    assert "onnxruntime" in line
    assert "pip install 'deeplda[export]'" in line


def test_a_network_of_your_own(home, capsys):
    card = home / "run" / "model" / "model.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | {"network": "own_for_export:build", "width": 1}))
    assert "--network" in sentence(capsys, "run")
    # The weights are those of a convnet-small; this one looks at values while it is traced.
    (home / "own_for_export.py").write_text(
        "from deeplda.networks import ConvNetSmall\n"
        "class Net(ConvNetSmall):\n"
        "    def forward(self, images):\n"
        "        return super().forward(images if images.sum() > 0 else -images)\n"
        "def build(sample_shape, embedding_dim):\n"
        "    return Net(sample_shape, embedding_dim, width=0.25)\n"
    )
    line = sentence(capsys, "run", "--network", "own_for_export:build")
    assert "the network 'own_for_export:build' cannot be exported" in line
