"""One worker: what it runs, skips, resumes and reports; and how it detects dead workers."""

import errno
import fcntl
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from deeplda import load
from deeplda.data import load_data
from deeplda.errors import InputError, StoppedError
from deeplda.experiments.sweep_definition import SweepDefinition
from deeplda.experiments.sweep_display import sweep_status
from deeplda.experiments.sweep_folder import open_sweep, worker_lock
from deeplda.experiments.sweep_worker import draw, require_validation, run_workers, work
from deeplda.experiments.trial_queue import Attempt, LostTrialError
from deeplda.experiments.worker_liveness import DeadWorkerDetector, heartbeat, this_machine
from deeplda.training.metrics import PredictorScores, Scores, SummaryRow
from deeplda.training.pipeline import Finished
from deeplda.training.stopping import asked_to_stop

TINY = {"epochs": 1, "width": 0.1, "batch_size": 400, "learning_rate": 0.1}


def never():
    return False


def tiny(folder, grid, **more):
    return open_sweep(folder, SweepDefinition(settings=TINY | more, grid=grid))


def epochs_of(run):
    return [row["epoch"] for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if "epoch" in row]


def test_every_trial_is_an_ordinary_run(finished):
    assert set(finished.trials) == {path.name for path in (finished.folder / "trials").iterdir()}
    for name, attempt in finished.current_attempts().items():
        assert attempt.status == "done"
        assert load(finished.run_folder(name)).class_names[0] == "0"
        rows = [json.loads(line) for line in (finished.run_folder(name) / "metrics.jsonl").read_text().splitlines()]
        assert attempt.result.validation == rows[-1]["validation"]["accuracy"]
        assert attempt.accuracy == {1: rows[0]["validation"]["accuracy"]}


def test_a_finished_sweep_is_not_changed(finished):
    def written():
        return {file: file.stat().st_mtime_ns for file in (finished.folder / "trials").rglob("*") if file.is_file()}

    before, attempts = written(), finished.queue.attempts()
    again = open_sweep(finished.folder)
    assert again.settled()
    work(again, never)
    assert written() == before
    assert again.queue.attempts() == attempts


def test_a_sweep_without_its_journal_is_recovered_from_its_runs(finished, tmp_path):
    before = {name: (finished.run_folder(name) / "metrics.jsonl").read_bytes() for name in finished.trials}
    journal = finished.folder / "journal.jsonl"
    kept = journal.rename(tmp_path / "kept")
    again = open_sweep(finished.folder)
    assert not again.settled()
    work(again, never)
    assert again.settled()
    kept.replace(journal)
    assert before == {name: (finished.run_folder(name) / "metrics.jsonl").read_bytes() for name in finished.trials}


def test_a_stopped_worker_saves_and_requeues_its_trial(tmp_path):
    folder, calls = tmp_path / "s", iter(range(1000))
    sweep = tiny(folder, {"alpha": [0.0], "seed": [0]}, epochs=3, batch_size=100)
    work(sweep, lambda: next(calls) > 20)
    assert [attempt.status for attempt in sweep.queue.attempts()] == ["abandoned", "waiting"]
    run = sweep.run_folder("lda-alpha0-seed0")
    before = (run / "metrics.jsonl").read_text().splitlines()
    assert epochs_of(run) == [1]
    work(open_sweep(folder), never)
    assert sweep.settled()
    assert epochs_of(run) == [1, 2, 3]
    assert (run / "metrics.jsonl").read_text().splitlines()[: len(before)] == before


def test_a_trial_without_an_active_attempt_is_found(tmp_path):
    """Its worker died after ending the attempt and before enqueueing the trial again."""
    sweep = tiny(tmp_path / "s", {"alpha": [0.0], "seed": [0]})
    sweep.queue._abandon(sweep.queue.claim("w", "m", lambda _: False), "stopped")
    assert sweep.current_attempts() == {}
    work(sweep, never)
    assert [attempt.status for attempt in sweep.queue.attempts()] == ["abandoned", "done"]


