"""The command line answers a malformed or hostile file with one sentence and exit code 2, and runs nothing in it."""

import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from deeplda.cli import main
from deeplda.experiments.sweep_definition import SweepDefinition
from deeplda.training.config import RunConfig


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run on a folder of images; its path, "[/b]", and its class names look like markup."""
    home = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(0)
    for name, brightness in (("[blue", 40), ("[red]", 200)):
        folder = home / "[" / "b]" / name
        folder.mkdir(parents=True)
        for number in range(12):
            pixels = np.clip(rng.normal(brightness, 20, (8, 8)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    command = (
        "train",
        str(home / "[" / "b]"),
        "--epochs",
        "1",
        "--width",
        "0.1",
        "--quiet",
        "--run",
        str(home / "run"),
    )
    main(command)
    return home / "run"


@pytest.fixture
def refused(capsys):
    """Run a command that must fail with exit code 2, and return its one line on stderr."""

    def run(*arguments):
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        assert caught.value.code == 2
        lines = capsys.readouterr().err.strip().splitlines()
        errors = [line for line in lines if not line.startswith("warning:")]
        assert len(errors) == 1
        return errors[0]

    return run


@pytest.fixture
def copied(run, tmp_path):
    return shutil.copytree(run, tmp_path / "run")


def change(file, **changes):
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_names_that_look_like_markup_are_names(run, capsys):
    image = next(run.parent.rglob("*.png"))
    main(["predict", str(run), str(image)])
    main(["evaluate", str(run)])
    assert "[red]" in capsys.readouterr().out


@pytest.mark.usefixtures("little_memory")
def test_a_model_that_declares_a_huge_network(copied, run, refused):
    change(copied / "model" / "model.json", width=1e9)
    image = next(run.parent.rglob("*.png"))
    assert "cannot be used: the network does not fit in memory" in refused("predict", copied, image)
    assert "cannot be used: the network does not fit in memory" in refused("evaluate", copied)


def test_a_model_that_declares_huge_images(copied, run, refused):
    change(copied / "model" / "model.json", sample_shape=[1, 100_000, 100_000])
    image = next(run.parent.rglob("*.png"))
    for command in (("predict", copied, image), ("evaluate", copied), ("report", copied), ("export", copied)):
        assert "a sample of shape (1, 100000, 100000) does not fit in memory" in refused(*command)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_model_that_computes_nan_or_infinity(copied, run, refused, value):
    file = copied / "model" / "weights.safetensors"
    state = load_file(file)
    state["network.output.bias"][:] = value
    save_file(state, file)
    image = next(run.parent.rglob("*.png"))
    commands = (
        ("predict", copied, image, "--json"),
        ("predict", copied, image, "--subclasses", "--distance"),
        ("evaluate", copied, "--json"),
        ("report", copied),
        ("export", copied, "--format", "torch"),
    )
    for command in commands:
        assert "the model computes NaN or infinity" in refused(*command)
    assert not (copied / "model" / "model.pt2").exists()


def test_weights_that_would_take_forever_or_all_memory(copied, run, refused):
    file, image = copied / "model" / "weights.safetensors", next(run.parent.rglob("*.png"))
    header = json.dumps({"x": {"dtype": "F32", "shape": [2**38], "data_offsets": [0, 2**40]}}).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(file, 8 + len(header) + 2**40)
    assert "weights.safetensors does not fit in memory" in refused("predict", copied, image)
    file.unlink()
    os.mkfifo(file)
    assert "weights.safetensors cannot be read (Not a regular file)" in refused("predict", copied, image)


def test_a_report_that_is_a_folder_is_noticed_before_the_work(copied, refused, monkeypatch):
    (copied / "report.html").unlink()
    (copied / "report.html").mkdir()
    for work in ("deeplda.report.report_files.inspect_run", "deeplda.training.pipeline.run_to_end"):
        monkeypatch.setattr(work, lambda *_, **__: pytest.fail("the work was done"))
    assert "report.html is a folder" in refused("report", copied)
    assert "report.html is a folder" in refused("train", "--resume", "--run", copied)


def test_metrics_of_a_different_model(copied, refused):
    file = copied / "metrics.jsonl"
    file.write_text(file.read_text().replace("hyperplanes", "softmax"))
    assert "have different classes or predictors" in refused("report", copied)


def test_malformed_settings(copied, refused):
    for text in (
        b"epochs = " + b"[" * 10_000,
        b"seed = 0x" + b"f" * 9_000,
        b'"a\nb" = 1',
        b"\xff",
        b"epochs = 1979-05-27",
    ):
        (copied / "run.toml").write_bytes(text)
        assert "run.toml" in refused("evaluate", copied)
        assert "run.toml" in refused("doctor", copied)
        assert "run.toml" in refused("train", "--resume", "--run", copied)


def test_malformed_metrics(copied, refused, capsys):
    (copied / "metrics.jsonl").write_bytes(b"\xff\n" + b"[" * 100_000)
    main(["doctor", str(copied)])
    assert "not finished" in capsys.readouterr().out
    assert "not finished" in refused("report", copied)


@pytest.mark.parametrize("sizes", [{"width": 1e9}, {"embedding_dim": 10**9}])
@pytest.mark.usefixtures("little_memory")
def test_settings_that_need_too_much_memory(tmp_path, refused, sizes):
    options = [part for name, value in sizes.items() for part in (f"--{name.replace('_', '-')}", value)]
    assert "does not fit in memory" in refused("train", "--run", tmp_path / "run", *options)
    assert not (tmp_path / "run").exists()


def test_code_that_a_run_names_is_not_executed(tmp_path, refused, monkeypatch):
    (tmp_path / "trap.py").write_text("raise SystemExit('the code ran')")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.toml").write_text(RunConfig(network="trap:make").to_toml())
    assert "without your permission: pass --network trap:make" in refused("train", "--resume", "--run", "run")


def test_code_that_a_sweep_names_is_not_executed(tmp_path, refused, monkeypatch):
    (tmp_path / "trap.py").write_text("raise SystemExit('the code ran')")
    monkeypatch.chdir(tmp_path)
    for settings, grid in (({"network": "trap:make"}, {}), ({}, {"network": ["mlp", "trap:make"]})):
        (tmp_path / "sweep").mkdir(exist_ok=True)
        SweepDefinition(settings=settings, grid={"seed": [0], **grid}).write(tmp_path / "sweep" / "sweep.toml")
        assert "without your permission: pass --network trap:make" in refused("sweep", "--sweep", "sweep")
        assert "was not defined with the network other:make" in refused(
            "sweep", "--sweep", "sweep", "--network", "other:make"
        )
    SweepDefinition(grid={"seed": [0], "network": ["trap:a", "trap:b"]}).write(tmp_path / "sweep" / "sweep.toml")
    assert "pass --network trap:a,trap:b" in refused("sweep", "--sweep", "sweep", "--network", "trap:a")
    assert not (tmp_path / "sweep" / "journal.jsonl").exists()
    with pytest.raises(SystemExit, match="the code ran"):
        main(["sweep", "--sweep", "sweep", "--network", "trap:a,trap:b"])


def test_data_that_changed_under_a_run(tmp_path, refused, capsys, monkeypatch):
    """Before the first checkpoint, only the fingerprint can show the change."""

    def write(seed):
        rows = np.random.default_rng(seed).normal(size=(60, 3)) + np.arange(60)[:, None] % 2
        np.savez(tmp_path / "rows.npz", x_train=rows.astype(np.float32), y_train=np.arange(60) % 2)

    def killed(*_args, **_kwargs):
        raise SystemExit(9)

    write(0)
    command = ["train", str(tmp_path / "rows.npz"), "--epochs", "1", "--quiet", "--run", str(tmp_path / "run")]
    monkeypatch.setattr("deeplda.training.pipeline.train", killed)
    with pytest.raises(SystemExit, match="9"):
        main(command)
    monkeypatch.undo()
    capsys.readouterr()
    write(1)
    assert "has changed since" in refused(*command, "--resume")
    write(0)
    main([*command, "--resume"])


@pytest.fixture
def outside(tmp_path):
    """Files of the user's own, to which links in somebody else's folder lead."""
    folder = tmp_path / "documents"
    folder.mkdir()
    for name in ("letter", "bashrc"):
        (folder / name).write_text("precious")
    yield folder
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"letter": "precious", "bashrc": "precious"}


def replace_by_link(place, target):
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(target)


@pytest.mark.parametrize(
    ("command", "result"), [(("report",), "report.html"), (("export", "--format", "torch"), "model/model.pt2")]
)
def test_predictable_temporary_names_and_results_that_are_links(copied, outside, command, result):
    place = copied / result
    for name in (place.with_name(f".{place.name}.tmp"), place):
        replace_by_link(name, outside / "bashrc")
    main([*command, str(copied)])
    assert place.is_file()


def test_a_pipe_in_place_of_a_temporary_file_does_not_block(copied):
    os.mkfifo(copied / ".report.html.tmp")
    main(["report", str(copied)])


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("figures", ("report", "--figures")),
        ("model", ("export", "--format", "torch")),
        *((name, ("train", "--resume", "--run")) for name in ("model", "checkpoints", "checkpoints/last", ".lock")),
    ],
)
def test_folders_that_are_links_are_not_written(copied, outside, refused, name, command):
    inside = shutil.copytree(copied / "model", copied.parent / "model")
    rows = (copied / "metrics.jsonl").read_text().splitlines()
    (copied / "metrics.jsonl").write_text(rows[0] + "\n")  # an unfinished run
    if name == "model" and command[0] == "export":
        # A complete model elsewhere: it can be read, but not written.
        replace_by_link(copied / name, inside)
    else:
        replace_by_link(copied / name, outside / "letter" if name == ".lock" else outside)
    if command[0] == "report":
        (copied / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    assert "is a link" in (sentence := refused(*command, copied)) or "not an ordinary file" in sentence
    assert sorted(path.name for path in inside.iterdir()) == ["model.json", "weights.safetensors"]


def test_a_comparison_does_not_replace_a_link_of_the_users_own(run, tmp_path, outside, refused):
    (tmp_path / "page.html").symlink_to(outside / "letter")
    assert "is a link" in refused("report", run, run, "--output", tmp_path / "page.html")
    assert (tmp_path / "page.html").is_symlink()
