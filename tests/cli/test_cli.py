"""The command line as its users meet it: in a process of its own."""

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from deeplda import load
from deeplda.data import load_data

QUICK = ("--epochs", "2", "--width", "0.25", "--learning-rate", "0.1")


def deeplda(*arguments, cwd, check=None):
    command = [sys.executable, "-m", "deeplda", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    if check is not None:
        assert done.returncode == check, done.stderr
    return done


def only_sentence(done):
    """What a mistake is answered with: exit code 2, one line, no traceback."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("deeplda: ")
    return line


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a finished run on digits, and some images."""
    home = tmp_path_factory.mktemp("home")
    done = deeplda("train", *QUICK, "--json", "--run", "runs/digits", cwd=home, check=0)
    (home / "train.json").write_text(done.stdout)
    part = load_data("digits").test
    (home / "images" / "deep").mkdir(parents=True)
    for place in range(6):
        folder = home / "images" / ("deep" if place % 2 else "")
        Image.fromarray(part.inputs[place, 0]).save(folder / f"{place}-{part.labels[place]}.png")
    return home


def test_help_needs_no_torch(tmp_path):
    code = "import sys; from deeplda.cli import app; app(['--help']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    for command in ("train", "evaluate", "predict", "data", "network"):
        assert command in done.stdout
    assert "deeplda train photos/" in done.stdout


@pytest.mark.parametrize(
    "command",
    ["train", "evaluate", "predict", "sweep", "table", "report", "doctor", "export", "network", "data", "data fetch"],
)
def test_help_of_each_command_shows_an_example(tmp_path, command):
    assert f"Example: deeplda {command} " in deeplda(*command.split(), "--help", cwd=tmp_path, check=0).stdout


def test_a_known_name_wins_over_a_folder(tmp_path):
    (tmp_path / "digits").mkdir()
    deeplda("train", "digits", *QUICK, "--run", "run", cwd=tmp_path, check=0)
    assert 'data = "digits"' in (tmp_path / "run" / "run.toml").read_text()


def test_train_prints_one_json_object(home):
    summary = json.loads((home / "train.json").read_text())
    assert summary["run"] == "runs/digits"
    assert summary["epochs"] == 2
    assert set(summary["test"]["predictors"]) == {"hyperplanes", "nearest_mean", "classic_lda"}
    assert summary["test"]["accuracy"] > 0.8


def test_the_run_folder_is_as_promised(home):
    run = home / "runs" / "digits"
    for name in ("run.toml", "environment.json", "metrics.jsonl", "model/weights.safetensors", "model/model.json"):
        assert (run / name).is_file(), name
    for name in ("last", "previous", "best"):
        assert (run / "checkpoints" / name / "state.safetensors").is_file(), name
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["kind"] for row in rows] == ["epoch", "epoch", "summary"]
    assert len(rows[0]["eigenvalues"]) == 9


def test_evaluate_agrees_with_training(home):
    found = json.loads(deeplda("evaluate", "runs/digits", "--json", cwd=home, check=0).stdout)
    summary = json.loads((home / "train.json").read_text())
    assert set(found) == {"split", "n", "accuracy", "predictors", "confusion", "class_names"}
    assert found["split"] == "test"
    assert found["n"] == 270
    assert found["predictors"] == summary["test"]["predictors"]
    assert found["accuracy"] == np.trace(found["confusion"]) / 270
    validation = json.loads(deeplda("evaluate", "runs/digits", "--split", "val", "--json", cwd=home, check=0).stdout)
    assert validation["predictors"] == summary["validation"]["predictors"]


def test_evaluate_shows_a_table(home):
    text = deeplda("evaluate", "runs/digits", "--tta", "mirror", cwd=home, check=0).stdout
    assert "mirrored" in text
    assert "balanced" in text
    assert "AUC" in text
    assert "confusion matrix, by hyperplanes" in text


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


