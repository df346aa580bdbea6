"""`deeplda train photos/` with nothing else: settings from the data, a command that repeats the run, a time budget."""

import re
import shlex

import numpy as np
import pytest
from command import in_a_process, in_this_process
from PIL import Image

from deeplda.cli import main
from deeplda.errors import InputError
from deeplda.experiments import automatic_recipe
from deeplda.experiments.automatic_recipe import Fit
from deeplda.experiments.recipes import read_recipe
from deeplda.training.config import RunConfig

# So little time that only the least number of epochs is trained.
BRIEF = ("--minutes", "0.001")


def write(root, count=60, classes=("dark", "light", "striped"), shift=1):
    """Write small images of several sizes; without the `shift` in brightness, two classes are alike."""
    rng = np.random.default_rng(0)
    for number in range(count):
        kind = number % len(classes)
        pixels = rng.normal(120 + shift * (-60, 70, 0)[kind], 30, (24 + number % 7, 24 + number % 5, 3))
        if kind == 2:
            pixels[::2] += 60
        place = root / classes[kind]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(place / f"{number}.png")
    return root


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A folder of images, a run on it, and what the run printed."""
    home = tmp_path_factory.mktemp("home")
    write(home / "photos")
    with pytest.MonkeyPatch.context() as patch, (home / "stderr").open("w") as stderr:
        patch.setattr("sys.stderr", stderr)
        patch.setattr(automatic_recipe, "FEWEST_STEPS", 5)
        patch.setattr(automatic_recipe, "_FEWEST_SAMPLES", 5)
        patch.chdir(home)
        main(["train", "photos", *BRIEF, "--run", "run"])
    return home


def printed_command(home):
    (command,) = re.findall(r"to repeat this run: deeplda (.*)", (home / "stderr").read_text())
    return shlex.split(command)


def test_images_of_several_sizes_need_no_options(plain):
    settings = RunConfig.of(plain / "run")
    # The median of the shorter sides.
    assert (settings.network, settings.image_size) == ("fastnet", 25)
    assert (plain / "run" / "report.html").is_file()


def test_the_printed_command_repeats_the_run_exactly(plain, monkeypatch, capsys):
    monkeypatch.chdir(plain)
    monkeypatch.setattr(automatic_recipe, "seconds_of_step", lambda *_: pytest.fail("measured"))
    command = printed_command(plain)
    assert command[:2] == ["train", "photos"]
    assert "--epochs" in command
    main([*command, "--run", "again"])
    for file in ("model/weights.safetensors", "model/model.json"):
        assert (plain / "run" / file).read_bytes() == (plain / "again" / file).read_bytes()
    assert RunConfig.of(plain / "run") == RunConfig.of(plain / "again")
    assert "to repeat this run" not in capsys.readouterr().err


def test_resuming_a_finished_run_measures_nothing(plain, monkeypatch, capsys):
    monkeypatch.chdir(plain)
    monkeypatch.setattr(automatic_recipe, "outline_images", lambda *_: pytest.fail("outlined"))
    code, _, shown = in_this_process(capsys, "train", "photos", "--resume", "--run", "run", "--minutes", "5")
    assert code == 0
    assert "note: --minutes has no effect on run, which was started before" in shown
    assert "is already finished" in shown


@pytest.fixture
def settings_of(plain, monkeypatch, capsys):
    """Return a function that runs a command up to the point where it would write run.toml.

    It returns the settings and what was printed. A step takes `step` seconds; None means that it is not measured.
    """
    found = []
    fitted = automatic_recipe.fitted_epochs
    # The time that the command has taken so far depends on the machine.
    monkeypatch.setattr(automatic_recipe, "monotonic", lambda: 0.0)
    monkeypatch.setattr(
        automatic_recipe,
        "fitted_epochs",
        lambda config, data, seconds, _spent, world: fitted(config, data, seconds, 0.0, world),
    )

    def record(_folder, config, *_arguments, **_options):
        found.append(config)
        raise InputError("that is enough")

    def settings_of(*arguments, step=0.1):
        monkeypatch.chdir(plain)
        monkeypatch.setattr("deeplda.training.pipeline.open_run", record)
        monkeypatch.setattr(automatic_recipe, "_FEWEST_SAMPLES", 5)
        monkeypatch.setattr(automatic_recipe, "seconds_of_step", lambda *_: step or pytest.fail("measured"))
        code, _, shown = in_this_process(capsys, "train", *arguments)
        assert code == 2
        assert "that is enough" in shown
        return found.pop(), shown

    return settings_of


def test_a_run_is_a_recipe(plain, settings_of):
    config, shown = settings_of("--recipe", "run/run.toml")
    assert config == RunConfig.of(plain / "run")
    assert "to repeat this run" not in shown


def test_resuming_an_interrupted_run_measures_nothing(plain, tmp_path, settings_of):
    """The run has its settings and a lock, but no checkpoint yet."""
    settings = RunConfig.of(plain / "run")
    (tmp_path / "run.toml").write_text(settings.to_toml())
    config, shown = settings_of("photos", "--resume", "--run", tmp_path, step=None)
    assert config == settings
    assert "to repeat this run" not in shown


def test_the_budget_and_the_machine_determine_only_the_number_of_epochs(settings_of):
    usual, _ = settings_of("photos")
    found = {
        "slower": settings_of("photos", step=0.2)[0],
        "3 minutes": settings_of("photos", "--minutes", "3")[0],
        "1 minute": settings_of("photos", "--minutes", "1")[0],
        "9 minutes": settings_of("photos", "--minutes", "9")[0],
    }
    assert found["3 minutes"] == usual
    assert found["1 minute"].epochs < found["slower"].epochs < usual.epochs < found["9 minutes"].epochs
    for other in found.values():
        assert other.model_copy(update={"epochs": usual.epochs}) == usual


def test_a_budget_that_is_too_small_is_exceeded_with_a_warning(settings_of):
    _, shown = settings_of("photos", "--minutes", "1", step=2.0)
    assert "warning: this takes longer than 1 minute, because the network has to see these images" in shown
    assert "repeat the command above with fewer --epochs" in shown
    _, shown = settings_of("photos", "--minutes", "60", step=0.01)
    assert "takes longer than" not in shown


def test_given_options_win_and_are_measured(settings_of, monkeypatch):
    measured = []
    config, shown = settings_of("photos", "--width", "0.5", "--image-size", "40", "--group-by", r"(\d)\.png")
    assert (config.width, config.image_size) == (0.5, 40)
    assert r"--group-by '(\d)\.png'" in shown
    monkeypatch.setattr(
        automatic_recipe, "fitted_epochs", lambda config, *_: measured.append(config) or Fit(7, 1, True)
    )
    config, _ = settings_of("photos", "--width", "0.5")
    assert (measured[0].width, config.epochs) == (0.5, 7)


@pytest.mark.parametrize(
    "given",
    [
        ("digits",),
        ("photos", "--image-size", "25", "--epochs", "2"),
        ("photos", "--image-size", "25", "--recipe", "quick"),
        ("rows.npz", "--epochs", "30"),
    ],
)
def test_everything_else_keeps_its_defaults(plain, settings_of, given):
    write_rows(plain / "rows.npz")
    config, shown = settings_of(*given)
    assert "to repeat this run" not in shown
    names = {"data", "image_size", "epochs"}
    base = read_recipe("quick") if "quick" in given else {}
    kept = RunConfig(**{name: getattr(config, name) for name in names} | base)
    assert config == kept.model_copy(update={"epochs": config.epochs})
    assert config.epochs == int({"--epochs": given[-1], "--recipe": 4}.get(given[-2] if len(given) > 2 else "", 30))


def write_rows(file, count=60):
    np.savez(file, x_train=np.random.default_rng(0).normal(size=(count, 4)), y_train=np.arange(count) % 3)


def test_a_table_gets_the_settings_of_the_estimator(plain, settings_of):
    write_rows(plain / "rows.npz")
    config, shown = settings_of("rows.npz", step=None)
    assert (config.epochs, config.learning_rate, config.weight_decay, config.evaluate_every) == (100, 0.1, 0.01, 48)
    assert "settings for 42 training rows of 3 classes" in shown
    repeated, _ = settings_of(*shown.split("deeplda train ")[1].split("\n")[0].split())
    assert repeated == config


def test_options_for_a_table_win(plain, settings_of):
    write_rows(plain / "rows.npz")
    config, _ = settings_of("rows.npz", "--dropout", "0.5", "--learning-rate", "0.02", step=None)
    assert (config.dropout, config.learning_rate, config.weight_decay) == (0.5, 0.02, 0.01)


def test_arrays_of_images_are_like_a_folder(plain, settings_of):
    images = np.random.default_rng(0).integers(0, 256, (60, 100, 90, 3), dtype=np.uint8)
    np.savez(plain / "images.npz", x_train=images, y_train=np.arange(60) % 3)
    config, shown = settings_of("images.npz")
    assert (config.network, config.image_size) == (
        "fastnet",
        automatic_recipe.settings_for(np.array([[100, 90]]), 42, 3)["image_size"],
    )
    assert "deeplda train images.npz" in shown


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("photos", "--epochs", "3"), "--minutes determines the number of epochs, but so does --epochs 3"),
        (("photos", "--recipe", "quick"), "but so does --recipe quick"),
        (("photos", "--start-from", "run"), "but so does --start-from run"),
        (("digits",), "--minutes applies to a folder or an .npz file of images, not to digits"),
        (("photos", "--minutes", "0"), "--minutes is 0"),
        (("photos", "--minutes", "nan"), "--minutes is nan"),
    ],
)
def test_budgets_without_effect_are_rejected(plain, monkeypatch, capsys, given, says):
    monkeypatch.chdir(plain)
    code, _, shown = in_this_process(capsys, "train", *(() if "--minutes" in given else ("--minutes", "2")), *given)
    assert code == 2
    assert says in shown
    assert not (plain / "runs").exists()


def test_class_folders_without_images_are_a_sentence(tmp_path, capsys):
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
    code, _, shown = in_this_process(capsys, "train", tmp_path / "photos", "--run", tmp_path / "run")
    assert code == 2
    assert "the class cat" in shown
    assert "add images" in shown


def test_poor_conditions_are_reported_before_the_training(tmp_path, capsys):
    write(tmp_path / "few", count=24, shift=0)
    options = ("--image-size", "24", "--epochs", "1", "--width", "0.1", "--run", tmp_path / "run")
    _, _, shown = in_this_process(capsys, "train", tmp_path / "few", *options)
    before, _, after = shown.partition("epoch   1/1")
    assert before.count("warning: ") == 2
    assert "warning: " not in after


def test_several_processes_agree(tmp_path):
    """They would wait for each other forever if they had chosen different numbers of epochs."""
    images = np.random.default_rng(0).integers(0, 256, (1_000, 24, 24), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", x_train=images, y_train=np.arange(1_000) % 2)
    small = ("--width", "0.1", "--batch-size", "175")
    done = in_a_process(
        "train", "images.npz", *BRIEF, *small, "--processes", "2", "--run", "run", cwd=tmp_path, check=0
    )
    (command,) = re.findall(r"to repeat this run: deeplda (.*)", done.stderr)
    assert command.endswith(" --processes 2")
    assert f"--epochs {RunConfig.of(tmp_path / 'run').epochs} " in command
