"""Commands on a pack do the same as on the folder that was packed."""

import hashlib
import json
import shutil
from contextlib import closing

import numpy as np
import pytest
import rank_jobs
from PIL import Image
from ranks import RankPool, values

from deeplda.cli import main
from deeplda.training.batches import BatchSource
from deeplda.training.config import RunConfig

SETTINGS = ("--width", "0.1", "--batch-size", "20", "--flip", "--translate", "1", "--quiet")
SUBCLASSES = ("--subclasses", "2", "--smallest-cluster", "2", "--embedding-dim", "subclasses")
SMALL = ("--network", "convnet-small", "--epochs", "2", *SETTINGS)


def photos(root, numbers):
    for number in numbers:
        file = root / ("dark", "light", "middle")[number % 3] / f"{number:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).normal((80, 130, 105)[number % 3], 20, (8, 8, 3))
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(file)
    return root


def run(capsys, *arguments):
    """Run a command in this process, and return what it printed to stdout and stderr."""
    main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    return shown.out, shown.err


def weights(folder, name="model/weights.safetensors"):
    return hashlib.sha256((folder / name).read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder of 90 images, its pack, and a run on each."""
    home = tmp_path_factory.mktemp("home")
    photos(home / "photos", range(90))
    main(["data", "pack", str(home / "photos"), str(home / "photos.pack"), "--quiet"])
    for data, name in (("photos", "of-folder"), ("photos.pack", "of-pack")):
        main(["train", str(home / data), *SMALL, "--run", str(home / name)])
    return home


def test_the_same_model_and_split(home):
    assert weights(home / "of-pack") == weights(home / "of-folder")
    assert (home / "of-pack" / "split.jsonl").read_bytes() == (home / "of-folder" / "split.jsonl").read_bytes()
    rows = [
        json.loads((home / name / "metrics.jsonl").read_text().splitlines()[-1]) for name in ("of-pack", "of-folder")
    ]
    assert rows[0]["test"] == rows[1]["test"]
    assert (home / "of-pack" / "report.html").exists()


@pytest.mark.filterwarnings("ignore:a batch of")
@pytest.mark.parametrize(
    "options",
    [
        ("--train-on-all", "--tta", "mirror"),
        ("--label-noise", "0.2", "--objective", "cce"),
        (*SUBCLASSES, "--autoencoder-epochs", "1"),
        (*SUBCLASSES, "--cluster-on", "inputs"),
        ("--network", "fastnet", "--image-size", "24"),
    ],
    ids=lambda options: options[0],
)
def test_the_same_model_with_other_settings(home, tmp_path, options):
    for data in ("photos", "photos.pack"):
        main(["train", str(home / data), *SETTINGS, *options, "--epochs", "1", "--run", str(tmp_path / data)])
    assert weights(tmp_path / "photos.pack") == weights(tmp_path / "photos")


def test_evaluate_and_predict_give_the_same_numbers(home, capsys):
    scores = [run(capsys, "evaluate", home / name, "--json")[0] for name in ("of-pack", "of-folder")]
    assert scores[0] == scores[1]
    others = [run(capsys, "evaluate", home / "of-folder", home / data, "--json") for data in ("photos.pack", "photos")]
    assert others[0] == others[1]
    assert "76 of 90 images were used to train the model" in others[0][1]
    printed = [run(capsys, "predict", home / "of-pack", home / data, "--json")[0] for data in ("photos.pack", "photos")]
    of_pack, of_folder = (json.loads(text)["predictions"] for text in printed)
    assert [row["file"].replace("photos.pack", "photos") for row in of_pack] == [row["file"] for row in of_folder]
    np.testing.assert_allclose(*([row["probability"] for row in rows] for rows in (of_pack, of_folder)), atol=2e-6)
    # Files and packs may be mixed; broken files keep their place.
    (home / "broken.png").write_bytes(b"broken")
    files = (home / "photos/dark/000.png", home / "broken.png", home / "photos.pack", home / "photos/dark/003.png")
    mixed = json.loads(run(capsys, "predict", home / "of-pack", *files, "--skip-unreadable", "--json")[0])
    assert [len(mixed["predictions"]), len(mixed["unreadable"])] == [92, 1]
    assert mixed["predictions"][1:-1] == of_pack


def test_a_model_of_other_channels_rejects_a_pack(home, tmp_path, capsys):
    grey = tmp_path / "grey.npz"
    np.savez(
        grey, x_train=np.random.default_rng(0).integers(0, 256, (30, 8, 8), dtype=np.uint8), y_train=np.arange(30) % 3
    )
    main(["data", "pack", str(grey), str(tmp_path / "grey.pack"), "--quiet"])
    with pytest.raises(SystemExit):
        run(capsys, "predict", home / "of-pack", tmp_path / "grey.pack")
    assert "has images of 1 channels, but the model needs 3" in capsys.readouterr().err


def test_images_appended_after_a_run_are_not_trained_on(home, tmp_path, capsys):
    for name in ("photos", "photos.pack", "of-pack"):
        shutil.copytree(home / name, tmp_path / name)
    settings = (tmp_path / "of-pack" / "run.toml").read_text()
    (tmp_path / "of-pack" / "run.toml").write_text(settings.replace(str(home), str(tmp_path)))
    photos(tmp_path / "photos", range(90, 150))
    shown, _ = run(capsys, "data", "pack", tmp_path / "photos", tmp_path / "photos.pack", "--json", "--quiet")
    assert json.loads(shown) == {"pack": str(tmp_path / "photos.pack"), "images": 150, "added": 60}
    result, said = run(capsys, "evaluate", tmp_path / "of-pack", "--json")
    assert json.loads(result)["n"] > 14
    assert "has changed: 60 new images" in said
    _, said = run(capsys, "train", "--resume", "--run", tmp_path / "of-pack")
    assert "has changed since (60 new images, 0 removed, 0 changed)" in said


def test_check_finds_damaged_pixels(home, tmp_path, capsys):
    shutil.copytree(home / "photos.pack", tmp_path / "x.pack")
    shown, _ = run(capsys, "data", "check", tmp_path / "x.pack")
    assert shown.count("ok      ") == 3
    with (tmp_path / "x.pack" / "images.bin").open("r+b") as stream:
        stream.write(b"\xff\0\xff\0")
    with pytest.raises(SystemExit, match="2"):
        run(capsys, "data", "check", tmp_path / "x.pack")
    assert "BROKEN" in capsys.readouterr().out


def test_a_large_folder_is_packed_into_the_cache(home, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("deeplda.data.packing.fits_in_memory", lambda _: False)
    monkeypatch.setenv("DEEPLDA_DATA", str(tmp_path / "cache"))
    loud = [option for option in SMALL if option != "--quiet"]
    _, said = run(capsys, "train", home / "photos", *loud, "--run", tmp_path / "run")
    (pack,) = (tmp_path / "cache" / "packs").glob("*/photos.pack")
    assert f"too much for the memory, so they are packed into {pack}" in said
    assert weights(tmp_path / "run") == weights(home / "of-folder")
    assert (
        run(capsys, "evaluate", tmp_path / "run", "--json")[0]
        == run(capsys, "evaluate", home / "of-folder", "--json")[0]
    )
    # The run does not depend on the pack: with enough memory, it is resumed from the folder.
    monkeypatch.undo()
    metrics = tmp_path / "run" / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:-1]))
    run(capsys, "train", "--resume", "--quiet", "--run", tmp_path / "run")
    assert weights(tmp_path / "run") == weights(home / "of-folder")


def test_two_processes_train_the_model_that_they_train_on_the_folder(home, tmp_path):
    settings = {"network": "convnet-small", "width": 0.1, "epochs": 2, "batch_size": 20, "flip": True, "translate": 1}
    with closing(RankPool(2, tmp_path)) as pool:
        for data in ("photos", "photos.pack"):
            job = RunConfig(data=str(home / data), **settings), tmp_path / data
            values(pool.run(rank_jobs.whole_run, [job] * 2))
    assert weights(tmp_path / "photos.pack") == weights(tmp_path / "photos")


class Killed(BaseException):
    """The process ends here."""


def test_a_training_that_is_killed_and_resumed_ends_in_the_same_bytes(home, tmp_path, monkeypatch):
    """Killed in each of the first steps, with a checkpoint after every step."""
    options = (*SMALL, "--checkpoint-seconds", "1e-9")
    main(["train", str(home / "photos.pack"), *options, "--run", str(tmp_path / "whole")])
    assert json.loads((tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()[0])["steps"] == 4
    cut = BatchSource.batch
    for kill in range(6):
        steps = iter(range(100))

        def batch(self, indices, epoch, kill=kill, steps=steps):
            if next(steps) == kill:
                raise Killed
            return cut(self, indices, epoch)

        run = tmp_path / f"killed-{kill}"
        monkeypatch.setattr(BatchSource, "batch", batch)
        with pytest.raises(Killed):
            main(["train", str(home / "photos.pack"), *options, "--run", str(run)])
        monkeypatch.undo()
        main(["train", "--resume", "--quiet", "--run", str(run)])
        assert weights(run) == weights(tmp_path / "whole")
