"""Continue from a trained run: on a folder that has grown, and for more epochs."""

import json
import shutil

import numpy as np
import pytest
import torch
from command import in_this_process
from PIL import Image
from safetensors.torch import load_file, save_file

from deeplda.cli import main
from deeplda.errors import StoppedError
from deeplda.training.config import RunConfig

SMALL = ("--epochs", "3", "--width", "0.1", "--batch-size", "20", "--quiet")
BRIGHTNESS = {"dark": 60, "light": 160, "mid": 110}


def photos(root, numbers, names=("dark", "light")):
    for number in numbers:
        name = names[number % len(names)]
        (root / name).mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).normal(BRIGHTNESS[name], 30, (8, 8))
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(root / name / f"{number:03}.png")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on a folder of 60 images in two classes, and the same folder with 60 more and a third class."""
    home = tmp_path_factory.mktemp("home")
    photos(home / "photos", range(60))
    main(["train", str(home / "photos"), *SMALL, "--flip", "--run", str(home / "runs" / "a")])
    photos(home / "photos", range(60, 120), ("dark", "light", "mid"))
    main(["train", str(home / "photos"), "--start-from", str(home / "runs" / "a"), "--quiet", *run_to(home, "b")])
    return home


def run_to(home, name):
    return "--run", str(home / "runs" / name)


@pytest.fixture
def home(trained, tmp_path, capsys, monkeypatch):
    """A copy of the first run, in the current folder. Its data stays where it is."""
    shutil.copytree(trained / "runs" / "a", tmp_path / "runs" / "a")
    (tmp_path / "photos").symlink_to(trained / "photos")
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    return tmp_path


def refused(capsys, *arguments):
    code, shown, errors = in_this_process(capsys, "train", *arguments)
    (line,) = errors.splitlines()
    assert (code, shown, line[:9]) == (2, "", "deeplda: ")
    return line


def parts(run):
    lines = [json.loads(line) for line in (run / "split.jsonl").read_text().splitlines()[1:]]
    return {part: {line["hash"] for line in lines if line["part"] == part} for part in ("train", "val", "test")}


def weights(run):
    return (run / "model" / "weights.safetensors").read_bytes()


def metrics(run):
    """The rows of a run without the time that they took."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def test_a_grown_folder_with_a_new_class(trained, capsys):
    a, b = trained / "runs" / "a", trained / "runs" / "b"
    capsys.readouterr()
    # No image that the first run was trained on, or that chose its epoch, is tested.
    assert all(parts(a)[part] < parts(b)[part] for part in ("train", "val", "test"))
    assert not parts(b)["test"] & (parts(a)["train"] | parts(a)["val"])
    assert sum(map(len, parts(b).values())) == 120
    # The settings are those of the first run.
    before, after = RunConfig.of(a), RunConfig.of(b)
    started = {"network": "convnet-small", "image_size": 8, "start_from": a, "start_hash": after.start_hash}
    assert after == before.model_copy(update=started)
    assert json.loads((b / "model" / "model.json").read_text())["class_names"] == ["dark", "light", "mid"]
    # Both are evaluated on the same images of the classes that the first one knows.
    scores = [json.loads(in_this_process(capsys, "evaluate", run, "--json")[1]) for run in (a, b)]
    assert scores[0]["n"] == sum(map(sum, scores[1]["confusion"][:2]))
    assert scores[1]["n"] == len(parts(b)["test"])


