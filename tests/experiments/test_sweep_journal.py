"""The journal: intact whatever happens to its writers, and rejected if it is not a journal."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from deeplda import output_folder
from deeplda.errors import InputError
from deeplda.experiments.sweep_journal import SweepJournal
from deeplda.experiments.sweep_storage import open_study
from deeplda.experiments.trial_queue import TrialQueue

TRIALS = {"one": {"alpha": 0.0}, "two": {"alpha": 1.0}}


def open_queue(folder):
    return TrialQueue(*open_study("s", folder, None, prune=False))


def claim(queue):
    return queue.claim("w", "machine", lambda _: False)


def statuses(queue):
    return [(attempt.name, attempt.status) for attempt in queue.attempts()]


def entries(folder):
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


@pytest.fixture
def stalled(monkeypatch):
    """The next writer stops in the middle of its line; gives an event that it has, and one that lets it continue."""
    there, go, whole = threading.Event(), threading.Event(), output_folder._write_all

    def write(stream, content):
        if there.is_set():
            whole(stream, content)
            return
        stream.write(content[: len(content) // 2])
        there.set()
        assert go.wait(60)
        whole(stream, content[len(content) // 2 :])

    monkeypatch.setattr(output_folder, "_write_all", write)
    yield there, go
    go.set()


def start(function, *arguments):
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    return thread


def test_a_writer_that_stalls_is_waited_for_by_writers_and_readers(tmp_path, stalled):
    """However long it takes, nobody takes its lock away, writes between its halves, or reads the first of them."""
    there, go = stalled
    read = []
    slow = start(SweepJournal(tmp_path).append_logs, [{"by": "slow", "text": "x" * 10_000}])
    assert there.wait(60)
    half = (tmp_path / "journal.jsonl").read_bytes()
    others = [start(SweepJournal(tmp_path).append_logs, [{"by": "quick"}])]
    others.append(start(lambda: read.extend(SweepJournal(tmp_path).read_logs(0))))
    for other in others:
        other.join(0.3)
        assert other.is_alive()
    assert (tmp_path / "journal.jsonl").read_bytes() == half
    go.set()
    for thread in (slow, *others):
        thread.join(60)
    assert [entry["by"] for entry in entries(tmp_path)] == ["slow", "quick"]
    assert read[0] == {"by": "slow", "text": "x" * 10_000}


@pytest.mark.parametrize("use", [lambda journal: list(journal.read_logs(0)), lambda journal: journal.append_logs([{}])])
def test_a_process_that_waits_for_long_says_so(tmp_path, monkeypatch, use):
    monkeypatch.setattr(output_folder, "_SILENT_SECONDS", 0.05)
    (tmp_path / "journal.jsonl").touch()
    held = (tmp_path / "journal.jsonl").open("a")
    fcntl.flock(held, fcntl.LOCK_EX)
    release = threading.Timer(0.5, held.close)
    release.start()
    with pytest.warns(UserWarning, match=f"waiting for another process that keeps {tmp_path}/journal.jsonl locked"):
        use(SweepJournal(tmp_path))
    release.join()


STALLS = """
import sys, time
from pathlib import Path
from deeplda import output_folder
from deeplda.experiments.sweep_journal import SweepJournal

