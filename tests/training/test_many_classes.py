"""Training with more classes than fit into a batch, where `--sampler auto` puts a subset of them into each."""

import itertools

import numpy as np
import pytest

from deeplda.errors import StoppedError
from deeplda.training.config import RunConfig
from deeplda.training.pipeline import run_to_end
from deeplda.training.progress import Progress
from deeplda.training.run_folder import read_metrics

CLASSES, EACH, BATCH = 60, 24, 32


class Notes(Progress):
    """Collects the notes of a run."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(CLASSES), EACH)
    rows = rng.normal(size=(CLASSES, 12))[labels] + 0.3 * rng.normal(size=(len(labels), 12))
    file = tmp_path_factory.mktemp("many") / "many.npz"
    np.savez(file, x_train=rows.astype(np.float32), y_train=labels)
    return {"data": str(file), "network": "mlp", "batch_size": BATCH, "epochs": 2, "dropout": 0.1}


def weights(run):
    return (run / "model" / "weights.safetensors").read_bytes()


def after(steps):
    """A condition that becomes true after this many steps."""
    calls = itertools.count(1)
    return lambda: next(calls) > steps


def test_a_run_that_is_stopped_between_subsets_ends_in_the_same_bytes(settings, tmp_path):
    progress, config = Notes(), RunConfig(**settings, sampler="auto")
    finished = run_to_end(config, tmp_path / "whole", progress)
    assert any("each batch has about 4 of them, with about 8 samples each" in note for note in progress.notes)
    assert finished.summary.test.accuracy > 0.5

    steps = read_metrics(tmp_path / "whole")[0].steps
    for count in (steps // 3, steps, 5):
        with pytest.raises(StoppedError):
            run_to_end(config, tmp_path / "stopped", Progress(), after(count))
    run_to_end(config, tmp_path / "stopped", Progress())
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")

    run_to_end(RunConfig(**settings, sampler="stratified"), tmp_path / "stratified", Progress())
    assert weights(tmp_path / "stratified") != weights(tmp_path / "whole")
