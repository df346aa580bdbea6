"""Data from the user's own code: data sets of tensors equal those of arrays, and unsuitable data is named."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from deeplda.data import Data, Part
from deeplda.data.own_source import read_own
from deeplda.errors import InputError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (24, 3, 8, 8), dtype=np.uint8)
VECTORS = RNG.normal(size=(24, 5)).astype(np.float32)
LABELS = np.arange(24) % 3
NAMES = ("a", "b", "c")


def read(function, monkeypatch):
    """Return the source that a function of the user returns."""
    monkeypatch.setitem(globals(), "own", lambda: function())
    return read_own(f"{__name__}:own")


def pairs(inputs, convert):
    return lambda: [(convert(row), int(label)) for row, label in zip(inputs, LABELS, strict=True)]


def data(**changes):
    part = Part(VECTORS, LABELS)
    return lambda: Data(**({"name": "x", "train": part, "val": part, "test": part, "class_names": NAMES} | changes))


@pytest.mark.parametrize("inputs", [IMAGES, VECTORS], ids=["images", "vectors"])
def test_tensors_are_read_like_arrays(monkeypatch, inputs):
    expected = read(pairs(inputs, np.asarray), monkeypatch)
    found = read(pairs(inputs, torch.tensor), monkeypatch)
    tensors = read(lambda: TensorDataset(torch.tensor(inputs), torch.tensor(LABELS)), monkeypatch)
    for source in (expected, found, tensors):
        np.testing.assert_array_equal(source.train.inputs, inputs)
        np.testing.assert_array_equal(source.train.labels, LABELS)


@pytest.mark.parametrize("names", [list(NAMES), np.array(NAMES)], ids=["list", "array"])
def test_class_names_become_a_tuple(monkeypatch, names):
    assert read(data(class_names=names), monkeypatch).class_names == NAMES


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            pairs(IMAGES / 255, lambda row: torch.tensor(row, dtype=torch.float32)),
            "is an image of dtype float32, need uint8",
        ),
        (pairs(VECTORS, lambda row: torch.tensor(row, requires_grad=True)), "failed.*Tensor that requires grad"),
        (lambda: (VECTORS, LABELS), r"returned an object of type tuple of \(ndarray, ndarray\), need a function"),
        (data(val=None), "val of type NoneType, need deeplda.data.Part: to have a set split off the training set"),
        (data(test=(VECTORS, LABELS)), "test of type tuple, need deeplda.data.Part"),
        (data(train=Part(torch.tensor(VECTORS), LABELS)), r"train.inputs of type Tensor, need a NumPy array"),
        (data(val=Part(VECTORS, torch.tensor(LABELS))), r"val.labels of type Tensor, need .*: pass np.asarray\(labels"),
        (data(class_names=("a", "b", "b")), "has 'b' in class_names more than once, need a different name for each"),
        (data(class_names="abc"), "class_names of type str, need a tuple of names"),
        (data(class_names=None), "class_names of type NoneType, need a tuple of names"),
    ],
)
def test_unsuitable_data_is_rejected(monkeypatch, function, message):
    with pytest.raises(InputError, match=message):
        read(function, monkeypatch)


def test_an_empty_part_is_split_off_later(monkeypatch):
    assert read(data(val=Part(VECTORS[:0], LABELS[:0])), monkeypatch).val is None