def write(stream, content):
    stream.write(content[: len(content) // 2])
    print("stalled", flush=True)
    time.sleep(600)

output_folder._write_all = write
SweepJournal(Path(sys.argv[1])).append_logs([{"by": "killed"}])
"""


def test_a_writer_that_dies_releases_the_lock_and_its_half_line_is_removed(tmp_path):
    SweepJournal(tmp_path).append_logs([{"by": "first"}])
    process = subprocess.Popen([sys.executable, "-c", STALLS, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "stalled\n"
        other = start(SweepJournal(tmp_path).append_logs, [{"by": "other"}])
        other.join(0.3)
        assert other.is_alive()
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    other.join(60)
    assert [entry["by"] for entry in entries(tmp_path)] == ["first", "other"]


def test_simultaneous_writers_lose_nothing(tmp_path):
    def write(writer):
        for number in range(50):
            SweepJournal(tmp_path).append_logs([{"by": writer, "number": number}])

    for thread in [start(write, writer) for writer in range(4)]:
        thread.join()
    found = entries(tmp_path)
    assert len(found) == 200
    for writer in range(4):
        assert [entry["number"] for entry in found if entry["by"] == writer] == list(range(50))


def test_without_locks_a_line_that_is_being_written_is_not_read(tmp_path, monkeypatch):
    journal = SweepJournal(tmp_path)
    journal.append_logs([{"by": "first"}])

    def unsupported(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with (tmp_path / "journal.jsonl").open("ab") as stream:
        stream.write(b'{"by": "sec')
        stream.flush()
        assert list(journal.read_logs(0)) == [{"by": "first"}]
        assert list(journal.read_logs(1)) == []
        stream.write(b'ond"}\n')
    assert list(journal.read_logs(1)) == [{"by": "second"}]
    with pytest.warns(UserWarning, match="cannot be locked"):
        journal.append_logs([{"by": "third"}])
    # From now on, it is known.
    journal.append_logs([{"by": "fourth"}])
    assert len(entries(tmp_path)) == 4


def test_only_new_lines_are_read(tmp_path):
    journal = SweepJournal(tmp_path)
    for number in range(3):
        journal.append_logs([{"number": number}])
    assert [entry["number"] for entry in journal.read_logs(0)] == [0, 1, 2]
    with (tmp_path / "journal.jsonl").open("r+b") as stream:
        stream.write(b"#" * 20)
    journal.append_logs([{"number": 3}])
    assert list(journal.read_logs(3)) == [{"number": 3}]
    with pytest.raises(InputError, match="corrupt"):
        list(journal.read_logs(0))


def test_a_reader_may_stop_and_continue(tmp_path):
    """Optuna stops at the first entry that it rejects, and asks again from the next one."""
    journal = SweepJournal(tmp_path)
    journal.append_logs([{"number": number, "text": "x" * 9_000} for number in range(300)])
    reading = journal.read_logs(0)
    assert [next(reading)["number"] for _ in range(200)] == list(range(200))
    journal.append_logs([{"number": 300}])
    assert [entry["number"] for entry in journal.read_logs(200)] == list(range(200, 301))
    assert [entry["number"] for entry in SweepJournal(tmp_path).read_logs(299)] == [299, 300]


def test_a_journal_of_an_earlier_version_is_continued(tmp_path):
    """Its last writer was killed: half a line remains, and the lock, which was a link."""
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "journal.jsonl")))
    study = optuna.create_study(study_name="old", storage=storage, direction="maximize")
    TrialQueue(study, storage).enqueue(TRIALS)
    with (tmp_path / "journal.jsonl").open("ab") as stream:
        stream.write(b'{"op_code": 4, "stu')
    (tmp_path / "journal.jsonl.lock").symlink_to(tmp_path / "journal.jsonl")
    queue = open_queue(tmp_path)
    assert queue.study.study_name == "old"
    assert claim(queue).name == "one"
    assert statuses(open_queue(tmp_path)) == [("one", "running"), ("two", "waiting")]


def test_a_partial_line_is_removed(tmp_path):
    """A full disk leaves one; the next writer continues after the last complete line."""
    queue = open_queue(tmp_path)
    queue.enqueue(TRIALS)
    journal = tmp_path / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"op_code": 4, "study' + b"x" * 10_000)
    again = open_queue(tmp_path)
    assert statuses(again) == [("one", "waiting"), ("two", "waiting")]
    claim(again)
    assert journal.read_bytes().startswith(whole + b'{"op_code":')
    assert statuses(queue) == [("one", "running"), ("two", "waiting")]


def test_a_full_disk_leaves_the_journal_intact(tmp_path, monkeypatch):
    queue = open_queue(tmp_path)
    queue.enqueue(TRIALS)
    whole = (tmp_path / "journal.jsonl").read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        claim(queue)
    assert (tmp_path / "journal.jsonl").read_bytes() == whole
    monkeypatch.undo()
    assert claim(queue).name == "one"


def test_the_error_for_a_corrupt_journal_says_what_to_do(tmp_path):
    (tmp_path / "journal.jsonl").write_text("{cut\n{cut\n")
    with pytest.raises(InputError, match="remove it and start again"):
        open_queue(tmp_path)


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
        "x" * 2**21,
    ],
)
def test_the_error_for_garbage_in_a_journal_says_what_to_do(tmp_path, line):
    open_queue(tmp_path).enqueue(TRIALS)
    with (tmp_path / "journal.jsonl").open("a") as journal:
        journal.write(f"{line}\n{{}}\n")
    with pytest.raises(InputError, match="remove it and start again"):
        open_queue(tmp_path)


def planted(kind, file, outside):
    if kind == "link":
        file.symlink_to(outside)
    elif kind == "second name":
        os.link(outside, file)
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        with file.open("wb") as stream:
            stream.truncate(2**41 if kind == "2 TB" else 2**28)


@pytest.mark.parametrize("kind", ["link", "second name", "pipe", "folder", "2 TB", "no line"])
@pytest.mark.usefixtures("little_memory")
def test_another_kind_of_file_in_its_place_is_rejected(tmp_path, kind):
    outside = tmp_path / "outside"
    outside.write_text("precious")
    (tmp_path / "sweep").mkdir()
    planted(kind, tmp_path / "sweep" / "journal.jsonl", outside)
    with pytest.raises(InputError, match=r"journal\.jsonl is (not an ordinary file|corrupt)"):
        open_queue(tmp_path / "sweep")
    assert outside.read_text() == "precious"


def test_a_link_that_appears_later_is_not_written_through(tmp_path):
    (tmp_path / "sweep").mkdir()
    queue = open_queue(tmp_path / "sweep")
    queue.enqueue(TRIALS)
    (tmp_path / "sweep" / "journal.jsonl").rename(tmp_path / "outside")
    (tmp_path / "sweep" / "journal.jsonl").symlink_to(tmp_path / "outside")
    before = (tmp_path / "outside").read_bytes()
    with pytest.raises(InputError, match="not an ordinary file"):
        queue.study.set_user_attr("key", "value")
    assert (tmp_path / "outside").read_bytes() == before


def test_a_journal_that_is_removed_while_it_is_in_use_is_noticed(tmp_path):
    queue = open_queue(tmp_path)
    queue.enqueue(TRIALS)
    (tmp_path / "journal.jsonl").unlink()
    with pytest.raises(InputError, match="removed or replaced"):
        queue.attempts()
    with pytest.raises(InputError, match="removed or replaced"):
        queue.study.set_user_attr("key", "value")


def test_a_moved_folder_is_noticed_and_not_made_again(tmp_path):
    folder = tmp_path / "sweep"
    folder.mkdir()
    queue = open_queue(folder)
    queue.enqueue(TRIALS)
    folder.rename(tmp_path / "moved")
    for use in (queue.attempts, lambda: queue.enqueue({"three": {}})):
        with pytest.raises(InputError, match="if it was moved"):
            use()
    assert not folder.exists()