def test_a_failing_trial_is_recorded_and_the_others_continue(tmp_path):
    sweep = tiny(tmp_path / "s", {"network": ["dorfernet", "convnet-small"], "seed": [0]})
    work(sweep, never)
    status = sweep_status(sweep)
    (error,) = status.failed.values()
    assert "24" in error
    assert list(status.done) == ["lda-networkconvnet-small-seed0"]
    assert sweep.settled()
    again = open_sweep(sweep.folder, retry=True)
    assert not again.settled()
    work(again, never)
    assert [attempt.status for attempt in again.queue.attempts()] == ["failed", "done", "failed"]


def test_a_run_with_other_settings_is_not_reused(tmp_path):
    sweep = tiny(tmp_path / "s", {"alpha": [0.0], "seed": [0]})
    work(sweep, never)
    run = sweep.run_folder("lda-alpha0-seed0")
    other = tiny(tmp_path / "other", {"alpha": [0.0], "seed": [0]}, epochs=2)
    (tmp_path / "other" / "trials").mkdir()
    run.rename(other.run_folder(run.name))
    work(other, never)
    assert "different settings" in other.current_attempts()[run.name].error


def test_a_locked_run_is_skipped_until_it_is_free(tmp_path):
    sweep = tiny(tmp_path / "s", {"alpha": [0.0, 1.0], "seed": [0]})
    run = sweep.run_folder("lda-alpha0-seed0")
    run.mkdir(parents=True)
    lock = os.open(run / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    worker = threading.Thread(target=work, args=(open_sweep(sweep.folder), never))
    worker.start()
    deadline = time.monotonic() + 60
    while sweep.current_attempts()["lda-alpha1-seed0"].status != "done":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert sweep.current_attempts()["lda-alpha0-seed0"].status == "waiting"
    os.close(lock)
    worker.join(60)
    assert sweep.settled()


def test_a_search_draws_within_its_space(tmp_path):
    sweep = open_sweep(tmp_path / "s", SweepDefinition(settings=TINY | {"epochs": 2}, search={"trials": 9, "seed": 1}))
    work(sweep, never)
    attempts = sweep.current_attempts()
    assert sweep.settled()
    assert sorted(attempts) == [f"search-{number:03}" for number in range(9)]
    assert {attempt.status for attempt in attempts.values()} <= {"done", "pruned"}
    drawn = [attempt.settings for attempt in attempts.values()]
    assert len({settings["alpha"] for settings in drawn}) == 9
    for settings in drawn:
        assert 0 <= settings["alpha"] <= 1
        assert 1e-5 <= settings["lam"] <= 1e-1
        assert 0.01 <= settings["learning_rate"] <= 1
        assert settings["seed"] == 1
    assert len({settings["statistic"] for settings in drawn}) > 1


def test_a_search_is_seeded_and_a_resumed_trial_keeps_what_it_drew(tmp_path):
    def drawn(folder, seed):
        sweep = open_sweep(folder, SweepDefinition(settings=TINY, search={"trials": 2, "seed": seed}))
        attempt = sweep.queue.claim("w", "m", lambda name: name != "search-001")
        found = draw(sweep.queue.study, sweep.queue.trial_id(attempt), attempt.number, sweep.definition)
        sweep.queue.requeue(attempt)
        again = sweep.queue.claim("w", "m", lambda name: name != "search-001")
        assert again.number != attempt.number
        assert draw(sweep.queue.study, sweep.queue.trial_id(again), again.number, sweep.definition) == found
        return found

    assert drawn(tmp_path / "a", 3) == drawn(tmp_path / "b", 3) != drawn(tmp_path / "c", 4)


def test_data_without_validation_is_rejected():
    data = load_data("digits")
    require_validation(data)
    with pytest.raises(InputError, match="no validation set"):
        require_validation(replace(data, val=data.val.take(np.arange(0))))


def test_settings_come_from_the_definition_and_not_from_the_storage(tmp_path, monkeypatch):
    """Write access to the journal must not be enough to run code."""
    (tmp_path / "trap.py").write_text("raise SystemExit('the code ran')")
    monkeypatch.chdir(tmp_path)
    sweep = tiny(tmp_path / "sweep", {"alpha": [1.0], "seed": [0]})
    journal = sweep.folder / "journal.jsonl"
    journal.write_text(
        journal.read_text().replace('"settings":{"objective"', '"settings":{"network":"trap:make","objective"')
    )
    assert "trap" in journal.read_text()
    again = open_sweep(sweep.folder)
    work(again, never)
    assert again.current_attempts()["lda-alpha1-seed0"].status == "done"


def test_a_worker_with_a_full_disk_requeues_its_trial(tmp_path, monkeypatch):
    sweep = tiny(tmp_path / "sweep", {"alpha": [1.0], "seed": [0]})

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("deeplda.experiments.sweep_worker.run_to_end", full)
    for _ in range(4):
        with pytest.raises(OSError, match="No space"):
            work(sweep, never)
    assert [attempt.ended for attempt in sweep.queue.attempts()] == ["stopped"] * 4 + [None]
    assert sweep.current_attempts()["lda-alpha1-seed0"].status == "waiting"


@pytest.fixture
def trained_at_once(monkeypatch):
    """Runs are finished without training."""
    scores = {"n": 4, "accuracy": 0.75, "confusion": [[2, 0], [1, 1]]}
    part = Scores(**scores, predictors={"hyperplanes": PredictorScores(accuracy=0.75, balanced_accuracy=0.75)})
    row = SummaryRow(validation=part, test=part, class_names=["a", "b"], epochs=1, best_epoch=1, seconds=1.0)
    monkeypatch.setattr("deeplda.experiments.sweep_worker.run_to_end", lambda *_, **__: Finished(row))


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
@pytest.mark.usefixtures("trained_at_once")
def test_without_locks_a_sweep_warns_and_heartbeats_decide(tmp_path, monkeypatch, number):
    def unsupported(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", unsupported)
    with pytest.warns(UserWarning, match="make sure that no other process"):
        sweep = tiny(tmp_path / "s", {"alpha": [0.0, 0.5, 1.0], "seed": [0]})
    with pytest.warns(UserWarning, match="workers cannot be locked"):
        work(sweep, never)
    assert sweep.settled()
    detector = DeadWorkerDetector(sweep.folder, seconds=0.05)
    with worker_lock(sweep.folder) as worker:
        attempt = running(worker, this_machine())
        assert not detector.is_dead(attempt)
        time.sleep(0.1)
        assert not detector.is_dead(running(worker, this_machine(), beat=1))
        time.sleep(0.1)
        assert detector.is_dead(running(worker, this_machine(), beat=1))


@pytest.mark.usefixtures("trained_at_once")
def test_a_sweep_that_is_moved_while_it_runs_is_not_made_again(tmp_path, monkeypatch):
    sweep = tiny(tmp_path / "s", {"alpha": [0.0, 1.0], "seed": [0]})

    def moved(*_args, **_kwargs):
        sweep.folder.rename(tmp_path / "moved")
        raise StoppedError

    monkeypatch.setattr("deeplda.experiments.sweep_worker.run_to_end", moved)
    with pytest.raises(InputError, match="if it was moved, run the command again"):
        work(sweep, never)
    assert not sweep.folder.exists()
    monkeypatch.undo()
    again = open_sweep(tmp_path / "moved")
    work(again, never)
    assert again.settled()


def test_no_part_of_a_password_is_written_to_the_environment_of_a_trial(tmp_path, monkeypatch):
    url = "postgresql+psycopg://deep:pa?se/cr@et@host/db?sslmode=require"
    monkeypatch.setattr(sys, "argv", ["deeplda", "sweep", "--storage", url, f"--storage={url}"])
    sweep = tiny(tmp_path / "s", {"alpha": [0.0], "seed": [0]})
    work(sweep, never)
    environment = (sweep.run_folder("lda-alpha0-seed0") / "environment.json").read_text()
    assert json.loads(environment)["command"] == [
        "deeplda",
        "sweep",
        "--storage",
        "postgresql+psycopg://host/db",
        "--storage=postgresql+psycopg://host/db",
    ]


HOLDER = """
import sys, time
from pathlib import Path
from deeplda.experiments.sweep_folder import worker_lock
with worker_lock(Path(sys.argv[1])) as worker:
    print(worker, flush=True)
    time.sleep(600)
"""


def running(worker, machine, beat=0):
    return Attempt(number=0, name="t", status="running", worker=worker, machine=machine, beat=beat)


@pytest.mark.usefixtures("default_hangup")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_arrives_while_workers_start_is_not_lost(tmp_path, monkeypatch, number):
    """Not even one for this process alone, which the workers must not see."""
    started = []

    class Process:
        def __init__(self, **_):
            pass

        def start(self):
            if not started:
                os.kill(os.getpid(), number)
            started.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))

        def is_alive(self):
            return False

        def join(self):
            pass

        terminate = kill = join

    monkeypatch.setattr(multiprocessing, "get_context", lambda _: SimpleNamespace(Process=Process))
    with asked_to_stop(number) as stop:
        run_workers(tmp_path, None, 2, stop)
        # The system may deliver it to another thread of this process, which first has to run.
        give_up = time.monotonic() + 30
        while not stop() and time.monotonic() < give_up:
            time.sleep(0.01)
        assert stop()
    assert len(started) == 2
    assert all({signal.SIGINT, signal.SIGHUP} <= blocked for blocked in started)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {signal.SIGINT, signal.SIGHUP}


