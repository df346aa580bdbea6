"""Digits, and the entries of the known data sets."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from sklearn.datasets import load_digits

from deeplda.data import KNOWN, load_data
from deeplda.data.known_sets import KNOWN_SETS, read_digits


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


@pytest.mark.parametrize("known", KNOWN_SETS.values(), ids=list(KNOWN_SETS))
def test_downloads_are_encrypted_and_have_a_size_and_a_sha256(known) -> None:
    assert urlsplit(known.url).scheme == "https"
    assert known.downloads
    for file, remote in known.downloads.items():
        assert 0 < remote.size <= (known.unpacked_bytes or 30_000_000), file
        assert re.fullmatch("[0-9a-f]{64}", remote.sha256), file
    checksums = [remote.sha256 for remote in known.downloads.values()]
    assert len(set(checksums)) == len(checksums)


@pytest.mark.parametrize("known", KNOWN_SETS.values(), ids=list(KNOWN_SETS))
def test_class_names_are_distinct(known) -> None:
    assert len(set(known.class_names)) == len(known.class_names) == (100 if known.name == "cifar100" else 10)


def test_the_guide_lists_every_known_set() -> None:
    page = Path(__file__).parents[2] / "docs" / "data-formats.md"
    section = page.read_text().split("## Known data sets")[1].split("\n## ")[0]
    assert [name for name in KNOWN if f"`{name}`" not in section] == []
