"""What workers agree on: every trial is done once, whatever happens to the workers."""

import threading

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from deeplda.errors import InputError
from deeplda.experiments.sweeps.definition import Definition
from deeplda.experiments.sweeps.ledger import Ledger, LostError
from deeplda.experiments.sweeps.storage import open_study, public_place
from deeplda.experiments.sweeps.sweep import open_sweep

TRIALS = {"one": {"alpha": 0.0}, "two": {"alpha": 1.0}}


@pytest.fixture
def storage_url():
    """The journal in the folder; tests/services has a database here."""
    return


@pytest.fixture
def open_ledger(tmp_path, storage_url):
    """As another process would open the same storage."""
    return lambda prune=False: Ledger(*open_study("s", tmp_path, storage_url, prune=prune))


@pytest.fixture
def ledger(open_ledger):
    ledger = open_ledger()
    ledger.enqueue(TRIALS)
    return ledger


def claim(ledger, worker="w", passed_over=lambda _: False):
    return ledger.claim(worker, "machine", passed_over)


def statuses(ledger):
    return [(attempt.name, attempt.status) for attempt in ledger.attempts()]


def test_trials_wait_once(ledger, open_ledger):
    for again in (ledger, open_ledger()):
        again.enqueue(TRIALS)
        assert statuses(again) == [("one", "waiting"), ("two", "waiting")]


def test_a_trial_is_taken_by_one_worker(ledger, open_ledger):
    other = open_ledger()
    assert [claim(ledger).name, claim(other).name, claim(ledger), claim(other)] == ["one", "two", None, None]


