"""Finding, loading and checking sources."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deeplda import data
from deeplda.data import KNOWN, check_data, is_here, load_data
from deeplda.data.known_sets import KNOWN_SETS
from deeplda.data.sources import data_folder
from deeplda.errors import InputError


def test_known_names() -> None:
    noisy = ("cifar10n-aggregate", "cifar10n-random1", "cifar10n-worst")
    assert list(KNOWN) == ["digits", "cifar10", *noisy, "cifar100", "stl10", "mnist", "fashion-mnist"]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("cifra10", "did you mean cifar10"),
        ("CIFAR-10", "did you mean cifar10"),
        ("fashion_mnist", "did you mean fashion-mnist"),
        ("no/such/folder", "no/such/folder does not exist.*known names are digits"),
        ("gone.npz", "does not exist"),
    ],
)
def test_unknown_sources(source: str, says: str) -> None:
    for function in (load_data, check_data):
        with pytest.raises(InputError, match=says):
            function(source)


def test_a_file_that_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1,2")
    with pytest.raises(InputError, match=r"a\.txt is a file, need a folder"):
        load_data(tmp_path / "a.txt")


@pytest.mark.parametrize("name", KNOWN[1:])
def test_missing_set_says_where_and_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("DEEPLDA_DATA", str(tmp_path))
    assert data_folder(None) == tmp_path
    with pytest.raises(InputError, match=f"{tmp_path}.* does not exist.*run deeplda data fetch {name}$"):
        load_data(name)
    with pytest.raises(InputError, match=f"fetch {name} --data-dir {tmp_path}"):
        load_data(name, data_dir=tmp_path)
    assert {row.found for row in check_data(name)} == {"missing"}


def test_data_folder_without_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEEPLDA_DATA", raising=False)
    assert data_folder(None).name == "deeplda"


def test_known_name_wins_over_a_folder_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    assert len(load_data("digits").class_names) == 10
    with pytest.raises(InputError, match="subfolders"):
        load_data("./digits")


def test_bad_numbers() -> None:
    with pytest.raises(InputError, match="image_size is 0"):
        load_data("digits", image_size=0)
    with pytest.raises(InputError, match="split_seed is -1"):
        load_data("digits", split_seed=-1)
    with pytest.raises(InputError, match="GiB is available"):
        load_data("digits", image_size=10**6)


def test_check_of_digits() -> None:
    assert [row.ok for row in check_data("digits")] == [True]


def test_seed_moves_the_split() -> None:
    a, b = load_data(split_seed=0), load_data(split_seed=1)
    assert a.fingerprint != b.fingerprint
    assert a.fingerprint == load_data().fingerprint
    np.testing.assert_array_equal(np.bincount(a.val.labels), np.bincount(b.val.labels))


@pytest.mark.parametrize("name", KNOWN)
def test_a_set_is_here_if_its_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Decided by names and sizes: the contents are never read."""
    assert is_here(name, tmp_path) == (name == "digits")
    if name == "digits":
        return
    known = KNOWN_SETS[name]
    folder = tmp_path / known.folders[0]
    folder.mkdir()
    *others, last = known.files(folder)
    for file in others:
        file.write_bytes(bytes(known.record_bytes(file)))
    assert not is_here(name, tmp_path)
    monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("opened"))
    monkeypatch.setattr(np, "fromfile", lambda *_: pytest.fail("read"))
    os.close(os.open(last, os.O_CREAT))
    assert not is_here(name, tmp_path)
    os.truncate(last, 2 * known.record_bytes(last))
    assert is_here(name, tmp_path)
    if known.record_bytes(last) > 1:
        os.truncate(last, 2 * known.record_bytes(last) - 1)
        assert not is_here(name, tmp_path)


def test_data_and_part_need_no_reader() -> None:
    """Estimators import them without the packages of the extra `cli`."""
    readers = {"PIL", "gzip", "pooch", "requests", "rich", "tarfile", "zipfile"}
    code = f"import sys; from deeplda.data import Data, Part; print(*({readers} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip() == b""


def test_only_images_need_pillow() -> None:
    code = "import sys; sys.modules['PIL'] = None; from deeplda.data import load_data; load_data('digits')"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_of_the_package() -> None:
    assert set(data.__all__) == set(dir(data))
    assert all(getattr(data, name) is not None for name in data.__all__)
    with pytest.raises(AttributeError, match="'lode_data'"):
        _ = data.lode_data
