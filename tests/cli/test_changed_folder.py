"""Runs on a folder of images that grows, shrinks and changes, and other labelled data for `evaluate`."""

import json
import shutil

import numpy as np
import pytest
from command import in_this_process
from PIL import Image

from deeplda.cli import main
from deeplda.errors import StoppedError

SMALL = ("--epochs", "2", "--width", "0.1", "--batch-size", "20")


def save(file, seed, brightness):
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).normal(brightness, 20, (8, 8))
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(file)


def photos(root, numbers):
    for number in numbers:
        save(root / ("dark", "light")[number % 2] / f"{number:03}.png", number, (80, 130)[number % 2])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder of 60 images and a run on it."""
    home = tmp_path_factory.mktemp("home")
    photos(home / "photos", range(60))
    main(["train", str(home / "photos"), *SMALL, "--quiet", "--run", str(home / "run")])
    return home


@pytest.fixture
def home(trained, tmp_path, capsys):
    """A copy of the folder and of the run, whose data is still the original folder."""
    for name in ("photos", "run"):
        shutil.copytree(trained / name, tmp_path / name)
    settings = (tmp_path / "run" / "run.toml").read_text()
    (tmp_path / "run" / "run.toml").write_text(settings.replace(str(trained), str(tmp_path)))
    capsys.readouterr()
    return tmp_path


def scores(capsys, *arguments):
    code, shown, errors = in_this_process(capsys, "evaluate", *arguments, "--json")
    assert code == 0, errors
    return json.loads(shown), errors


def test_a_grown_folder_is_scored_on_images_that_were_not_trained_on(home, capsys):
    before, errors = scores(capsys, home / "run")
    summary = json.loads((home / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert errors == ""
    assert before["accuracy"] == summary["test"]["accuracy"]
    lines = [json.loads(line) for line in (home / "run" / "split.jsonl").read_text().splitlines()[1:]]
    tested = sum(line["part"] == "test" for line in lines)
    assert before["n"] == tested == 9
    photos(home / "photos", range(60, 100))
    after, errors = scores(capsys, home / "run")
    assert f"40 new images ({after['n'] - tested} of them in the test part), 0 removed, 0 changed" in errors
    assert tested < after["n"] < tested + 20
    assert {"split", "n", "accuracy", "predictors", "confusion", "class_names"} <= set(after)
    assert scores(capsys, home / "run", "--split", "train")[0]["n"] == 42
    code, shown, errors = in_this_process(capsys, "report", home / "run")
    assert (code, "wrote" in shown, "40 new images" in errors) == (0, True, True)
    page = (home / "run" / "report.html").read_text()
    assert "40 new images" in page
    assert f"all {after['n']} test samples" in page
    code, _, errors = in_this_process(capsys, "train", "--resume", "--run", home / "run")
    assert code == 0
    assert "is already finished" in errors
    assert "has changed since (40 new images, 0 removed, 0 changed); to use it, train a new run" in errors


def test_an_interrupted_run_resumes_on_its_own_images(trained, home, capsys, monkeypatch):
    command = ("train", home / "photos", *SMALL, "--quiet", "--run", home / "stopped")

    def stopped(*_args, **_kwargs):
        raise StoppedError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr("deeplda.training.pipeline.train", stopped)
        assert in_this_process(capsys, *command)[0] == 130
    photos(home / "photos", range(60, 70))
    file = home / "photos" / "dark" / "000.png"
    content = file.read_bytes()
    save(file, 999, 80)
    code, _, errors = in_this_process(capsys, *command, "--resume")
    assert code == 2
    assert "has changed since the run started (1 image changed, such as dark/000.png)" in errors
    file.write_bytes(content)
    assert in_this_process(capsys, *command, "--resume")[0] == 0
    for name in ("model/weights.safetensors", "split.jsonl"):
        assert (home / "stopped" / name).read_bytes() == (trained / "run" / name).read_bytes()


def test_runs_without_a_stored_split_keep_the_seeded_one(home, capsys):
    """As those of earlier versions, which had no split.jsonl."""
    (home / "run" / "split.jsonl").unlink()
    _, errors = scores(capsys, home / "run")
    assert "may include samples that the model was trained on" in errors


def test_a_damaged_split_is_one_sentence(home, capsys):
    (home / "run" / "split.jsonl").write_text("{}\n")
    code, shown, errors = in_this_process(capsys, "evaluate", home / "run")
    assert (code, shown) == (2, "")
    assert "split.jsonl is damaged" in errors
    assert len(errors.splitlines()) == 1


def test_evaluate_on_another_folder(home, capsys):
    photos(home / "other", range(200, 230))
    save(home / "other" / "emu" / "1.png", 1, 0)
    shutil.copy(home / "photos" / "dark" / "002.png", home / "other" / "dark" / "seen.png")
    (home / "other" / "dark" / "broken.png").write_text("x")
    Image.fromarray(np.full((20, 30, 3), 130, dtype=np.uint8)).save(home / "other" / "light" / "large.jpg")
    found, errors = scores(capsys, home / "run", home / "other")
    assert (found["split"], found["n"], found["class_names"]) == ("all", 32, ["dark", "light"])
    assert np.sum(found["confusion"]) == 32
    assert "left out: the class emu (1 sample), which the model does not have" in errors
    assert "broken.png cannot be read" in errors
    lines = [json.loads(line) for line in (home / "run" / "split.jsonl").read_text().splitlines()[1:]]
    (seen,) = [line["part"] != "test" for line in lines if line["file"] == "dark/002.png"]
    assert ("1 of 32 images were used to train" in errors) == seen
    # The scores are those of the same images as arrays.
    images = [np.asarray(Image.open(file)) for file in sorted((home / "other").glob("*/2*.png"))]
    labels = [file.parent.name for file in sorted((home / "other").glob("*/2*.png"))]
    arrays = {"x_test": np.stack(images), "y_test": labels, "class_names": ["light", "dark"]}
    np.savez(home / "other.npz", **arrays)
    from_arrays, _ = scores(capsys, home / "run", home / "other.npz")
    for file in ("emu/1.png", "dark/seen.png", "dark/broken.png", "light/large.jpg"):
        (home / "other" / file).unlink()
    (home / "other" / "emu").rmdir()
    from_files, _ = scores(capsys, home / "run", home / "other")
    assert from_arrays["confusion"] == from_files["confusion"]


def test_evaluate_on_the_test_part_of_another_folder(home, capsys):
    photos(home / "other" / "test", range(300, 310))
    photos(home / "other" / "train", range(310, 330))
    found, _ = scores(capsys, home / "run", home / "other")
    assert (found["split"], found["n"]) == ("test", 10)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (("missing",), "missing does not exist"),
        (("digits",), "digits has no sample of a class that the model knows"),
        (("photos", "--split", "val"), "--split val is a split of the run's own data: omit it"),
    ],
)
def test_other_data_that_cannot_be_used(home, capsys, monkeypatch, data, says):
    monkeypatch.chdir(home)
    code, shown, errors = in_this_process(capsys, "evaluate", "run", *data)
    assert (code, shown) == (2, "")
    assert says in errors


def test_groups_and_wrong_patterns(home, capsys):
    command = ("train", home / "photos", *SMALL, "--quiet", "--run", home / "grouped")
    for pattern, says in (("(", "need a regular expression"), ("person", "found in none of 60 file names")):
        code, _, errors = in_this_process(capsys, *command, "--group-by", pattern)
        assert (code, says in errors) == (2, True)
    assert in_this_process(capsys, *command, "--group-by", r"^0\d")[0] == 0
    lines = [json.loads(line) for line in (home / "grouped" / "split.jsonl").read_text().splitlines()[1:]]
    parts = {}
    for line in lines:
        parts.setdefault(line["file"].split("/")[1][:2], set()).add(line["part"])
    assert len(parts) == 6
    assert all(len(part) == 1 for part in parts.values())
    # The pattern is a setting of the run, so the same groups are found again.
    assert scores(capsys, home / "grouped")[1] == ""
