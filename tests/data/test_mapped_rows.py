"""Selections of a memory-mapped array behave like the arrays of their samples, and are read only when they must be."""

import errno
import os

import numpy as np
import pytest

from deeplda.data.dataset import Part, joined
from deeplda.data.mapped_rows import MappedRows, is_mapped, mapped_array
from deeplda.errors import InputError


@pytest.fixture
def array(tmp_path):
    np.random.default_rng(0).integers(0, 256, (20, 3, 4, 4), dtype=np.uint8).tofile(tmp_path / "x")
    return np.memmap(tmp_path / "x", dtype=np.uint8, mode="r", shape=(20, 3, 4, 4))


def test_a_selection_is_like_an_array(array):
    places = np.array([7, 3, 3, 19, 0])
    rows, copy = MappedRows(array, places), np.array(array)[places]
    assert (len(rows), rows.shape, rows.ndim, rows.dtype) == (5, copy.shape, copy.ndim, copy.dtype)
    for key in (slice(None), slice(1, 4), slice(1, None, 2), np.array([4, 0]), np.array([], dtype=int), 2, -1):
        np.testing.assert_array_equal(np.asarray(rows[key]), copy[key])
    np.testing.assert_array_equal(rows.take(np.array([1, 4]))[1:], copy[[4]])
    assert np.asarray(rows, dtype=np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="without a copy"):
        rows.__array__(copy=False)


def test_slices_and_parts_read_nothing_and_indices_read_a_copy(array):
    rows = MappedRows(array)
    part = Part(rows, np.arange(20), tuple(map(str, range(20))))
    unread = [rows[2:9], rows.take(np.arange(3)), part.take(np.array([5, 1])).inputs, joined(part, part).inputs]
    assert all(isinstance(selected, MappedRows) for selected in unread)
    assert isinstance(rows[np.arange(3)], np.ndarray)
    assert not np.shares_memory(rows[np.arange(3)], array)
    assert not np.shares_memory(rows[3], array)


def test_joined_parts_keep_order_and_names(array):
    part = Part(MappedRows(array), np.arange(20), tuple(map(str, range(20))), np.arange(20).astype("S32"))
    both = joined(part.take(np.array([3, 1])), part.take(np.array([9])))
    np.testing.assert_array_equal(np.asarray(both.inputs), array[[3, 1, 9]])
    assert (both.labels.tolist(), both.files, both.digests.tolist()) == ([3, 1, 9], ("3", "1", "9"), [b"3", b"1", b"9"])
    other = joined(part.take(np.array([2])), Part(MappedRows(np.array(array)), np.arange(20)))
    assert isinstance(other.inputs, np.ndarray)
    np.testing.assert_array_equal(other.inputs, np.concatenate([array[[2]], array]))


def test_views_of_a_file_are_mapped_and_copies_are_not(array):
    assert is_mapped(array)
    assert is_mapped(np.asarray(array)[3:, ::2])
    assert not is_mapped(np.array(array))
    assert not is_mapped(np.asarray(array)[[1, 2]])


def test_a_temporary_file_holds_an_array_and_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    array = mapped_array((100, 7), np.float32, "the table")
    assert is_mapped(array)
    assert not array.any()
    array[3] = 5
    assert MappedRows(array)[np.array([3, 4])].tolist() == [[5] * 7, [0] * 7]
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_an_error_before_anything_is_written(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(InputError, match=r"the table takes 0.0 GiB, .* has no space .*TMPDIR"):
        mapped_array((100, 7), np.float32, "the table")
