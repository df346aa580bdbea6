"""CIFAR-10, binary and Python layout."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from deeplda.data import check_data, load_data
from deeplda.data.cifar10 import CLASS_NAMES, read, read_batch
from deeplda.errors import InputError

STEMS = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


def batch(seed: int, n: int = 20) -> tuple[NDArray[np.uint8], list[int]]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8), [int(i % 10) for i in rng.permutation(n)]


def write_binary(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for seed, stem in enumerate(STEMS):
        images, labels = batch(seed)
        records = [bytes([label]) + image.tobytes() for label, image in zip(labels, images, strict=True)]
        (folder / f"{stem}.bin").write_bytes(b"".join(records))
    return folder


def python2_batch(images: NDArray[np.uint8], labels: list[int]) -> bytes:
    """Byte for byte what Python 2 and its numpy write with protocol 2: strings as BINSTRING, no unicode."""

    def text(value: bytes) -> bytes:
        return (
            b"U" + bytes([len(value)]) + value if len(value) < 256 else b"T" + len(value).to_bytes(4, "little") + value
        )

    def number(value: int) -> bytes:
        return b"K" + bytes([value]) if value < 256 else b"M" + value.to_bytes(2, "little")

    dtype = (
        b"cnumpy\ndtype\n("
        + text(b"u1")
        + b"K\x00K\x01tR(K\x03"
        + text(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + text(b"b") + b"tR"
    state = b"(K\x01(" + number(len(images)) + number(3072) + b"t" + dtype + b"\x89" + text(images.tobytes()) + b"tb"
    listed = b"](" + b"".join(map(number, labels)) + b"e"
    return (
        b"\x80\x02}("
        + text(b"data")
        + array
        + state
        + text(b"labels")
        + listed
        + text(b"batch_label")
        + text(b"1 of 5")
        + b"u."
    )


def write_pickled(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for seed, stem in enumerate(STEMS):
        (folder / stem).write_bytes(python2_batch(*batch(seed)))
    names = [f"n{i}".encode() for i in range(10)]
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}, protocol=2))
    return folder


@pytest.mark.parametrize("write", [write_binary, write_pickled])
def test_every_pixel_and_label(tmp_path: Path, write: object) -> None:
    source = read(write(tmp_path / "c"))  # type: ignore[operator]
    assert source.test is not None
    np.testing.assert_array_equal(source.train.inputs, np.concatenate([batch(seed)[0] for seed in range(5)]))
    np.testing.assert_array_equal(source.train.labels, np.concatenate([batch(seed)[1] for seed in range(5)]))
    np.testing.assert_array_equal(source.test.inputs, batch(5)[0])
    np.testing.assert_array_equal(source.test.labels, batch(5)[1])
    assert source.train.labels.dtype == np.int64
    assert source.train.inputs.flags.writeable
    assert source.test.inputs.flags.writeable


def test_our_python2_pickle_is_a_true_one(tmp_path: Path) -> None:
    """The bytes above mean to Python's own unpickler what they mean to ours."""
    images, labels = batch(0)
    loaded = pickle.loads(python2_batch(images, labels), encoding="bytes")
    np.testing.assert_array_equal(loaded[b"data"], images.reshape(-1, 3072))
    assert loaded[b"labels"] == labels
    path = tmp_path / "data_batch_1"
    path.write_bytes(python2_batch(images, labels))
    np.testing.assert_array_equal(read_batch(path)[0], images)


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_pickles_of_python_3_are_read_too(tmp_path: Path, protocol: int) -> None:
    images, labels = batch(0)
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps({"data": images.reshape(-1, 3072), "labels": labels}, protocol=protocol))
    np.testing.assert_array_equal(read_batch(path)[0], images)
    fortran = np.asfortranarray(images.reshape(-1, 3072))
    path.write_bytes(pickle.dumps({"data": fortran, "labels": labels}, protocol=2))
    np.testing.assert_array_equal(read_batch(path)[0], images)


def test_class_names(tmp_path: Path) -> None:
    folder = write_binary(tmp_path / "cifar-10-batches-bin")
    assert read(folder).class_names == CLASS_NAMES
    (folder / "batches.meta.txt").write_text("\n".join(f"x{i}" for i in range(10)) + "\n\n")
    assert read(folder).class_names[9] == "x9"
    (folder / "batches.meta.txt").write_text("one two")
    with pytest.raises(InputError, match="ten"):
        read(folder)
    assert read(write_pickled(tmp_path / "p")).class_names == tuple(f"n{i}" for i in range(10))


def test_validation_is_four_percent_and_the_folder_itself_will_do(tmp_path: Path) -> None:
    folder = write_binary(tmp_path / "cifar-10-batches-bin")
    for data_dir in (tmp_path, folder):
        data = load_data("cifar10", data_dir=data_dir)
        assert [len(part) for part in (data.train, data.val, data.test)] == [96, 4, 20]


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "0 bytes"), (bytes(3072), "multiple of 3,073"), (b"\x0a" + bytes(3072), "the label 10")],
)
def test_broken_binary_batches(tmp_path: Path, content: bytes, says: str) -> None:
    folder = write_binary(tmp_path / "cifar-10-batches-bin")
    (folder / "data_batch_3.bin").write_bytes(content)
    with pytest.raises(InputError, match=rf"data_batch_3\.bin.*{says}"):
        load_data("cifar10", data_dir=tmp_path)
    assert [row.whole for row in check_data("cifar10", tmp_path)] == [True, True, False, True, True, True]


def test_missing_batch_names_the_file_and_the_command(tmp_path: Path) -> None:
    folder = write_binary(tmp_path / "cifar-10-batches-bin")
    (folder / "test_batch.bin").unlink()
    with pytest.raises(InputError, match=r"test_batch\.bin does not exist.*run: deeplda data fetch cifar10 --data-dir"):
        load_data("cifar10", data_dir=tmp_path)
    assert check_data("cifar10", tmp_path)[-1].found == "missing"
