"""Arrays in .npz files."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from deeplda.data import check_data, load_data, npz
from deeplda.data.mapped_rows import MappedRows
from deeplda.data.npz import read_npz, read_npz_samples
from deeplda.data.sources import load_labelled, outline_images
from deeplda.errors import InputError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (20, 3, 5, 4), dtype=np.uint8)
LABELS = np.arange(20) % 2


def write(path: Path, **arrays: object) -> Path:
    np.savez_compressed(path, **{"x_train": IMAGES, "y_train": LABELS, **arrays})  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (IMAGES, IMAGES),
        (IMAGES.transpose(0, 2, 3, 1), IMAGES),
        (IMAGES[:, :1].transpose(0, 2, 3, 1), IMAGES[:, :1]),
        (IMAGES[:, 0], IMAGES[:, :1]),
        (IMAGES.transpose(0, 2, 1, 3), IMAGES.transpose(0, 2, 1, 3)),
        (IMAGES[:, :, :, :3], IMAGES[:, :, :, :3]),
    ],
    ids=["channels first", "channels last", "one channel last", "no channel", "five channels first", "first wins"],
)
def test_images(tmp_path: Path, stored: NDArray[np.uint8], expected: NDArray[np.uint8]) -> None:
    source = read_npz(write(tmp_path / "a.npz", x_train=stored))
    np.testing.assert_array_equal(source.train.inputs, expected)
    assert source.train.inputs.flags.c_contiguous
    assert source.train.inputs.flags.writeable


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float64", "float16", "bool", ">f4"])
def test_rows_become_float32(tmp_path: Path, dtype: str) -> None:
    rows = RNG.integers(0, 2, (20, 7)).astype(dtype)
    data = load_data(write(tmp_path / "a.npz", x_train=rows))
    assert data.train.inputs.dtype == np.float32
    assert data.train.inputs.dtype.isnative
    assert data.sample_shape == (7,)
    np.testing.assert_array_equal(read_npz(tmp_path / "a.npz").train.inputs, rows.astype(np.float32))


def test_only_the_checked_member_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x_train", b"of any size")
    np.testing.assert_array_equal(read_npz(path).train.inputs, IMAGES)


def test_all_parts(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", x_val=IMAGES[:4], y_val=LABELS[:4], x_test=IMAGES[4:], y_test=LABELS[4:])
    data = load_data(path)
    assert [len(part) for part in (data.train, data.val, data.test)] == [20, 4, 16]
    np.testing.assert_array_equal(data.test.inputs, IMAGES[4:])
    assert [row.found for row in check_data(path)][1] == "val: 4 samples of 3 x 5 x 4"


def test_labels_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    sparse = read_npz(write(path, y_train=np.where(LABELS, 10**12, 5)))
    assert sparse.class_names == ("5", str(10**12))
    np.testing.assert_array_equal(sparse.train.labels, LABELS)
    text = read_npz(write(path, y_train=np.where(LABELS, "dog", "cat")))
    assert text.class_names == ("cat", "dog")
    np.testing.assert_array_equal(text.train.labels, LABELS)
    named = read_npz(write(path, class_names=np.array(["x", "y", "z"])))
    assert named.class_names == ("x", "y", "z")
    np.testing.assert_array_equal(named.train.labels, LABELS)
    ordered = read_npz(write(path, y_train=np.where(LABELS, "dog", "cat"), class_names=np.array(["dog", "cat"])))
    np.testing.assert_array_equal(ordered.train.labels, 1 - LABELS)
    assert ordered.train.labels.dtype == np.int64


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x_train": IMAGES.astype(np.float32)}, "x_train has dtype float32, need uint8"),
        ({"x_train": np.full((20, 2), np.nan)}, "not finite"),
        ({"x_train": np.full((20, 2), 1e300)}, "not finite"),
        ({"x_train": np.full((20, 2), "a")}, "need numbers"),
        ({"x_train": np.zeros((20, 2, 2, 2, 2), np.uint8)}, "has shape"),
        ({"x_train": np.zeros(20)}, "has shape"),
        ({"x_train": IMAGES[:19]}, "19 samples and y_train has 20 labels"),
        ({"x_train": IMAGES[:0], "y_train": LABELS[:0]}, "at least one"),
        ({"y_train": LABELS[:, None]}, r"shape \(20, 1\)"),
        ({"y_train": LABELS / 2}, "float64"),
        ({"y_train": LABELS - 1}, "the label -1"),
        ({"x_test": IMAGES}, "only one of x_test and y_test"),
        ({"y_val": LABELS}, "only one of x_val and y_val"),
        ({"x_test": IMAGES[:, :, :4], "y_test": LABELS}, r"x_test has samples of shape \(3, 4, 4\)"),
        ({"x_test": IMAGES, "y_test": LABELS + 1}, "y_test has the label 2"),
        ({"x_test": IMAGES, "y_test": LABELS.astype(str)}, "y_test contains strings"),
        ({"class_names": np.array(["a"])}, "the label 1.*class_names"),
        ({"class_names": np.array(["a", "a"])}, "distinct names"),
        ({"class_names": np.array([1, 2])}, "distinct names"),
        ({"y_train": np.array([{}] * 20, dtype=object)}, "Python objects"),
        ({"y_train": np.array(["a", "b"] * 10, dtype=object)}, r"write .* y_train=np.asarray\(...\).astype\(str\)"),
    ],
)
def test_unusable_arrays_are_named(tmp_path: Path, arrays: dict[str, object], says: str) -> None:
    path = write(tmp_path / "a.npz", **arrays)
    with pytest.raises(InputError, match=says):
        load_data(path)
    assert [row.ok for row in check_data(path)] == [False]


def test_missing_arrays_and_size_for_rows(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=IMAGES)
    with pytest.raises(InputError, match="has no x_train"):
        load_data(tmp_path / "a.npz")
    with pytest.raises(InputError, match="leave out --image-size"):
        load_data(write(tmp_path / "b.npz", x_train=np.zeros((20, 2))), image_size=8)


def test_broken_archives(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    intact = write(path).read_bytes()
    flipped = bytearray(intact)
    flipped[200] ^= 0xFF
    for content in (b"", b"text", intact[: len(intact) // 2], bytes(flipped)):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"a\.npz"):
            load_data(path)


def npy_header(shape: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"shape": shape, "fortran_order": False, "descr": "|u1"})
    return buffer.getvalue()


@pytest.mark.parametrize("shape", [(10**6, 3, 10**4, 10**4), (-1, 4), (2, 2)])
def test_a_header_that_declares_more_or_less_than_the_file_has(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = write(tmp_path / "a.npz")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x_train.npy", npy_header(shape) + b"12345")
        archive.writestr("y_train.npy", npy_header((1,)) + b"1")
    with pytest.raises(InputError, match="x_train is declared as uint8"):
        load_data(path)


def test_a_bomb_is_rejected_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.npz", x_train=np.zeros((20, 1, 1000, 1000), np.uint8))
    monkeypatch.setattr("deeplda.memory.available_memory", lambda: 10_000_000)
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("unpacked"))
    assert path.stat().st_size < 100_000
    with pytest.raises(InputError, match="GiB is available"):
        load_data(path)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("kind", ["<U0", "|V0", "|S0"])
def test_any_number_of_items_of_no_size(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.npz"
    header = npy_header((10**12,)).replace(b"|u1", kind.encode())
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x_train.npy", npy_header((1, 2)) + b"12")
        archive.writestr("y_train.npy", header)
    with pytest.raises(InputError, match="y_train contains items of size zero"):
        load_data(path)


@pytest.mark.parametrize("code", [0x110000, 2**32 - 1, 0xD800])
def test_text_with_invalid_code_points(tmp_path: Path, code: int) -> None:
    text = np.array([code, 98, 97, 98], dtype=np.uint32).view("<U1")
    path = write(tmp_path / "a.npz", x_train=np.eye(4), y_train=text)
    with pytest.raises(InputError, match="y_train contains code points that are not characters"):
        load_data(path)


def test_strings_that_are_too_long_for_names_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fits = write(tmp_path / "a.npz", y_train=np.array(["a" * 1000, "b"] * 10))
    assert load_data(fits).class_names == ("a" * 1000, "b")
    path = write(tmp_path / "b.npz", y_train=np.array(["a" * 1001, "b"] * 10))
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("unpacked"))
    with pytest.raises(InputError, match="y_train has strings of 1,001 characters, need at most 1,000"):
        load_data(path)


def test_strings_are_counted_with_the_copies_that_sorting_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = np.array(["a", "b"] * 10, dtype="U1000")
    path = write(tmp_path / "a.npz", x_train=np.eye(20), y_train=names)
    monkeypatch.setattr("deeplda.memory.available_memory", lambda: 3 * names.nbytes)
    with pytest.raises(InputError, match="is available"):
        load_data(path)
    monkeypatch.setattr("deeplda.memory.available_memory", lambda: 5 * names.nbytes)
    load_data(path)


@pytest.mark.parametrize("place", [0, 2**20 + 7, -1])
def test_an_invalid_code_point_is_found_in_every_block(tmp_path: Path, place: int) -> None:
    codes = np.full(1_200_000, 97, dtype=np.uint32)
    codes[place] = 0xD800
    path = write(tmp_path / "a.npz", y_train=codes.view("<U1000"))
    with pytest.raises(InputError, match="y_train contains code points that are not characters"):
        load_data(path)


def test_a_pipe_is_rejected_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(InputError, match="Not a regular file"):
        read_npz(tmp_path / "pipe.npz")


@pytest.mark.usefixtures("little_memory")
def test_a_header_that_unpacks_to_a_gigabyte_is_not_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x_train.npy", "w", force_zip64=True) as member:
            member.write(b"\x93NUMPY\x02\x00" + (2**30).to_bytes(4, "little"))
            for _ in range(64):
                member.write(b" " * 2**24)
        archive.writestr("y_train.npy", b"")
    with pytest.raises(InputError, match="cannot be read"):
        read_npz(tmp_path / "x.npz")


@pytest.mark.parametrize("own", [(), ("test",), ("val", "test")])
def test_outline_of_images(tmp_path: Path, own: tuple[str, ...]) -> None:
    arrays = {f"{kind}_{part}": array for part in own for kind, array in (("x", IMAGES), ("y", LABELS))}
    file = write(tmp_path / "a.npz", **arrays)
    found = outline_images(file)
    assert found is not None
    assert found.sizes.tolist() == [[5, 4]]
    assert (found.images, found.classes) == (len(load_data(file).train), 2)


def test_feature_vectors_and_known_sets_have_no_outline_of_images(tmp_path: Path) -> None:
    assert outline_images(write(tmp_path / "a.npz", x_train=IMAGES.reshape(20, -1))) is None
    assert outline_images("digits") is None


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz, "_MOST_IN_MEMORY", 0)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "bool", ">f4"])
@pytest.mark.parametrize("name", ["x_train", "features"])
@pytest.mark.usefixtures("everything_is_large")
def test_large_rows_stay_in_a_file(tmp_path, monkeypatch, save, dtype, name) -> None:
    monkeypatch.setattr(npz, "_BLOCK", 100)  # bytes, so that a compressed array takes several blocks
    rows, path = RNG.integers(0, 2, (20, 7)).astype(dtype), tmp_path / "a.npz"
    save(path, **{name: rows, "y_train": LABELS, "class_names": np.array(["a", "b"])})
    data, found = load_data(path), read_npz(path).train.inputs
    assert isinstance(found, MappedRows)
    assert all(isinstance(part.inputs, MappedRows) for part in (data.train, data.val, data.test))
    assert (found.dtype, found.shape) == (np.float32, (20, 7))
    np.testing.assert_array_equal(np.asarray(found), rows.astype(np.float32))
    np.testing.assert_array_equal(np.asarray(found[np.array([3, 1])]), rows[[3, 1]].astype(np.float32))
    np.testing.assert_array_equal(np.asarray(read_npz_samples(path)[name]), rows.astype(np.float32))
    monkeypatch.undo()
    assert isinstance(load_data(path).train.inputs, np.ndarray)
    assert load_data(path).fingerprint == data.fingerprint


@pytest.mark.usefixtures("everything_is_large")
def test_large_rows_in_another_order_and_images_are_read(tmp_path) -> None:
    rows = np.asfortranarray(RNG.normal(size=(20, 7)).astype(np.float32))
    path = write(tmp_path / "a.npz", x_train=rows)
    np.testing.assert_array_equal(read_npz(path).train.inputs, rows)
    assert isinstance(read_npz(write(path)).train.inputs, np.ndarray)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.usefixtures("everything_is_large")
def test_large_rows_that_are_not_finite_are_named(tmp_path, save) -> None:
    rows = np.zeros((20, 7))
    rows[19, 6] = 1e300
    save(tmp_path / "a.npz", x_train=rows, y_train=LABELS)
    with pytest.raises(InputError, match=r"a\.npz: x_train has values that are not finite in float32"):
        load_data(tmp_path / "a.npz").fingerprint  # noqa: B018  # a property that reads the rows
    assert [row.ok for row in check_data(tmp_path / "a.npz")] == [False]


@pytest.mark.usefixtures("everything_is_large")
def test_large_rows_must_be_where_the_archive_says(tmp_path) -> None:
    np.savez(tmp_path / "a.npz", x_train=np.zeros((20, 7)), y_train=LABELS)
    content = (tmp_path / "a.npz").read_bytes()
    for broken in (content.replace(b"PK\3\4", b"PK\3\5", 1), content[: len(content) // 2]):
        (tmp_path / "a.npz").write_bytes(broken)
        with pytest.raises(InputError, match="cannot be read"):
            load_data(tmp_path / "a.npz")


@pytest.mark.usefixtures("everything_is_large")
def test_parts_in_different_arrays_are_evaluated_together(tmp_path) -> None:
    rows = RNG.normal(size=(20, 7)).astype(np.float32)
    np.savez(tmp_path / "a.npz", x_train=rows[:15], y_train=LABELS[:15], x_val=rows[15:], y_val=LABELS[15:])
    found = load_labelled(tmp_path / "a.npz", class_names=("0", "1"), sample_shape=(7,))
    np.testing.assert_array_equal(found.part.inputs, rows)
