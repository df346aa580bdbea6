"""Loggers receive every epoch, and the example trackers call their packages as they should."""

import sys
from importlib import util
from pathlib import Path

import pytest
from command import in_this_process

from deeplda.errors import InputError
from deeplda.training.config import RunConfig
from deeplda.training.loggers import LoggedProgress, find_logger
from deeplda.training.pipeline import run_to_end
from deeplda.training.progress import Progress
from deeplda.training.run_folder import read_metrics

TINY = {"epochs": 2, "width": 0.1, "batch_size": 400}
EXAMPLE = Path(__file__).parents[2] / "examples" / "experiment_trackers.py"


class Recorder:
    """Stands for a tracker's package: records each call with its arguments."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*arguments, **options):
            self.calls.append((name, arguments, options))
            return self

        return call

    def named(self, name):
        return [(arguments, options) for found, arguments, options in self.calls if found == name]


@pytest.fixture
def trackers():
    spec = util.spec_from_file_location("experiment_trackers", EXAMPLE)
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_tracker_receives_settings_rows_and_the_end(tmp_path, trackers, monkeypatch):
    mlflow, wandb = Recorder(), Recorder()
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.chdir(tmp_path)
    progress = LoggedProgress(tmp_path / "run", [trackers.MLflowLogger, trackers.WandbLogger], Progress())
    run_to_end(RunConfig(**TINY), tmp_path / "run", progress)

    rows = read_metrics(tmp_path / "run")[:-1]
    expected = [((row.scalars,), {"step": row.epoch}) for row in rows]
    assert [step["step"] for _, step in expected] == [1, 2]
    assert expected[0][0][0]["validation/accuracy"] == rows[0].validation.accuracy
    assert mlflow.named("log_metrics") == wandb.named("log") == expected
    ((settings,), _) = mlflow.named("log_params")[0]
    assert wandb.named("init")[0][1]["config"] == settings
    assert settings["batch_size"] == 400
    assert len(mlflow.named("end_run")) == len(wandb.named("finish")) == 1


def test_a_logger_is_closed_after_an_error(tmp_path):
    class Broken:
        closed = 0

        def __init__(self, folder, settings):
            assert settings["epochs"] == 2
            assert folder == tmp_path / "run"

        def on_epoch(self, row):
            raise OSError(f"no connection in epoch {row.epoch}")

        def close(self):
            Broken.closed += 1

    with pytest.raises(OSError, match="no connection in epoch 1"):
        run_to_end(RunConfig(**TINY), tmp_path / "run", LoggedProgress(tmp_path / "run", [Broken], Progress()))
    assert Broken.closed == 1
    # The epoch was saved before the logger failed.
    assert [row.epoch for row in read_metrics(tmp_path / "run")] == [1]


def test_an_object_without_on_epoch_is_rejected(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seventeen.py").write_text("def logger(folder, settings):\n    return 17\n")
    progress = LoggedProgress(tmp_path, [find_logger("seventeen:logger")], Progress())
    with pytest.raises(InputError, match=r"int, need a method on_epoch\(row\)"):
        run_to_end(RunConfig(**TINY), tmp_path / "run", progress)


def test_a_logger_that_takes_other_arguments_is_rejected_before_training(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    silent = "class Silent:\n    def __init__(self, folder, settings): ...\n"
    (tmp_path / "odd_loggers.py").write_text(f"class Odd:\n    def __init__(self): ...\n{silent}")
    code, _, said = in_this_process(capsys, "train", "--logger", "odd_loggers:Odd")
    assert code == 2
    assert "'odd_loggers:Odd' takes (), need a class or function of (folder, settings)" in said
    code, _, said = in_this_process(capsys, "train", "--logger", "odd_loggers:Silent")
    assert code == 2
    assert "'odd_loggers:Silent' has no method on_epoch(row)" in said
    assert not (tmp_path / "runs").exists()
    with pytest.raises(InputError, match="has no 'Even'"):
        find_logger("odd_loggers:Even")
