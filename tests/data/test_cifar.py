"""CIFAR-10, CIFAR-100 and CIFAR-10N: every pixel and label arrives, and damaged files are named."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from deeplda.data import check_data, is_here, load_data
from deeplda.data.dataset import Part
from deeplda.data.known_sets import KNOWN_SETS
from deeplda.errors import InputError

CIFAR10, CIFAR100 = KNOWN_SETS["cifar10"], KNOWN_SETS["cifar100"]


def assert_contains(part: Part | None, images: NDArray[np.uint8], labels: NDArray[np.generic] | list[int]) -> None:
    assert part is not None
    np.testing.assert_array_equal(part.inputs, images)
    np.testing.assert_array_equal(part.labels, labels)
    assert part.labels.dtype == np.int64
    assert part.inputs.flags.writeable


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
    assert_contains(source.train, np.concatenate(images[:5]), np.concatenate(labels[:5]))
    assert_contains(source.test, images[5], labels[5])


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


# ---------------------------------------------------------------- CIFAR-100


def batch100(seed: int, n: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8), rng.permutation(n) % 100


def write_cifar100(root: Path) -> Path:
    folder = root / "cifar-100-binary"
    folder.mkdir()
    for seed, name, n in ((0, "train.bin", 200), (1, "test.bin", 100)):
        records = [
            bytes([label % 20, label]) + image.tobytes() for image, label in zip(*batch100(seed, n), strict=True)
        ]
        (folder / name).write_bytes(b"".join(records))
    return folder


def npz100(**changes: Any) -> bytes:
    (x_train, y_train), (x_test, y_test) = batch100(0, 200), batch100(1, 100)
    arrays = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
    buffer = io.BytesIO()
    arrays |= {"class_names": np.array(CIFAR100.class_names)} | changes
    np.savez(buffer, **{name: array for name, array in arrays.items() if array is not None})
    return buffer.getvalue()


def test_cifar100_has_the_fine_labels(tmp_path: Path) -> None:
    folder = write_cifar100(tmp_path)
    source = CIFAR100.read(folder)
    assert_contains(source.train, *batch100(0, 200))
    assert_contains(source.test, *batch100(1, 100))
    assert source.class_names == CIFAR100.class_names
    (folder / "fine_label_names.txt").write_text("\n".join(f"x{i}" for i in range(100)))
    assert CIFAR100.read(folder).class_names[99] == "x99"
    data = load_data("cifar100", data_dir=tmp_path)
    assert [len(part) for part in (data.train, data.val, data.test)] == [180, 20, 100]


def test_cifar100_as_npz_is_the_same_data(tmp_path: Path) -> None:
    (tmp_path / "binary").mkdir()
    write_cifar100(tmp_path / "binary")
    (tmp_path / "cifar100.npz").write_bytes(npz100())
    assert is_here("cifar100", tmp_path)
    assert [(row.found, row.ok) for row in check_data("cifar100", tmp_path)] == [
        ("200 + 100 images of 3 x 32 x 32", True)
    ]
    data = load_data("cifar100", data_dir=tmp_path)
    assert data.name == "cifar100"
    assert data.fingerprint == load_data("cifar100", data_dir=tmp_path / "binary").fingerprint


def test_an_incomplete_layout_of_cifar100_gives_way_to_the_other(tmp_path: Path) -> None:
    folder = write_cifar100(tmp_path)
    (tmp_path / "cifar100.npz").write_bytes(b"broken")
    assert all(row.ok for row in check_data("cifar100", tmp_path)), "both files of the binary layout are there"
    (folder / "test.bin").unlink()
    (tmp_path / "cifar100.npz").write_bytes(npz100())
    assert len(load_data("cifar100", data_dir=tmp_path).test) == 100


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"broken", "cannot be read"),
        (npz100(x_test=None, y_test=None), "no test set"),
        (npz100(class_names=None, y_train=np.arange(200) % 99, y_test=np.zeros(100, int)), "99 classes"),
        (npz100(x_train=np.zeros((200, 32, 32), np.uint8), x_test=np.zeros((100, 32, 32), np.uint8)), "need shape"),
        (npz100(x_train=np.zeros((200, 9)), x_test=np.zeros((100, 9))), "need shape"),
    ],
)
def test_an_npz_that_is_not_cifar100(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "cifar100.npz").write_bytes(content)
    with pytest.raises(InputError, match=rf"cifar100\.npz.*{says}"):
        load_data("cifar100", data_dir=tmp_path)
    assert [row.ok for row in check_data("cifar100", tmp_path)] == [False]


@pytest.mark.parametrize(
    ("content", "says"),
    [(bytes(3073), "multiple of 3,074"), (bytes([0, 100]) + bytes(3072), "the label 100, need labels 0 to 99")],
)
def test_damaged_batches_of_cifar100(tmp_path: Path, content: bytes, says: str) -> None:
    (write_cifar100(tmp_path) / "train.bin").write_bytes(content)
    with pytest.raises(InputError, match=rf"train\.bin.*{says}"):
        load_data("cifar100", data_dir=tmp_path)


def test_the_python_layout_of_cifar100_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "cifar-100-python").mkdir()
    for name in ("meta", "train", "test"):
        (tmp_path / "cifar-100-python" / name).write_bytes(b"a pickle")
    with pytest.raises(InputError, match=r"CIFAR-100 in its Python layout .*fetch cifar100"):
        load_data("cifar100", data_dir=tmp_path)


def test_the_archive_of_cifar100_has_the_binary_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An .npz file in the working folder, which has nothing to do with the archive, changes nothing."""
    (tmp_path / "cifar100.npz").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    assert CIFAR100.archive_members() == {"train.bin", "test.bin", "fine_label_names.txt"}


