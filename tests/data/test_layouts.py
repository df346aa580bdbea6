"""STL-10, MNIST and Fashion-MNIST: every pixel and label arrives, and damaged files are named."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from deeplda.data import check_data, load_data
from deeplda.data.dataset import Part
from deeplda.data.known_sets import KNOWN_SETS
from deeplda.data.layouts import read_idx
from deeplda.errors import InputError


def assert_holds(part: Part | None, images: NDArray[np.uint8], labels: NDArray[np.generic] | list[int]) -> None:
    assert part is not None
    np.testing.assert_array_equal(part.inputs, images)
    np.testing.assert_array_equal(part.labels, labels)
    assert part.labels.dtype == np.int64
    assert part.inputs.flags.writeable


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
    for name, array in zip(KNOWN_SETS["mnist"].downloads, arrays, strict=True):
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
