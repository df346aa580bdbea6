"""Only regular, small files are read, without blocking or filling the memory; writers take turns, readers see all."""

import errno
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch  # noqa: F401  # before memory is limited: its libraries need more
from safetensors.numpy import save_file

import deeplda
from deeplda import load
from deeplda.errors import InputError
from deeplda.io import (
    expanded,
    new_folder,
    read_arrays,
    read_folder,
    read_small,
    read_tensors,
    read_toml,
    write_text,
)
from small_model import small_model


def not_small_files(folder):
    """Paths that are not small files: nothing, a folder, a pipe, an endless device, and a sparse file of 2 TB."""
    os.mkfifo(folder / "pipe")
    (folder / "device").symlink_to("/dev/zero")
    with (folder / "sparse").open("wb") as stream:
        stream.truncate(2**41)
    return [folder / name for name in ("missing", ".", "pipe", "device", "sparse")]


@pytest.mark.usefixtures("little_memory")
def test_anything_but_a_small_file_is_rejected_at_once(tmp_path):
    for path in not_small_files(tmp_path):
        with pytest.raises(OSError, match=r"."):
            read_small(path)
        for read in (read_toml, read_tensors, read_arrays):
            with pytest.raises(InputError, match=r"cannot be read|does not fit in memory"):
                read(path)


def test_a_small_file_is_read_completely(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    assert read_small(tmp_path / "x") == b"abc"
    with pytest.raises(OSError, match="too large"):
        read_small(tmp_path / "x", most=2)


@pytest.mark.parametrize(
    "text",
    [
        b"a = " + b"[" * 10_000 + b"]" * 10_000,
        b"a = " + b"9" * 10_000,
        b"a = \xff",
        b"a = 1\na = 2",
        b"= 1",
        b"\0",
    ],
    ids=["deep", "huge", "not UTF-8", "twice", "no name", "null"],
)
def test_toml_that_is_none_is_one_sentence(tmp_path, text):
    (tmp_path / "x.toml").write_bytes(text)
    with pytest.raises(InputError, match="cannot be read as TOML"):
        read_toml(tmp_path / "x.toml")


def tensors(folder, header, rest=b"", size=None):
    written = header if isinstance(header, bytes) else json.dumps(header).encode()
    file = folder / "x.safetensors"
    file.write_bytes((len(written) if size is None else size).to_bytes(8, "little") + written + rest)
    return file


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    ("header", "size"),
    [
        ({"a": {"dtype": "F32", "shape": [2**20, 2**20], "data_offsets": [0, 2**42]}}, None),
        ({"a": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 8]}}, None),
        ({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]}}, None),
        ({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 8]}}, None),
        ({"a": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}, None),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}, None),
        ({}, 2**63),
        ({}, 2**30),
        (b"\xff" * 20, None),
        (b"[" * 100_000, None),
    ],
    ids=["larger", "overflow", "shorter", "negative", "kind", "backwards", "endless", "long", "not UTF-8", "deep"],
)
def test_a_header_that_lies(tmp_path, header, size):
    file = tensors(tmp_path, header, b"\0" * 8, size)
    for read in (read_tensors, read_arrays):
        with pytest.raises(InputError, match=r"x\.safetensors cannot be read") as caught:
            read(file)
        assert not isinstance(caught.value.__context__, MemoryError)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("read", [read_tensors, read_arrays])
def test_a_sparse_file_that_declares_more_than_the_memory(tmp_path, read):
    file = tensors(tmp_path, {"a": {"dtype": "F32", "shape": [2**38], "data_offsets": [0, 2**40]}})
    os.truncate(file, file.stat().st_size + 2**40)
    with pytest.raises(InputError, match=r"x\.safetensors does not fit in memory"):
        read(file)


class PanicException(BaseException):  # its name in pyo3
    """What safetensors raises if it cannot allocate its memory."""


def test_a_panic_is_an_error_and_ctrl_c_is_not(tmp_path, monkeypatch):
    save_file({"a": np.ones(3)}, tmp_path / "x.safetensors")
    for raised, expected in ((PanicException("null"), InputError), (KeyboardInterrupt(), KeyboardInterrupt)):

        def fail(_file, error=raised):
            raise error

        monkeypatch.setattr("safetensors.numpy.load_file", fail)
        with pytest.raises(expected):
            read_arrays(tmp_path / "x.safetensors")


def test_kinds_of_numbers_that_numpy_does_not_have(tmp_path):
    file = tensors(tmp_path, {"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}, b"\0" * 8)
    assert read_tensors(file)["a"].shape == (4,)
    with pytest.raises(InputError, match="cannot be read"):
        read_arrays(file)
    save_file({"a": np.ones(3)}, file)
    np.testing.assert_array_equal(read_arrays(file)["a"], np.ones(3))


def test_a_path_too_long_for_any_file_system_is_rejected():
    with pytest.raises(InputError, match="is too long for the file system"):
        expanded(300 * "é")


SAVE_AGAIN_AND_AGAIN = """if True:
    import sys, time
    from pathlib import Path
    import torch
    from small_model import small_model
    from deeplda.io import new_folder

    mark, folder, stop = float(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    model = small_model()
    # The same number in both files, so that a mixture of two models shows.
    model.card = model.card.model_copy(update={"lam": mark})
    model.normalisation.mean.fill_(mark)
    count = 0
    while not stop.exists():
        with new_folder(folder) as temporary:
            model._write(temporary)
        count += 1
    print(count)
"""


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


def test_a_folder_that_keeps_changing_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("deeplda.io._PATIENCE_SECONDS", 0.05)
    versions = itertools.count()

    def read():
        (tmp_path / str(next(versions))).mkdir()

    with pytest.raises(InputError, match="keeps changing"):
        read_folder(tmp_path, read)


def test_a_missing_folder_is_reported_at_once_unless_it_is_being_replaced(tmp_path):
    folder, calls = tmp_path / "folder", []

    def read():
        calls.append(None)
        if not folder.exists():
            if len(calls) == 3:
                folder.mkdir()
            raise InputError("there is no folder")
        return "found"

    with pytest.raises(InputError, match="there is no folder"):
        read_folder(folder, read)
    assert len(calls) == 1
    (tmp_path / ".folder.lock").touch()
    assert read_folder(folder, read) == "found"


def test_without_fcntl_files_and_folders_are_written_without_locks(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    write_text(tmp_path / "file", "text")
    small_model().save(tmp_path / "model")
    assert load(tmp_path / "model").class_names == tuple("abcdefghij")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "model"]


def test_a_file_system_without_locks_is_written_all_the_same(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    write_text(tmp_path / "file", "text")
    with new_folder(tmp_path / "folder") as temporary:
        (temporary / "file").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
