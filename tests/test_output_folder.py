"""Everything is written inside the folder that was opened, whole or not at all; links and foreign files are refused."""

import errno
import os
import stat
import subprocess
import sys
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path

import pytest

import deeplda
from deeplda import load, output_folder
from deeplda.errors import InputError
from deeplda.output_folder import InUseError, OutputFolder, is_locked, unchanged, write_file
from small_model import small_model


@pytest.fixture(params=[True, False], ids=["descriptors", "paths"])
def folder(request, tmp_path, monkeypatch):
    """An open folder beside a file of somebody else's, through descriptors and, as on Windows, through paths."""
    monkeypatch.setattr(output_folder, "_HAS_DESCRIPTORS", request.param)
    (tmp_path / "outside").write_text("precious")
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "letter").write_text("precious")
    with OutputFolder.open(tmp_path / "inside") as opened:
        yield opened


@pytest.fixture(autouse=True)
def outside_is_untouched(tmp_path):
    yield
    for file in (tmp_path / "outside", tmp_path / "documents" / "letter"):
        if (tmp_path / "outside").exists():
            assert file.read_text() == "precious"


def visible(folder):
    return sorted(path.name for path in folder.path.iterdir())


def test_a_file_is_written_and_replaced(folder):
    for content in ("first", b"second"):
        folder.write("file", content)
    assert (folder.path / "file").read_bytes() == b"second"
    assert visible(folder) == ["file"]


def test_files_and_folders_get_the_permissions_of_the_umask(folder):
    before = os.umask(0o027)
    try:
        folder.write("file", b"")
        folder.append_lines("lines", b"a\n")
        folder.subfolder("sub").close()
        with folder.new_folder("new", ours=None) as new:
            new.write("file", b"")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.path.rglob("*")}
    assert modes == {"file": 0o640, "lines": 0o640, "sub": 0o750, "new": 0o750}


def test_a_link_is_replaced_and_its_target_is_not_touched(folder):
    (folder.path / "report").symlink_to(folder.path.parent / "outside")
    folder.write("report", "ours")
    assert not (folder.path / "report").is_symlink()
    assert (folder.path / "report").read_text() == "ours"


@pytest.mark.parametrize("planted", ["symbolic link", "dangling link", "hard link", "pipe", "folder"])
@pytest.mark.parametrize(
    "use",
    [lambda folder: folder.append_lines("file", b"line\n"), lambda folder: folder.locked("file").__enter__()],
    ids=["append", "lock"],
)
def test_only_ordinary_files_of_our_own_are_opened(folder, planted, use):
    file, outside = folder.path / "file", folder.path.parent / "outside"
    {
        "symbolic link": lambda: file.symlink_to(outside),
        "dangling link": lambda: file.symlink_to(folder.path.parent / "new"),
        "hard link": lambda: file.hardlink_to(outside),
        "pipe": lambda: os.mkfifo(file),
        "folder": file.mkdir,
    }[planted]()
    with pytest.raises(InputError, match="not an ordinary file"):
        use(folder)
    assert not (folder.path.parent / "new").exists()


@pytest.mark.parametrize("planted", ["pipe", "socket"])
def test_a_pipe_or_device_is_not_replaced(folder, planted):
    """`--output /dev/null` would otherwise destroy the device."""
    place = folder.path / "report.html"
    os.mknod(place, {"pipe": stat.S_IFIFO, "socket": stat.S_IFSOCK}[planted] | 0o600)
    before = place.lstat()
    with pytest.raises(InputError, match="not an ordinary file"):
        folder.write("report.html", "ours")
    assert place.lstat() == before


