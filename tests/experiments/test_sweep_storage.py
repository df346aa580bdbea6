"""Journals and databases, intact and corrupt."""

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from deeplda.errors import InputError
from deeplda.experiments.sweep_storage import open_study, public_url
from deeplda.experiments.trial_queue import TrialQueue

TRIALS = {"one": {"alpha": 0.0}, "two": {"alpha": 1.0}}


def claim(queue, worker="w", skip=lambda _: False):
    return queue.claim(worker, "machine", skip)


def statuses(queue):
    return [(attempt.name, attempt.status) for attempt in queue.attempts()]


def test_credentials_are_not_written_down():
    assert public_url("postgresql+psycopg://me:secret@host:5433/db?sslmode=require") == (
        "postgresql+psycopg://host:5433/db"
    )


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "storage is not the URL"),
        ("sqlite:///states.db", "two workers can take the same trial"),
        ("postgresql+psycopg://me@127.0.0.1:1/db", "cannot be used as storage"),
        ("foo://host/db", "cannot be used as storage"),
    ],
)
def test_storages_that_cannot_be_used(tmp_path, monkeypatch, url, message):
    monkeypatch.setattr("deeplda.experiments.sweep_storage._TRIES", 1)
    with pytest.raises(InputError, match=message):
        open_study("s", tmp_path, url, prune=False)


def test_the_error_for_a_corrupt_journal_says_what_to_do(tmp_path):
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
def test_the_error_for_garbage_in_a_journal_says_what_to_do(tmp_path, line):
    TrialQueue(*open_study("s", tmp_path, None, prune=False)).enqueue(TRIALS)
    with (tmp_path / "journal.jsonl").open("a") as journal:
        journal.write(f"{line}\n{{}}\n")
    with pytest.raises(InputError, match="remove it and start again"):
        open_study("s", tmp_path, None, prune=False)


def test_a_partial_line_is_removed(tmp_path):
    """A full disk leaves one; the next writer continues after the last complete line."""
    queue = TrialQueue(*open_study("s", tmp_path, None, prune=False))
    queue.enqueue(TRIALS)
    journal = tmp_path / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"op_code": 4, "study' + b"x" * 10_000)
    again = TrialQueue(*open_study("s", tmp_path, None, prune=False))
    assert statuses(again) == [("one", "waiting"), ("two", "waiting")]
    claim(again)
    assert journal.read_bytes().startswith(whole + b'{"op_code":')
    assert statuses(queue) == [("one", "running"), ("two", "waiting")]


def test_a_full_disk_leaves_the_journal_intact(tmp_path, monkeypatch):
    queue = TrialQueue(*open_study("s", tmp_path, None, prune=False))
    queue.enqueue(TRIALS)
    whole = (tmp_path / "journal.jsonl").read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("deeplda.experiments.sweep_storage.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        claim(queue)
    assert (tmp_path / "journal.jsonl").read_bytes() == whole
    monkeypatch.undo()
    assert claim(queue).name == "one"


def test_a_study_that_is_not_a_sweep_is_rejected(tmp_path):
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "journal.jsonl")))
    optuna.create_study(study_name="s", storage=storage, direction="minimize")
    with pytest.raises(InputError, match="not a deeplda sweep"):
        open_study("s", tmp_path, None, prune=False)
