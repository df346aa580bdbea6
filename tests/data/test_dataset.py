"""Data, its parts and its fingerprint."""

from dataclasses import replace

import numpy as np

from deeplda.data import Data, Part


def small() -> Data:
    def part(n: int) -> Part:
        return Part(np.arange(n * 4, dtype=np.uint8).reshape(n, 1, 2, 2), np.arange(n, dtype=np.int64) % 2)

    return Data("small", part(6), part(2), part(4), ("a", "b"))


def test_shapes_and_kind() -> None:
    data = small()
    rows = Part(np.zeros((3, 5), dtype=np.float32), np.zeros(3, dtype=np.int64))
    assert data.images
    assert data.sample_shape == (1, 2, 2)
    assert len(data.test) == 4
    assert not replace(data, train=rows).images
    assert replace(data, train=rows).sample_shape == (5,)


def test_validation_joins_the_training_part() -> None:
    data, joined = small(), small().without_validation()
    assert (len(joined.train), len(joined.val)) == (8, 0)
    assert np.array_equal(joined.train.inputs[6:], data.val.inputs)
    assert np.array_equal(joined.train.labels, np.concatenate([data.train.labels, data.val.labels]))
    assert np.array_equal(joined.test.inputs, data.test.inputs)
    assert joined.sample_shape == data.sample_shape


def test_fingerprint_sees_every_content_and_only_content() -> None:
    data = small()
    assert replace(data, name="other").fingerprint == data.fingerprint == small().fingerprint
    pixel = data.val.inputs.copy()
    pixel[1, 0, 1, 1] += 1
    changed = [
        replace(data, val=Part(pixel, data.val.labels)),
        replace(data, test=Part(data.test.inputs, 1 - data.test.labels)),
        replace(data, class_names=("a", "c")),
        replace(data, val=data.test, test=data.val),
        replace(data, train=Part(data.train.inputs.reshape(6, 2, 1, 2), data.train.labels)),
    ]
    assert len({data.fingerprint, *(other.fingerprint for other in changed)}) == 6


def test_fingerprint_does_not_depend_on_memory_layout() -> None:
    data = small()
    strided = data.train.inputs.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2)
    assert replace(data, train=Part(strided, data.train.labels)).fingerprint == data.fingerprint
