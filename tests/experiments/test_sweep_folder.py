"""Opening, joining and locking a sweep, and that nothing outside its folder is changed."""

import os
import shutil
import threading

import pytest

from deeplda.errors import InputError
from deeplda.experiments.sweep_definition import SweepDefinition
from deeplda.experiments.sweep_folder import open_sweep, worker_lock
from deeplda.experiments.sweep_worker import work
from deeplda.output_folder import is_locked

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


@pytest.mark.parametrize("name", ["notes.txt", "journal.jsonl", "trials", ".hidden"])
def test_a_folder_in_use_is_rejected_and_not_changed(tmp_path, name):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / name).write_text("precious, without a newline")
    with pytest.raises(InputError, match="need a new or empty folder, or a sweep"):
        tiny(folder, {"seed": [0]})
    assert {file.name: file.read_text() for file in folder.iterdir()} == {name: "precious, without a newline"}


def test_a_folder_with_the_definition_of_something_else_is_rejected_and_not_changed(tmp_path):
    (tmp_path / "sweep.toml").write_text("[broom]\n")
    for definition in (None, SweepDefinition(settings=TINY, grid={"seed": [0]})):
        with pytest.raises(InputError, match="broom is not a setting"):
            open_sweep(tmp_path, definition)
    assert [file.name for file in tmp_path.iterdir()] == ["sweep.toml"]


def test_an_empty_folder_and_one_with_only_a_definition_are_used(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".lock").touch()  # left by a process that was killed at once
    assert len(tiny(tmp_path / "empty", {"seed": [0]}).trials) == 1
    (tmp_path / "written").mkdir()
    SweepDefinition(settings=TINY, grid={"seed": [0, 1]}).write(tmp_path / "written" / "sweep.toml")
    assert len(open_sweep(tmp_path / "written").trials) == 2


@pytest.fixture
def outside(tmp_path):
    """A file and a folder of the user's, which must not be changed."""
    folder = tmp_path / "outside"
    (folder / "folder").mkdir(parents=True)
    (folder / "folder" / "letter").write_text("precious")
    (folder / "file").write_text("precious")
    yield folder
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    assert set(found) == {"file", "folder", "folder/letter"}
    assert found["file"].read_text() == found["folder/letter"].read_text() == "precious"


@pytest.mark.parametrize("target", ["file", "folder", "missing"])
@pytest.mark.parametrize("name", [".lock", "journal.jsonl", "workers", "trials", "stages", "sweep.toml"])
def test_links_in_a_foreign_sweep_are_rejected(tmp_path, outside, name, target):
    folder = tmp_path / "foreign"
    sweep = tiny(folder, {"seed": [0]})
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(outside / target)
    with pytest.raises(InputError, match=name):
        work(open_sweep(folder), never)
    with pytest.raises(InputError, match=name):
        work(open_sweep(folder, sweep.definition), never)
    assert not (outside / "missing").exists()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
@pytest.mark.parametrize("name", [".lock", "journal.jsonl"])
def test_other_kinds_of_files_are_rejected(tmp_path, outside, name, kind):
    sweep = tiny(tmp_path / "foreign", {"seed": [0]})
    (sweep.folder / name).unlink()
    if kind == "link":
        os.link(outside / "file", sweep.folder / name)
    elif kind == "pipe":
        os.mkfifo(sweep.folder / name)
    else:
        (sweep.folder / name).mkdir()
    with pytest.raises(InputError, match="not an ordinary file"):
        open_sweep(sweep.folder)


def test_the_run_folder_of_a_trial_must_not_be_a_link(tmp_path, outside, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise AssertionError("the run was started")

    monkeypatch.setattr("deeplda.experiments.sweep_worker.run_to_end", refuse)
    sweep = tiny(tmp_path / "foreign", {"alpha": [0.0], "seed": [0]})
    (sweep.folder / "trials").mkdir()
    sweep.run_folder("lda-alpha0-seed0").symlink_to(outside / "folder")
    work(sweep, never)
    assert "is a link" in sweep.current_attempts()["lda-alpha0-seed0"].error
    again = open_sweep(sweep.folder, retry=True)
    sweep.run_folder("lda-alpha0-seed0").unlink()
    (sweep.folder / "trials").rmdir()
    (sweep.folder / "trials").symlink_to(outside / "folder")
    work(again, never)
    assert "trials is a link" in again.queue.attempts()[-1].error


def test_tables_replace_links_and_use_no_name_that_others_can_guess(tmp_path, outside):
    sweep = tiny(tmp_path / "s", {"alpha": [0.0], "seed": [0]})
    for name in ("trials.csv", ".trials.csv.tmp", ".sweep.toml.tmp", ".trials.csv.lock"):
        (sweep.folder / name).symlink_to(outside / "file")
    work(sweep, never)
    assert (sweep.folder / "trials.csv").read_text().startswith("trial,")
    assert not (sweep.folder / "trials.csv").is_symlink()