def test_many_workers_at_once_take_each_trial_once(ledger, open_ledger):
    ledger.enqueue({f"t{number}": {} for number in range(8)})
    taken, ready = [], threading.Barrier(4)

    def worker(mine):
        ready.wait()
        while (attempt := claim(mine)) is not None:
            taken.append(attempt.name)

    threads = [threading.Thread(target=worker, args=(open_ledger(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted([*TRIALS, *(f"t{number}" for number in range(8))])


def test_some_trials_can_be_passed_over(ledger):
    assert claim(ledger, passed_over=lambda name: name == "one").name == "two"


def test_done_is_done(ledger):
    attempt = claim(ledger)
    ledger.finish(attempt, {"validation": 0.5, "seconds": 1.0})
    ledger.enqueue(TRIALS, retry=True)
    assert statuses(ledger) == [("one", "done"), ("two", "waiting")]
    assert ledger.standings()["one"].result == {"validation": 0.5, "seconds": 1.0}


def test_a_trial_given_back_waits_again_with_its_settings(ledger):
    attempt = claim(ledger)
    ledger.give_back(attempt)
    assert statuses(ledger) == [("one", "void"), ("two", "waiting"), ("one", "waiting")]
    assert ledger.standings()["one"].settings == {"alpha": 0.0}
    assert not ledger.standings()["one"].settled


def test_a_dead_workers_trial_is_taken_up_once(ledger, open_ledger):
    attempt, other = claim(ledger), open_ledger()
    other.bury(attempt)
    ledger.bury(attempt)
    assert statuses(ledger).count(("one", "waiting")) == 1
    assert claim(other, passed_over=lambda name: name == "two").name == "one"


def test_one_thought_dead_by_mistake_has_lost_its_trial(ledger, open_ledger):
    attempt = claim(ledger)
    open_ledger().bury(attempt)
    for act in (
        lambda: ledger.note(attempt, "beat", 1),
        lambda: ledger.report(attempt, 1, 0.5),
        lambda: ledger.finish(attempt, {"validation": 0.5, "seconds": 1.0}),
        lambda: ledger.fail(attempt, "no"),
    ):
        with pytest.raises(LostError):
            act()
    ledger.give_back(attempt)
    assert statuses(ledger).count(("one", "waiting")) == 1


def test_a_trial_that_kills_its_workers_fails_in_the_end(ledger):
    for _ in range(3):
        ledger.bury(claim(ledger, passed_over=lambda name: name == "two"))
    standing = ledger.standings()["one"]
    assert standing.status == "failed"
    assert standing.error == "its worker died 3 times before an epoch was done"


def test_a_trial_that_gets_on_between_deaths_does_not_fail(ledger):
    for epoch in range(1, 6):
        attempt = claim(ledger, passed_over=lambda name: name == "two")
        ledger.report(attempt, epoch, 0.5)
        ledger.bury(attempt)
    assert ledger.standings()["one"].status == "waiting"
    for _ in range(3):
        ledger.bury(claim(ledger, passed_over=lambda name: name == "two"))
    assert ledger.standings()["one"].status == "failed"


def test_failed_trials_are_tried_again_when_asked(ledger):
    ledger.fail(claim(ledger), "no such data")
    ledger.enqueue(TRIALS)
    assert ledger.standings()["one"].error == "no such data"
    ledger.enqueue(TRIALS, retry=True)
    assert ledger.standings()["one"].status == "waiting"


def test_a_trial_that_waits_twice_is_run_once(ledger):
    """Two machines that start at the same moment may both have it wait."""
    ledger.study.enqueue_trial({}, user_attrs={"name": "one", "settings": {}})
    taken = [claim(ledger), claim(ledger), claim(ledger)]
    assert [attempt and attempt.name for attempt in taken] == ["one", "two", None]
    assert statuses(ledger) == [("one", "running"), ("two", "running"), ("one", "void")]


def test_a_second_attempt_at_a_done_trial_is_dropped(ledger):
    ledger.finish(claim(ledger), {"validation": 0.5, "seconds": 1.0})
    ledger.study.enqueue_trial({}, user_attrs={"name": "one", "settings": {}})
    assert [claim(ledger).name, claim(ledger)] == ["two", None]


def test_trials_below_the_median_are_pruned(open_ledger):
    ledger = open_ledger(prune=True)
    ledger.enqueue({f"t{number}": {} for number in range(6)})
    for number in range(5):
        attempt = claim(ledger)
        assert not ledger.report(attempt, 1, 0.5 + number / 100)
        ledger.finish(attempt, {"validation": 0.5, "seconds": 1.0})
    last = claim(ledger)
    assert ledger.report(last, 1, 0.4)
    ledger.prune(last)
    assert ledger.standings()["t5"].status == "pruned"


def test_other_settings_in_the_same_storage_are_refused(ledger, open_ledger):
    ledger.agree({"epochs": 1})
    open_ledger().agree({"epochs": 1})
    with pytest.raises(InputError, match="a sweep named s with another epochs"):
        open_ledger().agree({"epochs": 2})


def test_workers_that_start_at_the_same_moment_enqueue_once(tmp_path):
    definition = Definition(settings={"epochs": 1}, grid={"alpha": [0.0, 0.5, 1.0], "seed": [0, 1]})
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
    assert sorted(name for name, _ in statuses(found[0].ledger)) == sorted(definition.trials())


def test_credentials_are_not_written_down():
    assert public_place("postgresql+psycopg://me:secret@host:5433/db?sslmode=require") == (
        "postgresql+psycopg://host:5433/db"
    )


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "storage is no URL of a database"),
        ("sqlite:///states.db", "two workers can take the same trial"),
        ("postgresql+psycopg://me@127.0.0.1:1/db", "cannot be used as storage"),
        ("foo://host/db", "cannot be used as storage"),
    ],
)
def test_storages_that_cannot_be_used(tmp_path, monkeypatch, url, message):
    monkeypatch.setattr("deeplda.experiments.sweeps.storage._TRIES", 1)
    with pytest.raises(InputError, match=message):
        open_study("s", tmp_path, url, prune=False)


def test_a_damaged_journal_is_answered_with_what_to_do(tmp_path):
    (tmp_path / "journal.jsonl").write_text("{cut\n{cut\n")
    with pytest.raises(InputError, match="remove it and start again"):
        open_study("s", tmp_path, None, prune=False)


@pytest.mark.parametrize(
    "line",
    [
        "{cut",
        "null",
        "[]",
        '{"op_code": 99}',
        '{"op_code": 4, "study_id": 7}',
        '{"op_code": "x", "worker_id": 3}',
        '{"op_code": 0, "study_name": 5, "directions": ["up"], "worker_id": "w"}',
        "[" * 100_000,
        '{"op_code": ' + "9" * 10_000 + "}",
    ],
)
def test_journals_with_garbage_are_answered_with_what_to_do(tmp_path, line):
    Ledger(*open_study("s", tmp_path, None, prune=False)).enqueue(TRIALS)
    with (tmp_path / "journal.jsonl").open("a") as journal:
        journal.write(f"{line}\n{{}}\n")
    with pytest.raises(InputError, match="remove it and start again"):
        open_study("s", tmp_path, None, prune=False)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", 5),
        ("settings", []),
        ("worker", "../../x"),
        ("worker", "a/b"),
        ("beat", "often"),
        ("result", {}),
        ("result", {"validation": "good", "seconds": 1.0}),
        ("result", {"validation": 0.5, "seconds": 1e300}),
    ],
)
def test_notes_that_no_worker_writes_are_refused(ledger, key, value):
    ledger.note(claim(ledger), key, value)
    with pytest.raises(InputError, match=f"the storage says of trial 0 what no worker does: {key}"):
        ledger.attempts()


def test_half_a_line_is_taken_back(tmp_path):
    """As a full disk leaves it: the next who writes goes on behind the last whole line."""
    ledger = Ledger(*open_study("s", tmp_path, None, prune=False))
    ledger.enqueue(TRIALS)
    journal = tmp_path / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"op_code": 4, "study' + b"x" * 10_000)
    again = Ledger(*open_study("s", tmp_path, None, prune=False))
    assert statuses(again) == [("one", "waiting"), ("two", "waiting")]
    claim(again)
    assert journal.read_bytes().startswith(whole + b'{"op_code":')
    assert statuses(ledger) == [("one", "running"), ("two", "waiting")]


def test_a_full_disk_leaves_the_journal_whole(tmp_path, monkeypatch):
    ledger = Ledger(*open_study("s", tmp_path, None, prune=False))
    ledger.enqueue(TRIALS)
    whole = (tmp_path / "journal.jsonl").read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("deeplda.experiments.sweeps.storage.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        claim(ledger)
    assert (tmp_path / "journal.jsonl").read_bytes() == whole
    monkeypatch.undo()
    assert claim(ledger).name == "one"


def test_another_kind_of_study_is_no_sweep(tmp_path):
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "journal.jsonl")))
    optuna.create_study(study_name="s", storage=storage, direction="minimize")
    with pytest.raises(InputError, match="no sweep of ours"):
        open_study("s", tmp_path, None, prune=False)