def test_a_link_that_the_user_names_is_neither_followed_nor_replaced(tmp_path):
    (tmp_path / "file").write_text("before")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(InputError, match="is a link"):
        write_file(tmp_path / "link", "after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "before"


@pytest.mark.parametrize("planted", ["link", "file"])
def test_a_subfolder_is_not_a_link(folder, planted):
    place = folder.path / "sub"
    if planted == "link":
        place.symlink_to(folder.path.parent / "documents")
    else:
        place.touch()
    for use in (lambda: folder.subfolder("sub"), lambda: folder.require_ours("sub", {"letter"})):
        with pytest.raises(InputError, match="is a link or a file"):
            use()
    with pytest.raises(InputError, match="is a link or a file"), folder.new_folder("sub", ours={"letter"}) as new:
        new.write("letter", "ours")


def test_a_folder_in_place_of_a_file_is_one_sentence(folder):
    (folder.path / "report.html").mkdir()
    (folder.path / "report.html" / "x").touch()
    with pytest.raises(InputError, match="is a folder"):
        folder.write("report.html", "ours")
    assert visible(folder) == ["report.html"]


def test_links_below_a_removed_folder_are_not_followed(folder):
    with folder.new_folder("model", ours=None) as new:
        new.write("weights", b"1")
    (folder.path / "model" / "notes").symlink_to(folder.path.parent / "documents")
    with folder.new_folder("model", ours={"weights", "notes"}) as new:
        new.write("weights", b"2")
    assert visible(folder) == ["model"]
    assert sorted(path.name for path in (folder.path / "model").iterdir()) == ["weights"]


def test_a_folder_with_foreign_files_is_not_replaced(folder):
    (folder.path / "model").mkdir()
    (folder.path / "model" / "net.py").write_text("code")
    message = r"contains 'net\.py', which deeplda did not write"
    with pytest.raises(InputError, match=message), folder.new_folder("model", ours={"weights"}) as new:
        new.write("weights", b"")
    assert (folder.path / "model" / "net.py").read_text() == "code"
    assert visible(folder) == ["model"]


def test_a_folder_with_the_name_of_our_file_is_foreign(folder):
    (folder.path / "model" / "weights").mkdir(parents=True)
    (folder.path / "model" / "weights" / "thesis").write_text("precious")
    with pytest.raises(InputError, match="did not write"), folder.new_folder("model", ours={"weights"}) as new:
        new.write("weights", b"")
    assert (folder.path / "model" / "weights" / "thesis").read_text() == "precious"


def test_a_new_folder_does_not_replace_one(folder):
    (folder.path / "model").mkdir()
    with pytest.raises(InputError, match="already exists"), folder.new_folder("model", ours=None):
        pass


def test_the_previous_folder_is_kept_under_its_name(folder):
    for content in (b"1", b"2", b"3"):
        with folder.new_folder("last", ours={"state"}, keep="previous") as new:
            new.write("state", content)
    assert (folder.path / "last" / "state").read_bytes() == b"3"
    assert (folder.path / "previous" / "state").read_bytes() == b"2"
    assert visible(folder) == ["last", "previous"]


def test_after_an_error_nothing_has_changed(folder):
    folder.write("file", b"before")
    with folder.new_folder("model", ours=None) as new:
        new.write("weights", b"before")
    with pytest.raises(TypeError), folder.new_folder("model", ours={"weights"}) as new:
        new.write("weights", 3)
    with pytest.raises(TypeError):
        folder.write("file", 3)
    assert (folder.path / "model" / "weights").read_bytes() == (folder.path / "file").read_bytes() == b"before"
    assert visible(folder) == ["file", "model"]


def test_what_a_killed_process_left_is_not_counted_and_is_cleaned(folder):
    for name in (".deeplda-0123456789abcdef.tmp", ".deeplda-0123456789abcdef.old"):
        (folder.path / name).mkdir()
        (folder.path / name / "link").symlink_to(folder.path.parent / "documents")
    (folder.path / ".deeplda.tmp").touch()
    assert folder.names() == {".deeplda.tmp"}
    folder.clean()
    assert visible(folder) == [".deeplda.tmp"]


ABANDONED = ".deeplda-00000000000000aa.tmp"


@pytest.mark.parametrize("use", ["write", "new_folder"])
def test_what_a_killed_process_left_is_removed_by_the_next_writer(tmp_path, use):
    """But not what another process is still writing, which is new or locked, and nothing with another name."""
    new, written = ".deeplda-00000000000000bb.tmp", ".deeplda-00000000000000cc.tmp"
    for name in (ABANDONED, "mine.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_text("half")
    for name in (new, written):
        (tmp_path / name).touch()
    for name in (ABANDONED, "mine.tmp", written):
        os.utime(tmp_path / name, (0, 0))
    with OutputFolder.open(tmp_path) as folder, folder.locked(written):
        if use == "write":
            folder.write("made", b"")
        else:
            with folder.new_folder("made", ours=None):
                pass
        assert visible(folder) == [new, written, "made", "mine.tmp"]


def test_temporary_files_and_folders_are_locked_while_they_are_written(tmp_path, monkeypatch):
    """Otherwise a slow writer would lose its file to the next one."""
    monkeypatch.setattr(output_folder, "_ABANDONED_SECONDS", -1.0)
    real = output_folder._write_all

    def write(stream, content):
        monkeypatch.setattr(output_folder, "_write_all", real)
        with OutputFolder.open(tmp_path) as other:
            other.write("second", b"2")
        real(stream, content)

    monkeypatch.setattr(output_folder, "_write_all", write)
    with OutputFolder.open(tmp_path) as folder:
        folder.write("first", b"1")
        with folder.new_folder("third", ours=None) as new:
            folder.write("second", b"2")
            new.write("state", b"3")
        assert visible(folder) == ["first", "second", "third"]
        assert (tmp_path / "third" / "state").read_bytes() == b"3"


def test_a_new_file_overwrites_nothing(folder, monkeypatch):
    (folder.path / "page.html").symlink_to(folder.path.parent / "nowhere")
    (folder.path / "page-2.html").write_text("mine")
    assert folder.write_new("page.html", "new") == "page-3.html"
    assert (folder.path / "page-3.html").read_text() == "new"

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(output_folder, "_write_all", full)
    with pytest.raises(OSError, match="No space"):
        folder.write_new("page.html", "new")
    assert visible(folder) == ["page-2.html", "page-3.html", "page.html"]


@pytest.mark.parametrize("planted", [Path.mkdir, os.mkfifo, Path.touch, lambda path: path.symlink_to(path.parent)])
def test_a_file_that_is_taken_from_another_folder_overwrites_nothing(folder, planted):
    place = folder.path / "file"
    planted(place)
    before = place.lstat()
    with folder.scratch() as scratch:
        with scratch.create("file") as stream:
            stream.write(b"new")
        with pytest.raises(FileExistsError), scratch.create("file"):
            pass
        kept = folder.take(scratch, "file")
    assert place.read_bytes() == b"new"
    assert os.path.samestat((folder.path / kept).lstat(), before)
    assert visible(folder) == ["file", kept]


def test_a_resumable_file_keeps_its_contents_and_is_removed_if_it_is_empty(folder):
    with suppress(KeyboardInterrupt), folder.resumable("part") as stream:
        stream.write(b"half")
        raise KeyboardInterrupt
    with folder.resumable("part") as stream:
        assert stream.read() == b"half"
        stream.seek(0)
        stream.truncate()
    assert visible(folder) == []
    with folder.resumable("part"):
        (folder.path / "part").unlink()
        (folder.path / "part").touch()
    assert visible(folder) == ["part"], "a file that somebody else has put there is not removed"


def test_half_a_line_is_removed_before_lines_are_appended(folder):
    (folder.path / "lines").write_bytes(b"one\n" + 10_000 * b"x")
    folder.append_lines("lines", b"two\n")
    assert (folder.path / "lines").read_bytes() == b"one\ntwo\n"


def test_a_failed_append_leaves_the_lines_before(folder, monkeypatch):
    folder.append_lines("lines", b"one\n")

    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        folder.append_lines("lines", b"two\n")
    assert (folder.path / "lines").read_bytes() == b"one\n"


def test_a_closed_folder_is_not_written_by_its_path(tmp_path):
    folder = OutputFolder.open(tmp_path / "inside")
    folder.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        folder.write("file", b"")


def test_a_moved_folder_is_noticed_and_still_written(tmp_path):
    with OutputFolder.open(tmp_path / "a") as folder:
        assert folder.is_still_at(tmp_path / "a")
        (tmp_path / "a").rename(tmp_path / "b")
        assert not folder.is_still_at(tmp_path / "a")
        (tmp_path / "a").mkdir()
        assert not folder.is_still_at(tmp_path / "a")
        folder.write("file", b"")
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["file"]


def test_a_lock_is_held_by_one_process_and_seen_by_others(tmp_path):
    with OutputFolder.open(tmp_path) as first, OutputFolder.open(tmp_path) as second:
        assert is_locked(tmp_path / ".lock") is None
        with first.locked(".lock"):
            assert is_locked(tmp_path / ".lock")
            with pytest.raises(InUseError, match="in use"), second.locked(".lock"):
                pass
        assert is_locked(tmp_path / ".lock") is False
        with second.locked(".lock", wait=True):
            pass


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_a_warning(tmp_path, monkeypatch, code):
    def flock(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", flock)
    with OutputFolder.open(tmp_path) as folder:
        with pytest.warns(UserWarning, match="cannot be locked"), folder.locked(".lock"):
            folder.write("file", b"")
        with pytest.warns(UserWarning, match="cannot be locked"), folder.new_folder("new", ours=None) as new:
            new.write("file", b"")
        with unchanged(tmp_path / "new"):
            assert (tmp_path / "new" / "file").exists()
    assert is_locked(tmp_path / ".lock") is None


def test_a_system_without_fcntl_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.warns(UserWarning, match="cannot be locked"):
        small_model().save(tmp_path / "model")
    assert load(tmp_path / "model").class_names == tuple("abcdefghij")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_file_system_that_cannot_flush_folders_is_a_warning(tmp_path, monkeypatch):
    flush = os.fsync

    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.warns(UserWarning, match="cannot flush folders"):
        write_file(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"


def test_a_failing_disk_is_not_taken_for_one_that_cannot_flush(tmp_path, monkeypatch):
    def fsync(_descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output"), warnings.catch_warnings():
        write_file(tmp_path / "file", b"content")
    assert list(tmp_path.iterdir()) == []


SAVE_AGAIN_AND_AGAIN = """if True:
    import sys, time
    from pathlib import Path
    from small_model import small_model
    from deeplda.model import MODEL_FILES
    from deeplda.output_folder import OutputFolder

    mark, folder, stop = float(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    model = small_model()
    # The same number in both files, so that a mixture of two models shows.
    model.card = model.card.model_copy(update={"lam": mark})
    model.normalisation.mean.fill_(mark)
    count = 0
    while not stop.exists():
        with OutputFolder.open(folder.parent) as parent, parent.new_folder(folder.name, ours=MODEL_FILES) as new:
            model._write(new)
        count += 1
    print(count)
"""


def test_a_folder_that_another_process_replaces_at_this_moment_is_no_obstacle(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    with OutputFolder.open(tmp_path) as parent:
        names = parent._all_names

        def listed_and_gone():
            found = names()
            (tmp_path / "model").rmdir()
            return found

        monkeypatch.setattr(parent, "_all_names", listed_and_gone)
        parent.require_ours("model", ("model.json",))


def test_processes_that_save_to_the_same_folder_take_turns_and_readers_see_one_model(tmp_path):
    folder, stop = tmp_path / "model", tmp_path / "stop"
    paths = [str(Path(__file__).parent), str(Path(deeplda.__file__).parents[1])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", SAVE_AGAIN_AND_AGAIN, mark, folder, stop],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for mark in ("1", "2")
    ]
    try:
        while not folder.exists():
            assert all(writer.poll() is None for writer in writers)
            time.sleep(0.01)
        seen = []
        deadline = time.monotonic() + 60
        while len(seen) < 100 or (len(set(seen)) < 2 and time.monotonic() < deadline):
            model = load(folder)
            assert model.normalisation.mean.item() == model.card.lam
            seen.append(model.card.lam)
    finally:
        stop.touch()
        ends = [writer.communicate(timeout=60) for writer in writers]
    assert set(seen) == {1, 2}
    for writer, (output, errors) in zip(writers, ends, strict=True):
        assert writer.returncode == 0, errors
        assert int(output) > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "stop"]


def test_a_reader_cannot_keep_a_writer_waiting_forever(tmp_path, monkeypatch):
    """Anybody who may read a folder can lock it."""
    monkeypatch.setattr(output_folder, "_WRITER_SECONDS", 0.05)
    with (
        unchanged(tmp_path / "model"),
        OutputFolder.open(tmp_path) as folder,
        pytest.warns(UserWarning, match="keeps .* locked"),
        folder.new_folder("model", ours=None) as new,
    ):
        new.write("file", b"")
    assert (tmp_path / "model" / "file").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b"])
def test_only_names_of_entries_are_written(folder, name):
    for use in (lambda: folder.write(name, b""), lambda: folder.new_folder(name, ours=None).__enter__()):
        with pytest.raises(InputError, match="choose another one"):
            use()


def test_only_one_of_several_processes_can_save_a_new_model(tmp_path):
    """Without the lock both would find no folder, and the second would replace the first."""
    model, outcomes = small_model(), []

    def save():
        try:
            model.save(tmp_path / "model")
            outcomes.append("saved")
        except InputError as error:
            outcomes.append(str(error))

    writers = [threading.Thread(target=save) for _ in range(5)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert outcomes.count("saved") == 1
    assert sum("already exists" in outcome for outcome in outcomes) == 4
