"""Only regular, small files are read, without blocking or filling the memory."""

import json
import os

import numpy as np
import pytest
import torch  # noqa: F401  # before memory is limited: its libraries need more
from safetensors.numpy import save_file

from deeplda.errors import InputError
from deeplda.io import expanded, read_arrays, read_small, read_tensors, read_toml


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
        b"a." * 60_000 + b"a = 1",
        b"[" + b"'a' . " * 60_000 + b"a]",
        b"#" * 2_000_000,
    ],
    ids=["deep", "huge", "not UTF-8", "twice", "no name", "null", "dotted", "dotted table", "long"],
)
@pytest.mark.usefixtures("little_memory")
def test_toml_that_is_none_is_one_sentence(tmp_path, text):
    (tmp_path / "x.toml").write_bytes(text)
    with pytest.raises(InputError, match="cannot be read as TOML"):
        read_toml(tmp_path / "x.toml")


def test_long_lists_and_short_keys_are_no_attack(tmp_path):
    alphas = [number / 1000 for number in range(1000)]
    (tmp_path / "x.toml").write_text(f"alphas = {alphas}\na.b.c = 1\npath = '/a.b/c.d/e.f'\n")
    assert read_toml(tmp_path / "x.toml")["alphas"] == alphas


def test_a_path_that_is_not_utf_8_is_named(tmp_path):
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    save_file({"a": np.ones(3)}, tmp_path / "x.safetensors")
    (tmp_path / "x.safetensors").rename(folder / "x.safetensors")
    with pytest.raises(InputError, match="not valid UTF-8"):
        read_tensors(folder / "x.safetensors")


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
