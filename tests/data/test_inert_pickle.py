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
    assert load_inert(tmp_path / "p") == {"a": "abc"}


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


def nested(kind: type, levels: int) -> object:
    """A value that holds itself twice on every level: a few bytes pickled, 2 ** levels items written out."""
    value: object = kind()
    for _ in range(levels):
        value = kind((value, value))
    return value


def test_values_that_multiply_do_not(tmp_path: Path, little_memory: None) -> None:  # noqa: ARG001
    (tmp_path / "p").write_bytes(pickle.dumps({"data": nested(list, 200)}, 2))
    assert isinstance(load_inert(tmp_path / "p"), dict)
    # A dict with such a key cannot be made to be pickled: to hash it would take for ever.
    key = pickle.dumps(nested(tuple, 200), 2)[:-1]
    dicts = [key[:2] + b"}" + key[2:] + b"K\x01s.", key[:2] + b"(" + key[2:] + b"K\x01d."]
    for content in (*dicts, pickle.dumps({"a": _Array(nested(tuple, 200))}, 2), pickle.dumps({"a", "b"}, 4)):
        (tmp_path / "p").write_bytes(content)
        with pytest.raises(InputError, match="p cannot be read") as caught:
            load_inert(tmp_path / "p")
        assert not isinstance(caught.value.__context__, MemoryError)


class _Array:
    """Pickles as an array whose type is `kind`."""

    def __init__(self, kind: object) -> None:
        self._kind = kind

    def __reduce__(self) -> tuple[object, ...]:
        build = np.zeros(1).__reduce__()[0]
        return build, (np.ndarray, (0,), b"b"), (1, (1,), _Kind(self._kind), False, b"x")


class _Kind:
    def __init__(self, kind: object) -> None:
        self._kind = kind

    def __reduce__(self) -> tuple[object, ...]:
        return np.dtype, (self._kind,)


@pytest.mark.parametrize("labels", [[2**70], [-(2**40)], [True, "x"]])
def test_labels_that_are_no_small_numbers(tmp_path: Path, labels: list[object]) -> None:
    batch = {"data": np.zeros((len(labels), 3072), np.uint8), "labels": labels}
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(batch, 2))
    with pytest.raises(InputError, match="no images and labels that match"):
        read_batch(tmp_path / "data_batch_1")


def test_an_array_of_more_axes_than_numpy_has() -> None:
    assert PickledArray((1,) * 100, "u1", False, b"x").as_uint8() is None
