"""The known data sets: every pixel and label arrives, and damaged files are named."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from deeplda.data import check_data, load_data
from deeplda.data.dataset import Part
from deeplda.data.known_sets import KNOWN_SETS, read_digits, read_idx
from deeplda.errors import InputError


def assert_holds(part: Part | None, images: NDArray[np.uint8], labels: NDArray[np.generic] | list[int]) -> None:
    assert part is not None
    np.testing.assert_array_equal(part.inputs, images)
    np.testing.assert_array_equal(part.labels, labels)
    assert part.labels.dtype == np.int64
    assert part.inputs.flags.writeable


# ---------------------------------------------------------------- digits


def test_digits_are_scaled_to_the_full_range() -> None:
    source, raw = read_digits(), load_digits()
    assert source.train.inputs.shape == (1797, 1, 8, 8)
    assert source.train.inputs.dtype == np.uint8
    expected = [[round(v * 255 / 16) for v in row] for row in raw.data]
    np.testing.assert_array_equal(source.train.inputs.reshape(1797, 64), expected)
    np.testing.assert_array_equal(source.train.labels, raw.target)


def test_split_and_names_of_digits() -> None:
    data = load_data()
    assert (data.name, data.class_names) == ("digits", tuple("0123456789"))
    assert [len(part) for part in (data.train, data.val, data.test)] == [1257, 270, 270]
    assert load_data(image_size=16).sample_shape == (1, 16, 16)


# ---------------------------------------------------------------- CIFAR-10

CIFAR10 = KNOWN_SETS["cifar10"]


def batch(seed: int, n: int = 20) -> tuple[NDArray[np.uint8], list[int]]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8), [int(i % 10) for i in rng.permutation(n)]


def write_cifar10(root: Path) -> Path:
    folder = root / "cifar-10-batches-bin"
    folder.mkdir()
    for seed, stem in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        images, labels = batch(seed)
        records = [bytes([label]) + image.tobytes() for label, image in zip(labels, images, strict=True)]
        (folder / f"{stem}.bin").write_bytes(b"".join(records))
    return folder


def test_cifar10(tmp_path: Path) -> None:
    source = CIFAR10.read(write_cifar10(tmp_path))
    images, labels = zip(*map(batch, range(6)), strict=True)
    assert_holds(source.train, np.concatenate(images[:5]), np.concatenate(labels[:5]))
    assert_holds(source.test, images[5], labels[5])


def test_class_names_of_cifar10(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    assert CIFAR10.read(folder).class_names == CIFAR10.class_names
    (folder / "batches.meta.txt").write_text("\n".join(f"x{i}" for i in range(10)) + "\n\n")
    assert CIFAR10.read(folder).class_names[9] == "x9"
    (folder / "batches.meta.txt").write_text("one two")
    with pytest.raises(InputError, match=r"batches\.meta\.txt has 2 class names, need 10"):
        CIFAR10.read(folder)


def test_split_of_cifar10_whose_folder_may_be_the_data_folder(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    for data_dir in (tmp_path, folder):
        data = load_data("cifar10", data_dir=data_dir)
        assert [len(part) for part in (data.train, data.val, data.test)] == [96, 4, 20]


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "0 bytes"), (bytes(3072), "multiple of 3,073"), (b"\x0a" + bytes(3072), "the label 10")],
)
def test_damaged_batches(tmp_path: Path, content: bytes, says: str) -> None:
    folder = write_cifar10(tmp_path)
    (folder / "data_batch_3.bin").write_bytes(content)
    with pytest.raises(InputError, match=rf"data_batch_3\.bin.*{says}"):
        load_data("cifar10", data_dir=tmp_path)
    assert [row.ok for row in check_data("cifar10", tmp_path)] == [True, True, False, True, True, True]


def test_missing_batch_names_the_file_and_the_command(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    (folder / "test_batch.bin").unlink()
    with pytest.raises(InputError, match=r"test_batch\.bin does not exist.*run deeplda data fetch cifar10 --data-dir"):
        load_data("cifar10", data_dir=tmp_path)
    assert check_data("cifar10", tmp_path)[-1].found == "missing"


@pytest.mark.parametrize("data_dir", [".", "cifar-10-batches-py"])
def test_the_python_layout_of_cifar10_is_not_read(tmp_path: Path, data_dir: str) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "data_batch_1").write_bytes(b"a pickle")
    (folder / "test_batch").write_bytes(b"a pickle")
    says = r"cifar-10-batches-py contains CIFAR-10 in its Python layout .*the binary layout: run deeplda data fetch"
    with pytest.raises(InputError, match=says):
        load_data("cifar10", data_dir=tmp_path / data_dir)
    *files, last = check_data("cifar10", tmp_path / data_dir)
    assert {row.found for row in files} == {"missing"}
    assert "Python layout" in last.found
    batch_file = write_cifar10(tmp_path / data_dir) / "data_batch_1.bin"
    assert all(row.ok for row in check_data("cifar10", tmp_path / data_dir))
    batch_file.unlink()
    with pytest.raises(InputError, match=r"data_batch_1\.bin does not exist"):
        load_data("cifar10", data_dir=tmp_path / data_dir)


# ---------------------------------------------------------------- STL-10

STL10 = KNOWN_SETS["stl10"]


def stl10_images(seed: int, n: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (n, 3, 96, 96), dtype=np.uint8)


def write_stl10(root: Path) -> Path:
    folder = root / "stl10_binary"
    folder.mkdir()
    for seed, part, n in ((0, "train", 20), (1, "test", 10)):
        # Plane by plane, and column by column within each plane.
        images = stl10_images(seed, n)
        content = b"".join(image[c, :, x].tobytes() for image in images for c in range(3) for x in range(96))
        (folder / f"{part}_X.bin").write_bytes(content)
        (folder / f"{part}_y.bin").write_bytes(bytes(1 + i % 10 for i in range(n)))
    (folder / "unlabeled_X.bin").write_bytes(b"never read")
    return folder


def test_stl10(tmp_path: Path) -> None:
    source = STL10.read(write_stl10(tmp_path))
    assert_holds(source.train, stl10_images(0, 20), np.arange(20) % 10)
    assert_holds(source.test, stl10_images(1, 10), np.arange(10))
    assert source.class_names == STL10.class_names


def test_split_names_and_size_of_stl10(tmp_path: Path) -> None:
    folder = write_stl10(tmp_path)
    (folder / "class_names.txt").write_text("\n".join("abcdefghij"))
    data = load_data("stl10", data_dir=tmp_path, image_size=24)
    assert [len(part) for part in (data.train, data.val, data.test)] == [16, 4, 10]
    assert data.sample_shape == (3, 24, 24)
    assert data.class_names == tuple("abcdefghij")


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("train_X.bin", bytes(100), "100 bytes"),
        ("train_X.bin", b"", "0 bytes"),
        ("train_y.bin", bytes([1] * 19), "19 labels"),
        ("train_y.bin", bytes(20), "the label 0"),
        ("test_y.bin", bytes([11] * 10), "the label 11"),
        ("class_names.txt", b"a b", "2 class names"),
    ],
)
def test_damaged_files_of_stl10(tmp_path: Path, file: str, content: bytes, says: str) -> None:
    (write_stl10(tmp_path) / file).write_bytes(content)
    with pytest.raises(InputError, match=f"{file}.*{says}"):
        load_data("stl10", data_dir=tmp_path)


def test_check_of_stl10(tmp_path: Path) -> None:
    folder = write_stl10(tmp_path)
    (folder / "test_X.bin").write_bytes(b"123")
    rows = check_data("stl10", tmp_path)
    assert [row.ok for row in rows] == [True, True, False, True]
    assert [row.found for row in rows[:2]] == ["20 images of 3 x 96 x 96", "20 labels"]


# ---------------------------------------------------------------- MNIST and Fashion-MNIST


def idx(array: NDArray[np.uint8]) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def content(part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    n = 100 if part == "train" else 30
    rng = np.random.default_rng(n)
    return rng.integers(0, 256, (n, 28, 28), dtype=np.uint8), (np.arange(n) % 10).astype(np.uint8)


def write_mnist(folder: Path, *, packed: bool, dotted: bool = False) -> Path:
    folder.mkdir(parents=True)
    arrays = [array for part in ("train", "t10k") for array in content(part)]
    for name, array in zip(KNOWN_SETS["mnist"].checksums, arrays, strict=True):
        file = name.replace("-idx", ".idx") if dotted else name
        if packed:
            (folder / file).write_bytes(gzip.compress(idx(array)))
        else:
            (folder / file.removesuffix(".gz")).write_bytes(idx(array))
    return folder


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("dotted", [True, False])
def test_mnist(tmp_path: Path, packed: bool, dotted: bool) -> None:
    source = KNOWN_SETS["mnist"].read(write_mnist(tmp_path / "m", packed=packed, dotted=dotted))
    for part, name in ((source.train, "train"), (source.test, "t10k")):
        images, labels = content(name)
        assert_holds(part, images[:, None], labels)


@pytest.mark.parametrize(
    ("name", "folder"), [("mnist", "MNIST/raw"), ("fashion-mnist", "fashion-mnist"), ("mnist", ".")]
)
def test_usual_folders_and_split_of_mnist(tmp_path: Path, name: str, folder: str) -> None:
    write_mnist(tmp_path / "data" / folder, packed=True)
    data = load_data(name, data_dir=tmp_path / "data")
    assert [len(part) for part in (data.train, data.val, data.test)] == [90, 10, 30]
    assert data.class_names[0] == {"mnist": "0", "fashion-mnist": "T-shirt/top"}[name]


def test_the_folder_of_mnist_is_not_taken_for_fashion_mnist(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path / "mnist", packed=True)
    assert load_data("mnist", data_dir=folder).name == "mnist"
    with pytest.raises(InputError, match="fetch fashion-mnist"):
        load_data("fashion-mnist", data_dir=folder)


GOOD = idx(content("train")[0])


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (GOOD[:-1], "fewer bytes than declared"),
        (GOOD + b"x", "more bytes than declared"),
        (idx(content("train")[1]), "magic number 0x00000803"),
        (b"\x00\x00", "cannot be read"),
        (b"", "train-images"),
        (struct.pack(">4I", 0x803, 0, 28, 28), "is empty"),
        (struct.pack(">4I", 0x803, 2**32 - 1, 2**32 - 1, 2**32 - 1), "GiB"),
        (GOOD[:4] + struct.pack(">I", 99) + GOOD[8 : -28 * 28], "100 labels"),
    ],
)
def test_damaged_idx_images(tmp_path: Path, packed: bool, raw: bytes, says: str) -> None:
    folder = write_mnist(tmp_path / "mnist", packed=packed)
    file = "train-images-idx3-ubyte" + (".gz" if packed else "")
    (folder / file).write_bytes(gzip.compress(raw) if packed else raw)
    with pytest.raises(InputError, match=says):
        load_data("mnist", data_dir=tmp_path)


def test_damaged_idx_labels_and_gzip(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path / "mnist", packed=True)
    labels = folder / "t10k-labels-idx1-ubyte.gz"
    intact = labels.read_bytes()
    for raw in (intact[:-10], b"not gzip", intact[:20] + b"\xff" * 9 + intact[29:]):
        labels.write_bytes(raw)
        with pytest.raises(InputError, match="t10k-labels"):
            load_data("mnist", data_dir=tmp_path)
        assert [row.ok for row in check_data("mnist", tmp_path)] == [True, True, True, False]
    labels.write_bytes(gzip.compress(idx(np.full(30, 10, np.uint8))))
    with pytest.raises(InputError, match="the label 10"):
        load_data("mnist", data_dir=tmp_path)


def test_a_gzip_bomb_is_unpacked_only_as_far_as_declared(tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(struct.pack(">4I", 0x803, 1, 2, 2) + bytes(50_000_000)))
    with pytest.raises(InputError, match="more bytes than declared"):
        read_idx(path, 3)


def test_idx_test_images_of_another_size(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path / "mnist", packed=False)
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx(np.zeros((30, 28, 27), np.uint8)))
    with pytest.raises(InputError, match=r"\(1, 28, 28\)"):
        load_data("mnist", data_dir=tmp_path)


def test_a_header_that_declares_gigabytes_takes_no_memory(
    tmp_path: Path,
    little_memory: None,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("deeplda.memory.available_memory", lambda: None)
    raw = np.array([0x803, 2**32 - 1, 28, 28], dtype=">u4").tobytes() + b"few"
    for name, content in (("images", raw), ("images.gz", gzip.compress(raw))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="fewer bytes than declared"):
            read_idx(tmp_path / name, 3)
