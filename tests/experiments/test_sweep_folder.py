"""Opening, joining and locking a sweep."""

import shutil
import threading

import pytest

from deeplda.errors import InputError
from deeplda.experiments.sweep_definition import SweepDefinition
from deeplda.experiments.sweep_folder import is_locked, open_sweep, worker_lock
from deeplda.experiments.sweep_worker import work

TINY = {"epochs": 1, "width": 0.1, "batch_size": 400, "learning_rate": 0.1}


def never():
    return False


def tiny(folder, grid, **more):
    return open_sweep(folder, SweepDefinition(settings=TINY | more, grid=grid))


def test_workers_that_start_at_the_same_moment_enqueue_once(tmp_path):
    definition = SweepDefinition(settings={"epochs": 1}, grid={"alpha": [0.0, 0.5, 1.0], "seed": [0, 1]})
    found, ready = [], threading.Barrier(6)

    def start():
        ready.wait()
        found.append(open_sweep(tmp_path / "sweep", definition))

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert sorted(attempt.name for attempt in found[0].queue.attempts()) == sorted(definition.trials())


def test_a_worker_that_ends_normally_removes_its_lock(tmp_path):
    with worker_lock(tmp_path) as worker:
        (file,) = (tmp_path / "workers").iterdir()
        assert worker in file.name
        assert is_locked(file)
    assert is_locked(file) is None


def test_a_sweep_may_be_renamed_and_copied(tmp_path):
    sweep = open_sweep(tmp_path / "s", SweepDefinition(settings=TINY, grid={"network": ["mlp"], "seed": [0]}))
    work(sweep, never)
    assert {name: found.status for name, found in sweep.current_attempts().items()} == {
        "lda-networkmlp-seed0": "failed"
    }
    (tmp_path / "s").rename(tmp_path / "t")
    shutil.copytree(tmp_path / "t", tmp_path / "u")
    for folder in ("t", "u"):
        assert open_sweep(tmp_path / folder).current_attempts()["lda-networkmlp-seed0"].status == "failed"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": TINY | {"epochs": 7}}, "was defined with epochs 1, not 7"),
        ({"grid": {"alpha": [0.0], "seed": [0]}}, "was defined with grid of"),
    ],
)
def test_another_definition_is_rejected(finished, change, message):
    there = finished.definition.model_dump(exclude_none=True, by_alias=True)
    with pytest.raises(InputError, match=message):
        open_sweep(finished.folder, SweepDefinition(**(there | change)))


def test_another_storage_is_rejected(finished):
    with pytest.raises(InputError, match="omit --storage"):
        open_sweep(finished.folder, url="postgresql+psycopg://host/db")


def test_a_folder_without_a_definition_is_rejected(tmp_path):
    with pytest.raises(InputError, match="is not a sweep folder"):
        open_sweep(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_definition_may_be_extended_by_hand(tmp_path):
    folder = tmp_path / "grown"
    work(tiny(folder, {"alpha": [0.0], "seed": [0]}), never)
    file = folder / "sweep.toml"
    file.write_text(file.read_text().replace("seed = [0]", "seed = [0, 1]"))
    sweep = open_sweep(folder)
    work(sweep, never)
    assert [attempt.name for attempt in sweep.queue.attempts()] == ["lda-alpha0-seed0", "lda-alpha0-seed1"]
    assert sweep.settled()
