"""idx files of MNIST and Fashion-MNIST."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from deeplda.data import check_data, load_data, mnist
from deeplda.errors import InputError


def idx(array: NDArray[np.uint8]) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def content(part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    n = 100 if part == "train" else 30
    rng = np.random.default_rng(n)
    return rng.integers(0, 256, (n, 28, 28), dtype=np.uint8), (np.arange(n) % 10).astype(np.uint8)


def write(folder: Path, *, packed: bool, dotted: bool = False) -> Path:
    folder.mkdir(parents=True)
    arrays = [array for part in ("train", "t10k") for array in content(part)]
    for name, array in zip(mnist.FILES, arrays, strict=True):
        file = name.replace("-idx", ".idx") if dotted else name
        (folder / f"{file}.gz").write_bytes(gzip.compress(idx(array))) if packed else (folder / file).write_bytes(
            idx(array)
        )
    return folder


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("dotted", [True, False])
def test_every_pixel_and_label(tmp_path: Path, packed: bool, dotted: bool) -> None:
    source = mnist.read("mnist", write(tmp_path / "m", packed=packed, dotted=dotted))
    assert source.test is not None
    for part, name in ((source.train, "train"), (source.test, "t10k")):
        np.testing.assert_array_equal(part.inputs[:, 0], content(name)[0])
        np.testing.assert_array_equal(part.labels, content(name)[1])
        assert part.inputs.flags.writeable


@pytest.mark.parametrize(
    ("name", "folder"), [("mnist", "MNIST/raw"), ("fashion-mnist", "fashion-mnist"), ("mnist", ".")]
)
def test_usual_folders_and_split(tmp_path: Path, name: str, folder: str) -> None:
    write(tmp_path / "data" / folder, packed=True)
    data = load_data(name, data_dir=tmp_path / "data")
    assert [len(part) for part in (data.train, data.val, data.test)] == [90, 10, 30]
    assert data.class_names[0] == {"mnist": "0", "fashion-mnist": "T-shirt/top"}[name]


def test_the_folder_of_one_does_not_pass_for_the_other(tmp_path: Path) -> None:
    folder = write(tmp_path / "mnist", packed=True)
    assert load_data("mnist", data_dir=folder).name == "mnist"
    with pytest.raises(InputError, match="fetch fashion-mnist"):
        load_data("fashion-mnist", data_dir=folder)


GOOD = idx(content("train")[0])


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (GOOD[:-1], "less than its header"),
        (GOOD + b"x", "more than its header"),
        (idx(content("train")[1]), "magic number 0x00000803"),
        (b"\x00\x00", "cannot be read"),
        (b"", "train-images"),
        (struct.pack(">4I", 0x803, 0, 28, 28), "is empty"),
        (struct.pack(">4I", 0x803, 2**32 - 1, 2**32 - 1, 2**32 - 1), "GiB"),
        (GOOD[:4] + struct.pack(">I", 99) + GOOD[8 : -28 * 28], "100 labels"),
    ],
)
def test_broken_images(tmp_path: Path, packed: bool, raw: bytes, says: str) -> None:
    folder = write(tmp_path / "mnist", packed=packed)
    file = "train-images-idx3-ubyte" + (".gz" if packed else "")
    (folder / file).write_bytes(gzip.compress(raw) if packed else raw)
    with pytest.raises(InputError, match=says):
        load_data("mnist", data_dir=tmp_path)


def test_broken_labels_and_gzip(tmp_path: Path) -> None:
    folder = write(tmp_path / "mnist", packed=True)
    labels = folder / "t10k-labels-idx1-ubyte.gz"
    whole = labels.read_bytes()
    for raw in (whole[:-10], b"not gzip", whole[:20] + b"\xff" * 9 + whole[29:]):
        labels.write_bytes(raw)
        with pytest.raises(InputError, match="t10k-labels"):
            load_data("mnist", data_dir=tmp_path)
        assert [row.whole for row in check_data("mnist", tmp_path)] == [True, True, True, False]
    labels.write_bytes(gzip.compress(idx(np.full(30, 10, np.uint8))))
    with pytest.raises(InputError, match="the label 10"):
        load_data("mnist", data_dir=tmp_path)


def test_a_gzip_bomb_is_unpacked_only_as_far_as_declared(tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(struct.pack(">4I", 0x803, 1, 2, 2) + bytes(50_000_000)))
    with pytest.raises(InputError, match="more than its header"):
        mnist.read_idx(path, 3)


def test_test_images_of_another_size(tmp_path: Path) -> None:
    folder = write(tmp_path / "mnist", packed=False)
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
        with pytest.raises(InputError, match="less than its header says"):
            mnist.read_idx(tmp_path / name, 3)
