"""`deeplda predict`: classes, probabilities and distances of image files."""

import json

import numpy as np
import pytest
from command import deeplda, only_sentence
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


def test_predict_skips_broken_files_only_if_told_to(home, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"not an image")
    assert "broken.png" in only_sentence(deeplda("predict", "runs/digits", tmp_path / "broken.png", cwd=home))
    done = deeplda("predict", "runs/digits", "images", tmp_path, "--skip-unreadable", "--json", cwd=home, check=0)
    assert len(json.loads(done.stdout)["predictions"]) == 6
    assert "skipped" in done.stderr


def test_predict_fails_if_nothing_can_be_read(home, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"not an image")
    for output in ((), ("--json",), ("--csv",)):
        done = deeplda("predict", "runs/digits", tmp_path, "--skip-unreadable", *output, cwd=home, check=1)
        assert done.stdout == ""
        skipped, sentence = done.stderr.splitlines()
        assert skipped.startswith("skipped: ")
        assert sentence.startswith("deeplda: none of the files could be read")