def test_it_says_which_layers_were_kept_and_starts_with_them(home, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("deeplda.training.pipeline.train", stopped)
        code, _, errors = in_this_process(capsys, "train", "photos", "--start-from", "runs/a", *run_to(home, "b"))
    assert code == 130
    lines = errors.splitlines()
    assert f"starting from {home / 'runs' / 'a'}: kept the layers features; reinitialised output" in lines
    first = load_file(home / "runs" / "b" / "checkpoints" / "last" / "state.safetensors")
    model = load_file(home / "runs" / "a" / "model" / "weights.safetensors")
    kept = [name for name in model if name.startswith("network.features.")]
    assert len(kept) == 30
    assert all(torch.equal(first[f"network.{name}"], model[name]) for name in kept)
    assert first["network.network.output.weight"].shape[0] == 3


def stopped(*_args, **_kwargs):
    raise StoppedError("stopped")


@pytest.mark.parametrize("moment", ["build_trainee", "train"])
def test_a_run_that_was_killed_ends_in_the_same_bytes(trained, home, capsys, monkeypatch, moment):
    """Before its first checkpoint, it needs the weights that it started from; after that, it does not."""
    new = ("photos", "--start-from", "runs/a", "--quiet", *run_to(home, "b"))
    with monkeypatch.context() as patch:
        patch.setattr(f"deeplda.training.pipeline.{moment}", stopped)
        assert in_this_process(capsys, "train", *new)[0] == 130
    (home / "runs" / "a").rename(home / "moved")
    resume = ("--resume", "--quiet", *run_to(home, "b"))
    repeated = (*new, "--resume")
    if moment == "build_trainee":
        assert "which this run starts from, does not exist" in refused(capsys, *resume)
        shutil.copytree(home / "moved", home / "runs" / "a")
        file = home / "runs" / "a" / "model" / "weights.safetensors"
        state = load_file(file)
        state["network.features.0.weight"][0, 0, 0, 0] += 1e-3
        save_file(state, file)
        assert "no longer contains the weights that this run was started from" in refused(capsys, *resume)
        file.write_bytes((home / "moved" / "model" / "weights.safetensors").read_bytes())
    # The whole command may be repeated, whether or not the first run is still there.
    assert in_this_process(capsys, "train", *(repeated if moment == "train" else resume))[0] == 0
    assert weights(home / "runs" / "b") == weights(trained / "runs" / "b")
    assert metrics(home / "runs" / "b") == metrics(trained / "runs" / "b")


def test_a_run_is_repeated_from_its_settings(trained, home, capsys):
    recipe = trained / "runs" / "b" / "run.toml"
    assert in_this_process(capsys, "train", "--recipe", recipe, "--quiet", *run_to(home, "c"))[0] == 0
    assert weights(home / "runs" / "c") == weights(trained / "runs" / "b")
    assert f"deeplda train --recipe {home / 'runs' / 'c' / 'run.toml'}" in (home / "runs/c/report.html").read_text()
    changed = recipe.read_text().replace('start_hash = "', 'start_hash = "0')
    (home / "changed.toml").write_text(changed)
    assert "no longer contains the weights" in refused(capsys, "--recipe", "changed.toml", *run_to(home, "d"))
    assert not (home / "runs" / "d").exists()


def test_model_folders_files_and_other_settings(home, capsys):
    for number, start in enumerate(("runs/a/model", "runs/a/model/weights.safetensors")):
        own = SMALL[:-1] if start.endswith("tensors") else ("--epochs", "1", "--batch-size", "20")
        new = ("photos", "--start-from", start, *own, *run_to(home, f"b{number}"))
        code, _, errors = in_this_process(capsys, "train", *new)
        assert (code, "kept the layers features; reinitialised output" in errors) == (0, True)
        assert "the test set may contain samples that" in errors
    code, _, errors = in_this_process(
        capsys, "train", "photos", "--start-from", "runs/a", "--embedding-dim", "5", "--objective", "cce",
        "--epochs", "1", *run_to(home, "cce"),
    )  # fmt: skip
    assert code == 0
    assert "kept the layers features; reinitialised output, softmax" in errors
    assert "may contain" not in errors


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--start-from", "nowhere"), "start_from is nowhere, which does not exist"),
        (("--start-from", "photos"), "photos contains no model: pass the folder of a finished run"),
        (("--start-from", "runs/a", "--width", "0.5"), "pass --network convnet-small --width 0.1"),
        (("--start-from", "runs/a", "--network", "mlp"), "mlp cannot process samples of shape (1, 8, 8)"),
        (("--start-from", "runs/a/model/weights.safetensors"), "pass the --network and --width"),
        (("--start-from", "runs/a/run.toml"), "need an intact safetensors file"),
    ],
)
def test_what_cannot_be_started_from_is_one_sentence(home, capsys, options, says):
    assert says in refused(capsys, "photos", *options, "--quiet", *run_to(home, "b"))
    assert not (home / "runs" / "b").exists()


def test_code_is_run_only_if_it_is_named(home, capsys):
    (home / "trap.py").write_text("open('sprung', 'w')\n")
    settings = home / "runs" / "a" / "run.toml"
    settings.write_text('network = "trap:make"\n' + settings.read_text())
    assert in_this_process(capsys, "train", "photos", "--start-from", "runs/a", "--quiet", *run_to(home, "c"))[0] == 0
    assert RunConfig.of(home / "runs" / "c").network == "convnet-small"
    card = home / "runs" / "a" / "model" / "model.json"
    card.write_text(card.read_text().replace('"convnet-small"', '"trap:make"'))
    line = refused(capsys, "photos", "--start-from", "runs/a", *run_to(home, "b"))
    assert "'trap:make', which is not run without your permission: pass --network trap:make" in line
    assert not (home / "sprung").exists()


