"""Pickles are read without running what they name."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from deeplda.data import inert_pickle
from deeplda.data.cifar10 import read_batch
from deeplda.data.inert_pickle import PickledArray, load_inert
from deeplda.errors import InputError


class Evil:
    """When unpickled by pickle itself, makes the folder it was given."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("protocol", range(6))
def test_named_code_is_refused_and_does_not_run(tmp_path: Path, protocol: int) -> None:
    mark, path = tmp_path / "ran", tmp_path / "data_batch_1"
    evil = pickle.dumps({"data": Evil(mark), "labels": [1]}, protocol=protocol)
    path.write_bytes(evil)
    with pytest.raises(InputError, match=r"data_batch_1 names (posix|nt)\.mkdir"):
        read_batch(path)
    assert not mark.exists()
    pickle.loads(evil)
    assert mark.exists(), "the pickle would have run code"


@pytest.mark.parametrize(
    "content",
    [
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"c__builtin__\ngetattr\n.",
        b"\x80\x04\x8c\x05numpy\x8c\x04load\x93.",
        b"cnumpy\ndtype.__class__\n.",
        b"cnumpy.core.multiarray\nscalar\n.",
        b"(S'x'\nios\nsystem\n.",
    ],
)
def test_other_names_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(InputError, match="could run code"):
        load_inert(tmp_path / "p")


def test_allowed_names_stay_inert(tmp_path: Path) -> None:
    """Calling an allowed name, even with odd arguments, only takes a note."""
    (tmp_path / "p").write_bytes(b"}(U\x01ac_codecs\nencode\n(U\x03abcU\x04evilU\x01xtRu.".replace(b"}", b"\x80\x02}"))
    assert load_inert(tmp_path / "p") == {"a": "b'abc'"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [0, 1]}, protocol=2)[:-40],
        b"\x80\x02r\xff\xff\xff\x7f.",
        b"\x80\x02]r\xff\xff\xff\x7f.",
        b"\x80\x02cnumpy\ndtype\n)\x81.",
        b"\x80\x02P1\n.",
    ],
)
def test_broken_pickles_are_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(InputError, match="p cannot be read"):
        load_inert(tmp_path / "p")


@pytest.mark.parametrize(
    "value",
    [
        [1, 2],
        {"labels": [1]},
        {"data": np.zeros((1, 3072), np.uint8)},
        {"data": np.zeros((2, 3072), np.uint8), "labels": [1]},
        {"data": np.zeros((1, 3071), np.uint8), "labels": [1]},
        {"data": np.zeros((1, 3072), np.float32), "labels": [1]},
        {"data": np.zeros((1, 3072), np.uint8), "labels": ["cat"]},
        {"data": np.zeros((0, 3072), np.uint8), "labels": []},
        {"data": "x", "labels": [1]},
    ],
)
def test_pickles_that_are_no_batch(tmp_path: Path, value: object) -> None:
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps(value, protocol=3))
    with pytest.raises(InputError, match="data_batch_1"):
        read_batch(path)


def test_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inert_pickle, "_LARGEST", 10)
    (tmp_path / "p").write_bytes(pickle.dumps(list(range(100))))
    with pytest.raises(InputError, match="at most 10"):
        load_inert(tmp_path / "p")


def test_an_array_must_have_the_size_its_shape_says() -> None:
    assert PickledArray((2, 2), "u1", False, bytes(4)).as_uint8() is not None
    assert PickledArray((2**40, 2**40), "u1", False, bytes(4)).as_uint8() is None
    assert PickledArray((2, 2), "O", False, bytes(4)).as_uint8() is None
    assert PickledArray((-2, -2), "u1", False, bytes(4)).as_uint8() is None
