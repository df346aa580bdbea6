"""Scoring the validation set only after some epochs: what is written, and which epoch is the best."""

import pytest
import torch

from deeplda.errors import StoppedError
from deeplda.loading import load
from deeplda.report.diagnosis import diagnose
from deeplda.report.record import read_record
from deeplda.training.config import LoopConfig, RunConfig
from deeplda.training.loop import run_epochs
from deeplda.training.metrics import EpochRow
from deeplda.training.pipeline import run_to_end
from deeplda.training.progress import Progress
from deeplda.training.run_folder import MemoryRun, read_metrics


def settings(**more):
    return RunConfig(data="digits", **{"epochs": 5, "width": 0.1, "batch_size": 300, **more})


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same training, scored after every epoch and after every second one."""
    folder = tmp_path_factory.mktemp("runs")
    for every in (1, 2):
        run_to_end(settings(evaluate_every=every), folder / str(every), Progress())
    return folder


def accuracies(run):
    rows = [row for row in read_metrics(run) if isinstance(row, EpochRow)]
    assert [row.epoch for row in rows] == [1, 2, 3, 4, 5]
    return {row.epoch: row.validation.accuracy for row in rows if row.validation is not None}


def test_some_epochs_and_the_last_are_scored_as_they_would_be_otherwise(runs):
    every, second = accuracies(runs / "1"), accuracies(runs / "2")
    assert list(every) == [1, 2, 3, 4, 5]
    assert second == {epoch: every[epoch] for epoch in (2, 4, 5)}


def test_the_best_epoch_is_one_that_was_scored(runs):
    scored = accuracies(runs / "2")
    best = max(scored, key=lambda epoch: (scored[epoch], epoch))
    summary = read_metrics(runs / "2")[-1]
    assert summary.best_epoch == best
    assert summary.validation.accuracy == pytest.approx(scored[best], abs=0.03)


def test_the_readers_of_metrics_take_epochs_without_scores(runs):
    record = read_record(runs / "2")
    assert list(record.validation_accuracies) == [2, 4, 5]
    assert diagnose(read_metrics(runs / "2"), record.config)


def test_a_resumed_run_ends_with_the_same_weights(runs, tmp_path):
    steps = 0

    def stop():
        nonlocal steps
        steps += 1
        return steps >= 6

    with pytest.raises(StoppedError):
        run_to_end(settings(evaluate_every=2), tmp_path / "run", Progress(), stop)
    run_to_end(settings(evaluate_every=2), tmp_path / "run", Progress())
    whole, parts = (load(run).state_dict() for run in (runs / "2", tmp_path / "run"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


class _Scripted:
    """A `Trainee` whose scores are given in advance, one for each time that the validation set is scored."""

    lda_width = None
    margins = None
    device = torch.device("cpu")

    def __init__(self, scores):
        self.trained = torch.nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.trained.parameters(), 0.1)
        self.scores, self.epochs = iter(scores), 0

    def step(self, _batch, _learning_rate):
        return 0.0

    def regroup(self, _data, epoch):
        self.epochs = epoch + 1
        return False

    def grouped(self, data):
        return data

    def examine(self, _fit_part, validation):
        return (next(self.scores) if len(validation) else None), {}

    def describe_step(self):
        return ""


def scripted(errors, **more):
    """Run with reconstruction errors as the scores; return the number of epochs and the best one."""
    from deeplda.data import load_data
    from deeplda.training.metrics import ReconstructionScores

    data = load_data("digits")
    trainee = _Scripted([ReconstructionScores(n=len(data.val), error=error) for error in errors])
    config = LoopConfig(batch_size=1000, schedule="halving", **more)
    counters = run_epochs(config, data, trainee, MemoryRun(), Progress())
    return trainee.epochs, counters.best_epoch


def test_patience_is_checked_only_after_a_scored_epoch():
    # Scored after epochs 4, 8, 12, ...: the best is epoch 4, and patience runs out in epoch 7, which is not scored.
    assert scripted([1, 2, 2, 2, 2], epochs=20, evaluate_every=4, patience=3) == (8, 4)
    # With a patience of 5, the second score after the best one is the first that comes too late.
    assert scripted([1, 2, 2, 2, 2], epochs=20, evaluate_every=4, patience=5) == (12, 4)
    assert scripted([3, 2, 1, 0.5, 0.2], epochs=20, evaluate_every=4, patience=3) == (20, 20)


def test_the_last_epoch_is_always_scored():
    assert scripted([2, 1], epochs=6, evaluate_every=4) == (6, 6)
    assert scripted([1], epochs=3, evaluate_every=4) == (3, 3)
