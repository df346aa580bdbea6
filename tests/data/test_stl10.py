"""STL-10's binary layout."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from deeplda.data import check_data, load_data
from deeplda.data.stl10 import CLASS_NAMES, read
from deeplda.errors import InputError


def images(seed: int, n: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (n, 3, 96, 96), dtype=np.uint8)


def write(folder: Path) -> Path:
    folder.mkdir()
    for seed, part, n in ((0, "train", 20), (1, "test", 10)):
        # Plane by plane, and in each plane column by column.
        content = b"".join(image[c, :, x].tobytes() for image in images(seed, n) for c in range(3) for x in range(96))
        (folder / f"{part}_X.bin").write_bytes(content)
        (folder / f"{part}_y.bin").write_bytes(bytes(1 + i % 10 for i in range(n)))
    (folder / "unlabeled_X.bin").write_bytes(b"never read")
    return folder


def test_every_pixel_and_label(tmp_path: Path) -> None:
    source = read(write(tmp_path / "stl10_binary"))
    assert source.test is not None
    np.testing.assert_array_equal(source.train.inputs, images(0, 20))
    np.testing.assert_array_equal(source.test.inputs, images(1, 10))
    np.testing.assert_array_equal(source.train.labels, np.arange(20) % 10)
    assert source.class_names == CLASS_NAMES


def test_split_names_and_size(tmp_path: Path) -> None:
    folder = write(tmp_path / "stl10_binary")
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
def test_broken_files(tmp_path: Path, file: str, content: bytes, says: str) -> None:
    (write(tmp_path / "stl10_binary") / file).write_bytes(content)
    with pytest.raises(InputError, match=f"{file}.*{says}"):
        load_data("stl10", data_dir=tmp_path)


def test_check_tells_what_is_there(tmp_path: Path) -> None:
    folder = write(tmp_path / "stl10_binary")
    (folder / "test_X.bin").write_bytes(b"123")
    rows = check_data("stl10", tmp_path)
    assert [row.whole for row in rows] == [True, True, False, True]
    assert [row.found for row in rows[:2]] == ["20 images of 3 x 96 x 96", "20 labels"]