def test_a_killed_worker_is_detected_at_once_on_its_machine(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    attempt = running(holder.stdout.readline().strip(), this_machine())
    detector = DeadWorkerDetector(tmp_path)
    try:
        assert not detector.is_dead(attempt)
    finally:
        holder.kill()
        holder.communicate()
    assert detector.is_dead(attempt)


def test_a_worker_that_ends_with_an_error_is_detected(tmp_path):
    with pytest.raises(KeyboardInterrupt), worker_lock(tmp_path) as worker:
        raise KeyboardInterrupt
    assert DeadWorkerDetector(tmp_path).is_dead(running(worker, this_machine()))


@pytest.mark.parametrize("worker", ["far", None])
def test_on_other_machines_the_heartbeat_decides(tmp_path, worker):
    detector = DeadWorkerDetector(tmp_path, seconds=0.05)
    attempt = running(worker, "another machine")
    assert not detector.is_dead(attempt)
    time.sleep(0.1)
    living = running(worker, "another machine", beat=1)
    assert not detector.is_dead(living)
    time.sleep(0.1)
    assert detector.is_dead(living)


def test_a_worker_here_with_another_folder_is_judged_by_its_heartbeat(tmp_path):
    detector = DeadWorkerDetector(tmp_path, seconds=0.05)
    attempt = running("here-1", this_machine())
    assert not detector.is_dead(attempt)
    time.sleep(0.1)
    assert detector.is_dead(attempt)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_worker_whose_lock_may_not_be_opened_is_judged_by_its_heartbeat(tmp_path, monkeypatch, number):
    """It belongs to another user, for example."""
    with worker_lock(tmp_path) as worker:
        opening = os.open

        def refused(path, *arguments, **keywords):
            if worker in str(path):
                raise OSError(number, os.strerror(number))
            return opening(path, *arguments, **keywords)

        monkeypatch.setattr(os, "open", refused)
        detector = DeadWorkerDetector(tmp_path, seconds=0.05)
        assert not detector.is_dead(running(worker, this_machine()))
        time.sleep(0.1)
        assert detector.is_dead(running(worker, this_machine()))
        monkeypatch.undo()


def test_the_heartbeat_survives_errors_until_the_trial_is_lost():
    beats = []

    def beat(count):
        beats.append(count)
        if count == 2:
            raise OSError("the storage is away")
        if count == 4:
            raise LostTrialError

    with heartbeat(beat, seconds=0.01) as lost:
        deadline = time.monotonic() + 10
        while not lost():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert beats == [1, 2, 3, 4]


def test_the_heartbeat_stops_with_its_block():
    beats = []
    with heartbeat(beats.append, seconds=0.01):
        deadline = time.monotonic() + 10
        while not beats:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    count = len(beats)
    time.sleep(0.05)
    assert len(beats) == count
