"""A small sweep that several test files read."""

import pytest

from deeplda.experiments.sweep_definition import SweepDefinition
from deeplda.experiments.sweep_folder import open_sweep
from deeplda.experiments.sweep_worker import work


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A sweep whose trials are all done."""
    settings = {"epochs": 1, "width": 0.1, "batch_size": 400, "learning_rate": 0.1}
    grid = {"objective": ["rdlda", "cce"], "alpha": [0.0, 1.0], "seed": [0, 1]}
    sweep = open_sweep(tmp_path_factory.mktemp("sweeps") / "finished", SweepDefinition(settings=settings, grid=grid))
    work(sweep, lambda: False)
    return sweep
