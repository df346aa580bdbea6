"""`deeplda predict`: classes, probabilities and distances of image files."""

import csv
import json

import numpy as np
import pytest
from command import deeplda, in_this_process
from PIL import Image

from deeplda import load
from deeplda.data import load_data


def test_predict_files_and_folders(home):
    arguments = ("predict", "runs/digits", "images", "images/0-{}.png".format(load_data("digits").test.labels[0]))
    found = json.loads(deeplda(*arguments, "--json", cwd=home, check=0).stdout)
    assert len(found["predictions"]) == 7
    assert all(row["class"] in found["class_names"] for row in found["predictions"])
    assert all(0 < row["probability"] <= 1 for row in found["predictions"])
    lines = deeplda(*arguments, "--csv", cwd=home, check=0).stdout.splitlines()
    assert lines[0] == "file,class,probability"
    assert [line.split(",")[1] for line in lines[1:]] == [row["class"] for row in found["predictions"]]
    assert "probability" in deeplda(*arguments, cwd=home, check=0).stdout


def test_predict_with_mirror_images(home, tmp_path):
    pixels = load_data("digits").test.inputs[:, 0]
    for name, images in {"plain": pixels, "turned": pixels[..., ::-1]}.items():
        (tmp_path / name).mkdir()
        for place in range(20):
            Image.fromarray(images[place]).save(tmp_path / name / f"{place:02}.png")

    def probabilities(name, *options):
        done = deeplda("predict", "runs/digits", tmp_path / name, *options, "--json", cwd=home, check=0)
        return [row["probability"] for row in json.loads(done.stdout)["predictions"]]

    mirrored = probabilities("plain", "--tta", "mirror")
    assert mirrored == pytest.approx(probabilities("turned", "--tta", "mirror"), abs=1e-4)
    assert mirrored != pytest.approx(probabilities("plain"), abs=1e-4)


def test_predict_shows_the_distance_to_the_nearest_class(home):
    arguments = ("predict", "runs/digits", "images", "--distance")
    found = json.loads(deeplda(*arguments, "--json", cwd=home, check=0).stdout)["predictions"]
    pixels = np.stack([np.asarray(Image.open(home / row["file"])) for row in found])[:, None]
    distances = load(home / "runs/digits").mahalanobis(pixels)
    assert [row["distance"] for row in found] == pytest.approx(distances, rel=1e-4)
    lines = deeplda(*arguments, "--csv", cwd=home, check=0).stdout.splitlines()
    assert lines[0] == "file,class,probability,distance"
    assert [float(line.split(",")[3]) for line in lines[1:]] == pytest.approx(distances, rel=1e-4)


def test_predict_rejects_unknown_images(home, tmp_path):
    """Digits are mostly accepted at 0.95; noise is mostly not; JSON, CSV and the table say so."""
    (tmp_path / "noise").mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8)
    for place, pixels in enumerate(noise):
        Image.fromarray(pixels).save(tmp_path / "noise" / f"{place:02}.png")
    arguments = ("predict", "runs/digits", tmp_path / "noise", "--reject", "0.95")
    found = json.loads(deeplda(*arguments, "--json", cwd=home, check=0).stdout)["predictions"]
    model = load(home / "runs/digits")
    names = model.predict(noise[:, None], reject=0.95)
    assert [row["class"] for row in found] == names.tolist()
    assert [row["unknown_score"] for row in found] == pytest.approx(model.unknown_score(noise[:, None]), abs=1e-5)
    assert np.mean(names == "none of these") > 0.5
    assert np.mean(model.predict(load_data("digits").test.inputs, reject=0.95) == "none of these") < 0.15
    lines = deeplda(*arguments, "--csv", cwd=home, check=0).stdout.splitlines()
    assert lines[0] == "file,class,probability,unknown_score"
    assert [line.split(",")[1] for line in lines[1:]] == names.tolist()
    assert "none of these" in deeplda(*arguments, cwd=home, check=0).stdout
    wrong = deeplda("predict", "runs/digits", "images", "--reject", "95", cwd=home, check=2)
    assert "reject is 95.0, need a number between 0 and 1" in wrong.stderr


def predicted(arguments, capsys):
    """Run predict, and return its exit code, stdout, and the lines on stderr."""
    code, shown, errors = in_this_process(capsys, "predict", *arguments)
    return code, shown, errors.splitlines()


def test_predict_answers_for_the_readable_files_and_lists_the_others(home, tmp_path, capsys):
    (tmp_path / "broken.png").write_bytes(b"not an image")
    (tmp_path / "notes.txt").write_text("x")
    files = (home / "runs/digits", home / "images", tmp_path)
    code, shown, errors = predicted((*files, "--json"), capsys)
    found = json.loads(shown)
    assert code == 1
    assert len(found["predictions"]) == 6
    (unreadable,) = found["unreadable"]
    assert unreadable["file"] == str(tmp_path / "broken.png")
    assert "unknown image format" in unreadable["error"]
    assert errors[0] == "ignored: 1 .txt file (not a readable format)"
    assert errors[1] == f"not classified: {unreadable['error']}"
    assert errors[2] == "deeplda: 1 of 7 files could not be read"
    code, shown, _ = predicted((*files, "--csv"), capsys)
    rows = list(csv.DictReader(shown.splitlines()))
    assert code == 1
    assert {row["file"]: row["class"] for row in rows} == {
        row["file"]: row.get("class", "") for row in (*found["predictions"], unreadable)
    }
    code, shown, _ = predicted(files, capsys)
    assert code == 1
    assert "probability" in shown
    assert predicted((*files, "--skip-unreadable", "--csv"), capsys)[0] == 0


def test_predict_fails_if_nothing_can_be_read(home, tmp_path, capsys):
    (tmp_path / "broken.png").write_bytes(b"not an image")
    empty = {"--csv": f"file,class,probability\n{tmp_path / 'broken.png'},,\n", "--skip-unreadable": ""}
    for option, expected in empty.items():
        code, shown, errors = predicted((home / "runs/digits", tmp_path, option), capsys)
        assert (code, shown) == (1, expected)
        assert errors[0].startswith("not classified: ")
        assert errors[1].startswith("deeplda: none of the files could be read")
