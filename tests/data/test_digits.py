"""The bundled digits."""

import numpy as np
from sklearn.datasets import load_digits

from deeplda.data import load_data
from deeplda.data.digits import read


def test_every_digit_is_there_in_the_full_range() -> None:
    source, raw = read(), load_digits()
    assert source.train.inputs.shape == (1797, 1, 8, 8)
    assert source.train.inputs.dtype == np.uint8
    expected = [[round(v * 255 / 16) for v in row] for row in raw.data]
    np.testing.assert_array_equal(source.train.inputs.reshape(1797, 64), expected)
    np.testing.assert_array_equal(source.train.labels, raw.target)


def test_split_and_names() -> None:
    data = load_data()
    assert (data.name, data.class_names) == ("digits", tuple("0123456789"))
    assert [len(part) for part in (data.train, data.val, data.test)] == [1257, 270, 270]
    assert load_data(image_size=16).sample_shape == (1, 16, 16)