def test_a_finished_run_is_extended(home, capsys):
    before = metrics(home / "runs" / "a")
    code, _, errors = in_this_process(capsys, "train", "--resume", "--epochs", "5", *run_to(home, "a"))
    assert code == 0
    what = "is extended from 3 to 5 epochs: epochs 4 to 5 have the learning rates of a one-cycle run of 5 epochs"
    assert f"{what}, starting at 0.016" in errors
    rows = metrics(home / "runs" / "a")
    assert rows[:3] == before[:3]
    assert [row.get("epoch") for row in rows] == [1, 2, 3, 4, 5, None]
    assert (rows[-1]["kind"], rows[-1]["epochs"]) == ("summary", 5)
    assert [row["learning_rate"] > 0 for row in rows[3:5]] == [True, True]
    assert "5 epochs" in (home / "runs" / "a" / "report.html").read_text()
    # Once more, it is finished. The same settings from the start give the same run.
    assert "is already finished" in in_this_process(capsys, "train", "--resume", "--epochs", "5", *run_to(home, "a"))[2]
    assert "with epochs 3, not with epochs 4" in refused(capsys, "--resume", "--epochs", "4", *run_to(home, "a"))
    assert "is already finished" in in_this_process(capsys, "train", "--resume", "--epochs", "3", *run_to(home, "a"))[2]
    photos(home / "first", range(60))
    again = ("first", "--recipe", "runs/a/run.toml", "--quiet", *run_to(home, "again"))
    assert in_this_process(capsys, "train", *again)[0] == 0
    assert weights(home / "runs" / "again") == weights(home / "runs" / "a")
    assert metrics(home / "runs" / "again") == rows


@pytest.mark.parametrize("stop_after", [1, 4])
def test_an_unfinished_run_is_extended_and_resumed_to_the_same_bytes(home, capsys, monkeypatch, stop_after):
    """Whether it is stopped before or after the first stretch ends, and when it is asked for more."""
    photos(home / "first", range(60))
    whole = ("first", *SMALL, "--flip")
    in_this_process(capsys, "train", *whole, *run_to(home, "whole"))
    in_this_process(capsys, "train", "--resume", "--epochs", "5", "--quiet", *run_to(home, "whole"))

    from deeplda.training import loop

    def stop_at(epoch):
        def next_epoch(counters, *rest, **options):
            if counters.epoch == epoch:
                raise StoppedError("stopped")
            return loop_next_epoch(counters, *rest, **options)

        loop_next_epoch = loop._next_epoch
        return next_epoch

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_next_epoch", stop_at(1))
        assert in_this_process(capsys, "train", *whole, *run_to(home, "cut"))[0] == 130
    if stop_after == 4:
        with monkeypatch.context() as patch:
            patch.setattr(loop, "_next_epoch", stop_at(4))
            assert (
                in_this_process(capsys, "train", "--resume", "--epochs", "5", "--quiet", *run_to(home, "cut"))[0] == 130
            )
    assert in_this_process(capsys, "train", "--resume", "--epochs", "5", "--quiet", *run_to(home, "cut"))[0] == 0
    assert weights(home / "runs" / "cut") == weights(home / "runs" / "whole")
    assert metrics(home / "runs" / "cut") == metrics(home / "runs" / "whole")


def test_a_run_that_stopped_early_is_extended(home, capsys):
    """Patience counts again only when the rate of the last stretch has fallen."""
    photos(home / "first", range(60))
    stops = ("--epochs", "20", "--schedule", "halving", "--patience", "1")
    new = ("first", *SMALL[2:], *stops, *run_to(home, "early"))
    assert in_this_process(capsys, "train", *new)[0] == 0
    assert metrics(home / "runs" / "early")[-1]["epochs"] < 19
    assert in_this_process(capsys, "train", "--resume", "--epochs", "24", "--quiet", *run_to(home, "early"))[0] == 0
    summary = metrics(home / "runs" / "early")[-1]
    assert 20 < summary["epochs"] <= 24


def test_the_best_epoch_is_kept_if_no_later_one_is_better(home, capsys, monkeypatch):
    from deeplda.training import loop

    next_epoch = loop._next_epoch
    monkeypatch.setattr(
        loop, "_next_epoch", lambda c, score, t, **rest: next_epoch(c, score if c.epoch < 3 else 0.0, t, **rest)
    )
    before = (home / "runs" / "a" / "checkpoints" / "best" / "state.safetensors").read_bytes()
    best = metrics(home / "runs" / "a")[-1]["best_epoch"]
    quiet = ("train", "--resume", "--epochs", "5", "--quiet", *run_to(home, "a"))
    code, _, errors = in_this_process(capsys, *quiet)
    assert (code, errors) == (0, "")
    assert metrics(home / "runs" / "a")[-1]["best_epoch"] == best
    assert (home / "runs" / "a" / "checkpoints" / "best" / "state.safetensors").read_bytes() == before


def test_only_epochs_may_differ(home, capsys):
    line = refused(capsys, "--resume", "--epochs", "5", "--lam", "0.1", *run_to(home, "a"))
    assert "was started with lam 0.001, not with lam 0.1" in line
    line = refused(capsys, "--resume", "--relabel", "a.csv", "--relabel", "b.csv", *run_to(home, "a"))
    assert "was started without relabel, not with relabel a.csv, b.csv: omit relabel" in line
    assert "extended_to" not in (home / "runs" / "a" / "run.toml").read_text()