def test_predict_shows_how_far_an_image_is_from_the_nearest_class(home):
    arguments = ("predict", "runs/digits", "images", "--distance")
    found = json.loads(deeplda(*arguments, "--json", cwd=home, check=0).stdout)["predictions"]
    pixels = np.stack([np.asarray(Image.open(home / row["file"])) for row in found])[:, None]
    distances = load(home / "runs/digits").mahalanobis(pixels)
    assert [row["distance"] for row in found] == pytest.approx(distances, rel=1e-4)
    lines = deeplda(*arguments, "--csv", cwd=home, check=0).stdout.splitlines()
    assert lines[0] == "file,class,probability,distance"
    assert [float(line.split(",")[3]) for line in lines[1:]] == pytest.approx(distances, rel=1e-4)


def test_predict_leaves_out_broken_files_only_when_told(home, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"not an image")
    assert "broken.png" in only_sentence(deeplda("predict", "runs/digits", tmp_path / "broken.png", cwd=home))
    done = deeplda("predict", "runs/digits", "images", tmp_path, "--skip-unreadable", "--json", cwd=home, check=0)
    assert len(json.loads(done.stdout)["predictions"]) == 6
    assert "left out" in done.stderr


def test_a_finished_run_says_so(home):
    done = deeplda("train", "--resume", "--run", "runs/digits", cwd=home, check=0)
    assert "is finished already" in done.stderr


def test_nothing_to_resume_is_said(tmp_path):
    done = deeplda("train", "--resume", "--run", "runs/typo", *QUICK, cwd=tmp_path, check=0)
    assert "note: no run is in runs/typo: a new one is begun, on digits" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "--run", "runs/digits"), "holds a run already: pass --resume"),
        (("train", "--resume", "--run", "runs/digits", "--alpha", "0.1"), "was started with alpha 1.0, not 0.1"),
        (("train", "--resume", "--run", "runs/digits", "--recipe", "quick"), "go on with deeplda train --resume --run"),
        (("train", "--alpah", "1"), "Did you mean --alpha?"),
        (("train", "--alpha", "1.5"), "alpha is '1.5'"),
        (("train", "--statistic", "wilk"), "statistic is 'wilk'"),
        (("train", "--objective", "dlda", "--alpha", "0.5"), "objective dlda is alpha 1"),
        (("train", "nowhere/"), "nowhere/ does not exist"),
        (("train", 300 * "é"), "is longer than the name of a file can be"),
        (("train", "--run", 300 * "é"), "is longer than the name of a file can be"),
        (("train", "--recipe", 300 * "é"), "is longer than the name of a file can be"),
        (("predict", "runs/digits", 300 * "é"), "is longer than the name of a file can be"),
        (("train", "cifar"), "did you mean cifar10?"),
        (("train", "~nobody-of-that-name/photos"), "unknown user"),
        (("sweep", "cifar10", "--data-dir", "~nobody-of-that-name"), "unknown user"),
        (("train", "--recipe", "quik"), "did you mean 'quick'?"),
        (("train", "--device", "cuda:7"), "device 'cuda:7'"),
        (("train", "--device", "meta"), "device 'meta'"),
        (("train", "--split-seed", "99999999999999999999"), "split_seed is"),
        (("train", "--translate", "9223372036854775807"), "translate is"),
        (("train", "--learning-rate", "1e300"), "learning_rate is"),
        (("train", "--processes", "1.5"), "1.5"),
        (("train", "--run", "runs/digits/run.toml"), "runs/digits/run.toml is a file"),
        (("predict", "runs/digits", "/dev/null"), "/dev/null is neither a file nor a folder"),
        (("train", "--network", "dorfernet"), "24"),
        (("trian",), 'Did you mean "train"?'),
        (("train", "--run", "runs/digits/model"), "holds a model and no run: choose another --run"),
        (("evaluate", "nothing"), "nothing is no run, there is no such folder"),
        (("evaluate", "runs/digits/model"), "runs/digits/model is no run, it holds a model alone"),
        (("predict", "runs/digits", "images", "--csv", "--json"), "choose one"),
        (("predict", "nothing", "images"), "there is no folder nothing"),
        (("predict", "runs/digits"), "no files were given"),
        (("predict", "runs/digits", "nowhere.png"), "nowhere.png does not exist"),
        (("network", "--input", "3by3"), "is not a shape"),
        (("network", "--embedding-dim", "9.9"), "9.9"),
        (("network", "--width", "10000"), "does not fit in memory"),
        (("data", "fetch", "digits"), "scikit-learn"),
    ],
)
def test_mistakes_are_answered_with_one_sentence(home, arguments, message):
    before = sorted((home / "runs").iterdir())
    assert message in only_sentence(deeplda(*arguments, cwd=home))
    assert sorted((home / "runs").iterdir()) == before


