"""Sweeps in PostgreSQL: the tests of the default storage again, and tests with several machines."""

import importlib.util
import threading
from pathlib import Path

import pytest

from deeplda.errors import InputError
from deeplda.experiments.sweep_definition import SweepDefinition
from deeplda.experiments.sweep_folder import open_sweep
from deeplda.experiments.sweep_worker import work

TINY = {"epochs": 1, "width": 0.1, "batch_size": 400, "learning_rate": 0.1}


def contents_of(name):
    """The contents of a file in tests/experiments, except its storage: here it is the database of conftest.py."""
    file = Path(__file__).parents[1] / "experiments" / f"{name}.py"
    specification = importlib.util.spec_from_file_location(f"{name}_on_postgresql", file)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return {key: value for key, value in vars(module).items() if not key.startswith("_") and key != "storage_url"}


globals().update(contents_of("test_trial_queue"))
globals().update(contents_of("test_sweep_survival"))


def test_machines_that_start_at_the_same_moment_share_the_trials(tmp_path, storage_url):
    """Each has its own folder and finds an empty database; every trial is run by exactly one of them."""
    definition = SweepDefinition(settings=TINY, grid={"alpha": [0.0, 0.5, 1.0], "seed": [0, 1]})
    sweeps, errors, ready = [], [], threading.Barrier(4)

    def machine(number):
        ready.wait()
        try:
            sweep = open_sweep(tmp_path / str(number) / "shared", definition, storage_url)
            sweeps.append(sweep)
            work(sweep, lambda: False)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=machine, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(sweeps) == 4
    done = [attempt.name for attempt in sweeps[0].queue.attempts() if attempt.status == "done"]
    assert sorted(done) == sorted(definition.trials())
    assert sorted(run.name for run in tmp_path.glob("*/shared/trials/*")) == sorted(done)


def test_the_password_is_not_written_to_files(tmp_path, storage_url):
    definition = SweepDefinition(settings=TINY, grid={"alpha": [0.0], "seed": [0]})
    sweep = open_sweep(tmp_path / "s", definition, storage_url)
    work(sweep, lambda: False)
    for file in sweep.folder.rglob("*"):
        assert not file.is_file() or b"not-to-be-written-to-files" not in file.read_bytes(), file
    assert "127.0.0.1" in (sweep.folder / "sweep.toml").read_text()
    with pytest.raises(InputError, match="as --storage"):
        open_sweep(sweep.folder)


def test_a_name_that_is_taken_by_other_settings_is_rejected(tmp_path, storage_url):
    grid = {"alpha": [0.0], "seed": [0]}
    open_sweep(tmp_path / "a" / "s", SweepDefinition(settings=TINY, grid=grid), storage_url)
    with pytest.raises(InputError, match="sweep named s that differs in epochs"):
        open_sweep(tmp_path / "b" / "s", SweepDefinition(settings=TINY | {"epochs": 2}, grid=grid), storage_url)
    assert not (tmp_path / "b" / "s" / "sweep.toml").exists()