# ---------------------------------------------------------------- CIFAR-10N

NOISE = {
    "cifar10n-aggregate": ("aggre_label", 9),
    "cifar10n-random1": ("random_label1", 17),
    "cifar10n-worst": ("worse_label", 40),
}


def clean_labels() -> NDArray[np.uint8]:
    """The labels of the 100 training images that `write_cifar10` writes."""
    return np.concatenate([batch(seed)[1] for seed in range(5)]).astype(np.uint8)


def human_labels(**changes: Any) -> dict[str, Any]:
    """The arrays of a label file, in which as many of the 100 labels are wrong as `NOISE` says."""
    clean = clean_labels()
    arrays = {"clean_label": clean}
    for key, wrong in NOISE.values():
        arrays[key] = clean.copy()
        arrays[key][:: 100 // wrong][:wrong] += 1
        arrays[key] %= 10
    return arrays | changes


def write_labels(file: Path, **changes: Any) -> Path:
    arrays = human_labels(**changes)
    np.savez(file, **{name: array for name, array in arrays.items() if array is not None})
    return file


@pytest.mark.parametrize("name", NOISE)
@pytest.mark.parametrize("split_seed", [0, 1])
def test_cifar10n_has_the_split_of_cifar10_and_clean_labels_only_for_testing(
    tmp_path: Path, name: str, split_seed: int
) -> None:
    write_cifar10(tmp_path)
    write_labels(tmp_path / "cifar10n_labels.npz")
    noisy = load_data(name, data_dir=tmp_path, split_seed=split_seed)
    clean = load_data("cifar10", data_dir=tmp_path, split_seed=split_seed)
    assert (noisy.name, noisy.class_names) == (name, clean.class_names)
    for part, original in ((noisy.train, clean.train), (noisy.val, clean.val), (noisy.test, clean.test)):
        np.testing.assert_array_equal(part.inputs, original.inputs)
    np.testing.assert_array_equal(noisy.test.labels, clean.test.labels)
    # Which label belongs to which image is known from the order of the files.
    images = np.concatenate([batch(seed)[0] for seed in range(5)])
    label_of = {image.tobytes(): label for image, label in zip(images, human_labels()[NOISE[name][0]], strict=True)}
    for part in (noisy.train, noisy.val):
        assert part.labels.tolist() == [label_of[image.tobytes()] for image in part.inputs]
    both, original_both = noisy.without_validation().train, clean.without_validation().train
    assert np.count_nonzero(both.labels != original_both.labels) == NOISE[name][1]


def test_noise_reaches_the_validation_set(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    write_labels(tmp_path / "cifar10n_labels.npz", worse_label=(clean_labels() + 1) % 10)
    noisy, clean = load_data("cifar10n-worst", data_dir=tmp_path), load_data("cifar10", data_dir=tmp_path)
    np.testing.assert_array_equal(noisy.val.labels, (clean.val.labels + 1) % 10)


@pytest.mark.parametrize("inside", [True, False])
def test_the_label_file_is_in_the_data_folder(tmp_path: Path, inside: bool) -> None:
    """Even if the data folder is itself that of CIFAR-10."""
    folder = write_cifar10(tmp_path)
    assert not is_here("cifar10n-worst", tmp_path)
    with pytest.raises(InputError, match=rf"{tmp_path}/cifar10n_labels\.npz does not exist.*fetch cifar10n-worst"):
        load_data("cifar10n-worst", data_dir=tmp_path)
    write_labels((folder if inside else tmp_path) / "cifar10n_labels.npz")
    for data_dir in (tmp_path, folder):
        assert is_here("cifar10n-worst", data_dir)
        assert is_here("cifar10", data_dir)
        *_, last = check_data("cifar10n-worst", data_dir)
        assert (last.ok, last.found) == (True, "100 labels, 40.00 % of which differ from the clean ones")


def npy_with_header(header: bytes, content: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


HUGE = npy_with_header(b"{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000,), }\n", bytes(100))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"worse_label": None}, "no item named 'worse_label.npy'"),
        ({"clean_label": None}, "no item named 'clean_label.npy'"),
        ({"worse_label": np.full(100, 10)}, "the label 10, need labels 0 to 9"),
        ({"worse_label": np.full(100, -1)}, "the label -1, need labels 0 to 9"),
        ({"worse_label": np.zeros(99, np.uint8)}, "100 labels in clean_label and 99 in worse_label"),
        (
            {"clean_label": np.zeros(99, np.uint8), "worse_label": np.zeros(99, np.uint8)},
            "one label per training image",
        ),
        ({"clean_label": clean_labels()[::-1]}, "in the order of CIFAR-10's files"),
        ({"worse_label": np.zeros((100, 1), np.uint8)}, r"declared as uint8 \(100, 1\)"),
        ({"worse_label": np.zeros(100)}, "declared as float64"),
        ({"worse_label": np.zeros(0, np.uint8)}, r"declared as uint8 \(0,\)"),
        ({"worse_label": np.array(["0"] * 100)}, "declared as <U1"),
        ({"worse_label": np.array([0] * 100, dtype=object)}, "declared as object"),
    ],
)
def test_labels_that_do_not_fit_cifar10(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    write_cifar10(tmp_path)
    write_labels(tmp_path / "cifar10n_labels.npz", **changes)
    with pytest.raises(InputError, match=rf"cifar10n_labels\.npz.*{says}.*: replace the file"):
        load_data("cifar10n-worst", data_dir=tmp_path)
    assert not all(row.ok for row in check_data("cifar10n-worst", tmp_path))


@pytest.mark.parametrize(
    ("chunks", "says"),
    [([HUGE], "1000000000000"), ([bytes(2**20)] * 512, "magic string"), ([], "cannot be read")],
    ids=["declares 1 TB", "unpacks to 512 MiB", "empty"],
)
def test_label_files_that_would_fill_the_memory(
    tmp_path: Path,
    little_memory: None,  # noqa: ARG001
    chunks: list[bytes],
    says: str,
) -> None:
    write_cifar10(tmp_path)
    file = write_labels(tmp_path / "cifar10n_labels.npz", worse_label=None)
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("worse_label.npy", "w") as member:
        member.writelines(chunks)
    with pytest.raises(InputError, match=says):
        load_data("cifar10n-worst", data_dir=tmp_path)


def test_a_label_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    with (tmp_path / "cifar10n_labels.npz").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(InputError, match=r"cifar10n_labels\.npz cannot be read \(File too large\)"):
        load_data("cifar10n-worst", data_dir=tmp_path)


def test_labels_that_leave_one_class_for_training(tmp_path: Path) -> None:
    """The only image with another label is in the validation set, which is split off by the clean labels."""
    write_cifar10(tmp_path)
    held_out = load_data("cifar10", data_dir=tmp_path).val.inputs[0]
    images = np.concatenate([batch(seed)[0] for seed in range(5)])
    other = np.array([int(np.array_equal(image, held_out)) for image in images])
    write_labels(tmp_path / "cifar10n_labels.npz", worse_label=other)
    with pytest.raises(InputError, match="training samples of only one class"):
        load_data("cifar10n-worst", data_dir=tmp_path)
