"""Labels as class ids: a class keeps its id, whatever appears later."""

import numpy as np
import pytest

from deeplda.classical.class_labels import encode_labels, extend_labels
from deeplda.errors import InputError


def test_ids_are_positions_among_the_sorted_labels():
    classes, ids = encode_labels(np.array(["b", "a", "b"]))
    assert classes.tolist() == ["a", "b"]
    assert ids.tolist() == [1, 0, 1]


def test_one_class_is_not_enough():
    with pytest.raises(InputError, match="greater than one"):
        encode_labels(np.array([3, 3]))


def test_a_class_keeps_its_id():
    labels, ids = extend_labels(np.empty(0), np.array(["m", "z"]))
    assert ids.tolist() == [0, 1]
    labels, ids = extend_labels(labels, np.array(["z", "apple", "m"]))
    assert labels.tolist() == ["m", "z", "apple"]
    assert ids.tolist() == [1, 2, 0]


def test_fixed_labels_admit_no_others():
    with pytest.raises(InputError, match=r"y contains .*7.*, which is not in classes"):
        extend_labels(np.array([1, 2]), np.array([2, 7]), fixed=True)


def test_text_and_numbers_do_not_mix():
    with pytest.raises(InputError, match="need one type"):
        extend_labels(np.array(["1", "2"]), np.array([1, 2]))
