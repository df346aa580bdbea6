"""A worker alone: what it runs, leaves, fails and takes up."""

import csv
import fcntl
import json
import os
import shutil
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from deeplda import load
from deeplda.data import load_data
from deeplda.errors import InputError
from deeplda.experiments.sweeps.definition import Definition
from deeplda.experiments.sweeps.display import Display, news, status_table, summary_lines
from deeplda.experiments.sweeps.search import draw
from deeplda.experiments.sweeps.status import sweep_status
from deeplda.experiments.sweeps.sweep import open_sweep
from deeplda.experiments.sweeps.worker import require_validation, work
from deeplda.training.config import RunConfig

TINY = {"epochs": 1, "width": 0.1, "batch_size": 400, "learning_rate": 0.1}


def never():
    return False


def tiny(folder, grid, **more):
    return open_sweep(folder, Definition(settings=TINY | more, grid=grid))


def epochs_of(run):
    return [row["epoch"] for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if "epoch" in row]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A sweep whose trials are all done."""
    sweep = tiny(
        tmp_path_factory.mktemp("sweeps") / "finished",
        {"objective": ["rdlda", "cce"], "alpha": [0.0, 1.0], "seed": [0, 1]},
    )
    work(sweep, never)
    return sweep


def test_every_trial_is_an_ordinary_run(finished):
    assert set(finished.trials) == {path.name for path in (finished.folder / "trials").iterdir()}
    for name, standing in finished.standings().items():
        assert standing.status == "done"
        assert load(finished.run_folder(name)).class_names[0] == "0"
        rows = [json.loads(line) for line in (finished.run_folder(name) / "metrics.jsonl").read_text().splitlines()]
        assert standing.result["validation"] == rows[-1]["validation"]["accuracy"]
        assert standing.accuracy == {1: rows[0]["validation"]["accuracy"]}


def test_every_finished_trial_is_a_row_of_a_file(finished):
    with (finished.folder / "trials.csv").open(newline="") as file:
        rows = {row["trial"]: row for row in csv.DictReader(file)}
    assert list(rows) == list(finished.trials)
    for name, row in rows.items():
        summary = json.loads((finished.run_folder(name) / "metrics.jsonl").read_text().splitlines()[-1])
        assert float(row["validation"]) == pytest.approx(100 * summary["validation"]["accuracy"], abs=0.0051)
        for predictor, scores in summary["test"]["predictors"].items():
            assert float(row[f"test {predictor}"]) == pytest.approx(100 * scores["accuracy"], abs=0.0051)
        deciding = next(iter(summary["test"]["predictors"].values()))
        assert float(row["test balanced"]) == pytest.approx(100 * deciding["balanced_accuracy"], abs=0.0051)
        assert float(row["test auc"]) == pytest.approx(deciding["auc"], abs=0.000051)
        assert row["seed"] == name[-1]
    assert rows["rdlda-alpha0-seed1"]["alpha"] == "0.0"
    assert len(rows["rdlda-alpha0-seed1"]["eigenvalues"].split()) == 9
    assert (rows["cce-seed0"]["alpha"], rows["cce-seed0"]["eigenvalues"]) == ("", "")


def test_a_finished_sweep_is_left_as_it_is(finished):
    def written():
        return {file: file.stat().st_mtime_ns for file in (finished.folder / "trials").rglob("*") if file.is_file()}

    before, attempts = written(), finished.ledger.attempts()
    again = open_sweep(finished.folder)
    assert again.settled()
    work(again, never)
    assert written() == before
    assert again.ledger.attempts() == attempts


def test_without_its_journal_a_sweep_is_put_together_from_its_runs(finished, tmp_path):
    before = {name: (finished.run_folder(name) / "metrics.jsonl").read_bytes() for name in finished.trials}
    journal = finished.folder / "journal.jsonl"
    kept = journal.rename(tmp_path / "kept")
    again = open_sweep(finished.folder)
    assert not again.settled()
    work(again, never)
    assert again.settled()
    kept.replace(journal)
    assert before == {name: (finished.run_folder(name) / "metrics.jsonl").read_bytes() for name in finished.trials}


def test_the_best_is_chosen_by_validation_over_its_seeds(finished):
    best = sweep_status(finished).best
    results = {name: standing.result["validation"] for name, standing in finished.standings().items()}
    means = {
        name: np.mean([results[f"{name}-seed{seed}"] for seed in (0, 1)])
        for name in ("rdlda-alpha0", "rdlda-alpha1", "cce")
    }
    assert best.name == max(means, key=means.get)
    assert best.validation == pytest.approx(max(means.values()))
    assert best.seeds == 2
    assert "seed" not in best.settings


def test_a_definition_may_be_extended_by_hand(tmp_path):
    folder = tmp_path / "grown"
    work(tiny(folder, {"alpha": [0.0], "seed": [0]}), never)
    file = folder / "sweep.toml"
    file.write_text(file.read_text().replace("seed = [0]", "seed = [0, 1]"))
    sweep = open_sweep(folder)
    work(sweep, never)
    assert [attempt.name for attempt in sweep.ledger.attempts()] == ["rdlda-alpha0-seed0", "rdlda-alpha0-seed1"]
    assert sweep.settled()


def test_stopped_it_saves_and_the_trial_waits_again(tmp_path):
    folder, calls = tmp_path / "s", iter(range(1000))
    sweep = tiny(folder, {"alpha": [0.0], "seed": [0]}, epochs=3, batch_size=100)
    work(sweep, lambda: next(calls) > 20)
    assert [attempt.status for attempt in sweep.ledger.attempts()] == ["void", "waiting"]
    run = sweep.run_folder("rdlda-alpha0-seed0")
    before = (run / "metrics.jsonl").read_text().splitlines()
    assert epochs_of(run) == [1]
    work(open_sweep(folder), never)
    assert sweep.settled()
    assert epochs_of(run) == [1, 2, 3]
    assert (run / "metrics.jsonl").read_text().splitlines()[: len(before)] == before


def test_a_trial_that_no_attempt_goes_for_is_found(tmp_path):
    """Its worker died after ending the attempt, and before the trial waited again."""
    sweep = tiny(tmp_path / "s", {"alpha": [0.0], "seed": [0]})
    sweep.ledger._end(sweep.ledger.claim("w", "m", lambda _: False), "stopped")
    assert sweep.standings() == {}
    work(sweep, never)
    assert [attempt.status for attempt in sweep.ledger.attempts()] == ["void", "done"]


def test_a_failing_trial_is_recorded_and_the_others_go_on(tmp_path):
    sweep = tiny(tmp_path / "s", {"network": ["dorfernet", "convnet-small"], "seed": [0]})
    work(sweep, never)
    status = sweep_status(sweep)
    (error,) = status.failed.values()
    assert "24" in error
    assert list(status.done) == ["rdlda-networkconvnet-small-seed0"]
    assert sweep.settled()
    again = open_sweep(sweep.folder, retry=True)
    assert not again.settled()
    work(again, never)
    assert [attempt.status for attempt in again.ledger.attempts()] == ["failed", "done", "failed"]


def test_a_run_with_other_settings_is_not_taken_for_ones_own(tmp_path):
    sweep = tiny(tmp_path / "s", {"alpha": [0.0], "seed": [0]})
    work(sweep, never)
    run = sweep.run_folder("rdlda-alpha0-seed0")
    other = tiny(tmp_path / "other", {"alpha": [0.0], "seed": [0]}, epochs=2)
    (tmp_path / "other" / "trials").mkdir()
    run.rename(other.run_folder(run.name))
    work(other, never)
    assert "other settings" in other.standings()[run.name].error


def test_a_run_that_someone_has_is_left_until_it_is_free(tmp_path):
    sweep = tiny(tmp_path / "s", {"alpha": [0.0, 1.0], "seed": [0]})
    run = sweep.run_folder("rdlda-alpha0-seed0")
    run.mkdir(parents=True)
    lock = os.open(run / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    worker = threading.Thread(target=work, args=(open_sweep(sweep.folder), never))
    worker.start()
    deadline = time.monotonic() + 60
    while sweep.standings()["rdlda-alpha1-seed0"].status != "done":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert sweep.standings()["rdlda-alpha0-seed0"].status == "waiting"
    os.close(lock)
    worker.join(60)
    assert sweep.settled()


def test_a_sweep_may_be_renamed_and_copied(tmp_path):
    sweep = open_sweep(tmp_path / "s", Definition(settings=TINY, grid={"network": ["mlp"], "seed": [0]}))
    work(sweep, never)
    assert {name: found.status for name, found in sweep.standings().items()} == {"rdlda-networkmlp-seed0": "failed"}
    (tmp_path / "s").rename(tmp_path / "t")
    shutil.copytree(tmp_path / "t", tmp_path / "u")
    for folder in ("t", "u"):
        assert open_sweep(tmp_path / folder).standings()["rdlda-networkmlp-seed0"].status == "failed"


def test_a_number_in_quotes_is_a_number(tmp_path):
    sweep = open_sweep(tmp_path / "s", Definition(settings=TINY | {"epochs": "3"}, grid={"seed": [0]}))
    sweep.ledger.claim("w", "m", lambda _: False)
    (running,) = sweep_status(sweep).running
    assert running.epochs == 3


def test_a_search_draws_within_its_space(tmp_path):
    sweep = open_sweep(tmp_path / "s", Definition(settings=TINY | {"epochs": 2}, search={"trials": 9, "seed": 1}))
    work(sweep, never)
    standings = sweep.standings()
    assert sweep.settled()
    assert sorted(standings) == [f"search-{number:03}" for number in range(9)]
    assert {standing.status for standing in standings.values()} <= {"done", "pruned"}
    drawn = [standing.settings for standing in standings.values()]
    assert len({settings["alpha"] for settings in drawn}) == 9
    for settings in drawn:
        assert 0 <= settings["alpha"] <= 1
        assert 1e-5 <= settings["lam"] <= 1e-1
        assert 0.01 <= settings["learning_rate"] <= 1
        assert settings["seed"] == 1
    assert len({settings["statistic"] for settings in drawn}) > 1


def test_a_search_is_seeded_and_a_trial_taken_up_keeps_what_it_drew(tmp_path):
    def drawn(folder, seed):
        sweep = open_sweep(folder, Definition(settings=TINY, search={"trials": 2, "seed": seed}))
        attempt = sweep.ledger.claim("w", "m", lambda name: name != "search-001")
        found = draw(sweep.ledger.study, sweep.ledger.trial_id(attempt), attempt.number, sweep.definition)
        sweep.ledger.give_back(attempt)
        again = sweep.ledger.claim("w", "m", lambda name: name != "search-001")
        assert again.number != attempt.number
        assert draw(sweep.ledger.study, sweep.ledger.trial_id(again), again.number, sweep.definition) == found
        return found

    assert drawn(tmp_path / "a", 3) == drawn(tmp_path / "b", 3) != drawn(tmp_path / "c", 4)


def test_data_without_validation_is_refused():
    data = load_data("digits")
    require_validation(RunConfig(), data)
    with pytest.raises(InputError, match="no validation part"):
        require_validation(RunConfig(), replace(data, val=data.val.take(np.arange(0))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": TINY | {"epochs": 7}}, "was defined with epochs 1, not 7"),
        ({"grid": {"alpha": [0.0], "seed": [0]}}, "was defined with grid of"),
    ],
)
def test_another_definition_is_refused(finished, change, message):
    there = finished.definition.model_dump(exclude_none=True, by_alias=True)
    with pytest.raises(InputError, match=message):
        open_sweep(finished.folder, Definition(**(there | change)))


def test_another_storage_is_refused(finished):
    with pytest.raises(InputError, match="leave --storage out"):
        open_sweep(finished.folder, url="postgresql+psycopg://host/db")


def test_no_sweep_is_no_sweep(tmp_path):
    with pytest.raises(InputError, match="is no sweep"):
        open_sweep(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_the_display_tells_what_runs_and_what_is_best(tmp_path, capsys):
    sweep = open_sweep(
        tmp_path / "s",
        Definition(table=2, scale="quick", settings=TINY | {"epochs": 4}, grid={"alpha": [0.0, 0.5, 1.0], "seed": [0]}),
    )
    start = sweep_status(sweep)
    done, running = sweep.ledger.claim("w", "m", lambda _: False), sweep.ledger.claim("w", "m", lambda _: False)
    sweep.ledger.finish(done, {"validation": 0.875, "seconds": 100.0})
    sweep.ledger.report(running, 1, 0.5)
    status = sweep_status(sweep)
    assert status.seconds_left == pytest.approx((1 + 3 / 4) * 100)
    lines = "\n".join(summary_lines(status))
    assert "1 of 3 done, 1 running, 1 waiting" in lines
    assert "best by validation: rdlda-alpha0, 87.50 % (1 seed)" in lines
    assert "about 0:02:55 left" in lines
    assert "rdlda-alpha0.5-seed0: epoch 1/4, validation 50.00 %" in news(start, status)
    sweep.ledger.fail(running, "no [good]")
    assert "rdlda-alpha0.5-seed0: failed: no [good]" in news(status, sweep_status(sweep))
    assert status_table(status, quick=True).renderables[0].row_count == 1
    with Display(sweep):
        pass
    shown = capsys.readouterr().err
    assert "(quick scale): 3 trials" in shown
    assert "failed: rdlda-alpha0.5-seed0: no [good]" in shown


def test_settings_are_the_definitions_and_not_the_storages(tmp_path, monkeypatch):
    """Who can write to the journal cannot have code run by it."""
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
    assert again.standings()["rdlda-alpha1-seed0"].status == "done"


def test_a_worker_whose_disk_is_full_leaves_its_trial_waiting(tmp_path, monkeypatch):
    sweep = tiny(tmp_path / "sweep", {"alpha": [1.0], "seed": [0]})

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("deeplda.training.pipeline.run_to_end", full)
    for _ in range(4):
        with pytest.raises(OSError, match="No space"):
            work(sweep, never)
    assert [attempt.ended for attempt in sweep.ledger.attempts()] == ["stopped"] * 4 + [None]
    assert sweep.standings()["rdlda-alpha1-seed0"].status == "waiting"
