"""What the terminal and TensorBoard are given: every epoch of a run once, also where it was stopped in between."""

import json
import shutil
import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from deeplda.cli import main
from deeplda.errors import StoppedError
from deeplda.training.checkpoint import Counters
from deeplda.training.config import RunConfig
from deeplda.training.loggers import LoggedProgress, TensorBoardLogger
from deeplda.training.metrics import EpochRow, ReconstructionScores
from deeplda.training.pipeline import run_to_end
from deeplda.training.progress import Progress, TerminalProgress
from deeplda.training.run_folder import read_metrics

TINY = {"epochs": 3, "width": 0.1, "batch_size": 400}


def scalars(folder):
    found = EventAccumulator(str(folder)).Reload()
    return {name: [(event.step, event.value) for event in found.Scalars(name)] for name in found.Tags()["scalars"]}


def logging(run, shown=None):
    return LoggedProgress(run, [TensorBoardLogger], shown or Progress())


def test_only_a_better_score_is_the_best_so_far(capsys):
    progress = TerminalProgress()
    for epoch, best, risen in ((1, 1, 1), (2, 2, 1), (3, 2, 1), (4, 4, 4)):
        row = EpochRow(
            epoch=epoch, loss=1.0, learning_rate=0.1, validation=ReconstructionScores(n=9, error=0.5), seconds=1.0
        )
        progress.epoch(row, Counters(epoch=epoch, best_epoch=best, risen_epoch=risen, best_score=-0.5))
    ends = [line.partition(" s  ")[2] for line in capsys.readouterr().err.splitlines()]
    assert ends == ["best so far", "equal to the best so far", "", "best so far"]


def test_every_epoch_once_also_after_a_stop(tmp_path):
    run, events = tmp_path / "run", tmp_path / "run" / "tensorboard"
    with pytest.raises(StoppedError):
        run_to_end(RunConfig(**TINY), run, logging(run), lambda: len(read_metrics(run)) == 1)
    run_to_end(RunConfig(**TINY), run, logging(run))
    found, rows = scalars(events), read_metrics(run)[:-1]
    expected = {"loss": "loss", "learning rate": "learning_rate"}
    for name, key in expected.items():
        assert found[name] == [(row.epoch, pytest.approx(getattr(row, key), rel=1e-6)) for row in rows]
    accuracies = [(row.epoch, pytest.approx(row.validation.accuracy)) for row in rows]
    assert found["validation/accuracy"] == accuracies
    assert found["eigenvalues/smallest"][2] == (3, pytest.approx(rows[2].eigenvalues[0], rel=1e-6))
    assert found["eigenvalues/largest"][2] == (3, pytest.approx(rows[2].eigenvalues[-1], rel=1e-6))


def test_a_folder_that_is_deleted_during_a_run_does_not_stop_it(tmp_path):
    class Deleting(Progress):
        def epoch(self, row, _counters):
            if row.epoch == 1:
                shutil.rmtree(tmp_path / "run" / "tensorboard")

    finished = run_to_end(RunConfig(**TINY), tmp_path / "run", logging(tmp_path / "run", Deleting()))
    assert finished.summary.epochs == 3
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_a_link_that_appears_in_place_of_the_event_file_is_not_written_through(tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"precious")
    events = tmp_path / "run" / "tensorboard"

    class Swapping(Progress):
        def epoch(self, row, _counters):
            if row.epoch == 1:
                (file,) = events.iterdir()
                file.unlink()
                file.hardlink_to(other)

    run_to_end(RunConfig(**TINY), tmp_path / "run", logging(tmp_path / "run", Swapping()))
    assert other.read_bytes() == b"precious"


def test_an_autoencoder_is_a_run_of_its_own(tmp_path):
    config = RunConfig(
        **TINY | {"subclasses": 2, "cluster_on": "autoencoder", "autoencoder_epochs": 2, "embedding_dim": 20}
    )
    run_to_end(config, tmp_path / "run", logging(tmp_path / "run"))
    assert [step for step, _ in scalars(tmp_path / "run" / "tensorboard")["loss"]] == [1, 2, 3]
    assert [step for step, _ in scalars(tmp_path / "run" / "tensorboard" / "autoencoder")["validation/error"]] == [1, 2]


def test_the_command_line_writes_into_the_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["train", "--epochs", "1", "--width", "0.1", "--quiet", "--json", "--tensorboard", "--run", "r"])
    assert json.loads(capsys.readouterr().out)["run"] == "r"
    assert [step for step, _ in scalars(tmp_path / "r" / "tensorboard")["loss"]] == [1]


def test_where_it_is_not_installed(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(SystemExit) as left:
        main(["train", "--tensorboard"])
    assert left.value.code == 2
    assert "pip install 'deeplda[tensorboard]'" in capsys.readouterr().err