def test_cross_entropy_reports_softmax(tmp_path):
    given = ("--objective", "cce", *QUICK, "--embedding-dim", "5", "--alpha", "0.5")
    done = deeplda("train", *given, "--json", cwd=tmp_path, check=0)
    assert "note: --alpha has no effect on training with objective cce" in done.stderr.splitlines()
    summary = json.loads(done.stdout)
    assert set(summary["test"]["predictors"]) == {"softmax"}
    assert summary["run"] == "runs/digits-cce"
    again = json.loads(deeplda("evaluate", "runs/digits-cce", "--json", cwd=tmp_path, check=0).stdout)
    assert again["accuracy"] == summary["test"]["accuracy"]
    Image.new("L", (8, 8)).save(tmp_path / "one.png")
    refused = deeplda("predict", "runs/digits-cce", "one.png", "--distance", cwd=tmp_path)
    assert "need one trained with an LDA objective" in only_sentence(refused)


def test_rows_of_numbers_and_balanced_weights(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.choice(["yes", "no"], 300, p=[0.8, 0.2])
    x = rng.normal(size=(300, 5)) + 2 * (y == "yes")[:, None]
    np.savez(tmp_path / "rows.npz", x_train=x, y_train=y)
    arguments = ("train", "rows.npz", "--class-weight", "balanced", "--epochs", "3", "--quiet", "--json")
    done = deeplda(*arguments, cwd=tmp_path, check=0)
    assert done.stderr == ""
    assert json.loads(done.stdout)["class_names"] == ["no", "yes"]
    assert "takes rows of numbers" in only_sentence(deeplda("predict", "runs/rows-rdlda", "rows.npz", cwd=tmp_path))
    np.savez(tmp_path / "rows.npz", x_train=np.vstack([x, x[:1]]), y_train=[*y, y[0]])
    done = deeplda("evaluate", "runs/rows-rdlda", cwd=tmp_path, check=0)
    assert "has changed since runs/rows-rdlda was trained" in done.stderr


def test_a_second_run_gets_a_folder_of_its_own(tmp_path):
    for expected in ("runs/digits-rdlda", "runs/digits-rdlda-2"):
        done = deeplda("train", "--epochs", "1", "--width", "0.1", "--json", "--quiet", cwd=tmp_path, check=0)
        assert json.loads(done.stdout)["run"] == expected


def test_a_network_of_ones_own(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def make(shape, embedding_dim):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, embedding_dim))\n"
    )
    done = deeplda("train", "--network", "mine:make", "--epochs", "1", "--run", "r", cwd=tmp_path, check=0)
    assert "  deeplda evaluate r --network mine:make\n" in done.stdout
    assert "your word that it may run" in only_sentence(deeplda("evaluate", "r", cwd=tmp_path))
    deeplda("evaluate", "r", "--network", "mine:make", cwd=tmp_path, check=0)


def test_network_and_data_commands(tmp_path):
    found = json.loads(deeplda("network", "dorfernet", "--json", cwd=tmp_path, check=0).stdout)
    assert found["parameters"] == sum(layer["parameters"] for layer in found["layers"]) == 5_749_204
    assert "1024" in deeplda("network", cwd=tmp_path, check=0).stdout
    shown = deeplda("data", "list", "--data-dir", tmp_path, cwd=tmp_path, check=0).stdout
    assert "digits" in shown
    assert f"not here: deeplda data fetch stl10 --data-dir {tmp_path}" in shown
    listed = json.loads(deeplda("data", "list", "--json", "--data-dir", tmp_path, cwd=tmp_path, check=0).stdout)
    assert listed == {
        "data": {"digits": True, "cifar10": False, "stl10": False, "mnist": False, "fashion-mnist": False}
    }
    assert deeplda("data", "check", "digits", cwd=tmp_path, check=0).stdout.startswith("whole")
