"""Augmentation against NumPy, one image at a time."""

from dataclasses import replace

import numpy as np
import torch

from deeplda.data import Part
from deeplda.data.mapped_rows import MappedRows
from deeplda.training.batches import BatchSource
from deeplda.training.config import LoopConfig

CPU = torch.device("cpu")


def images(n=6, channels=3, height=5, width=7):
    rng = np.random.default_rng(0)
    return Part(rng.integers(0, 256, (n, channels, height, width), dtype=np.uint8), np.arange(n))


def test_without_augmentation_the_images_are_as_stored_and_channels_last():
    part = images()
    places = np.array([4, 1, 1])
    inputs, labels, weights, _ = BatchSource(part, CPU, LoopConfig()).batch(places, 0)
    assert np.array_equal(inputs.numpy(), part.inputs[places])
    assert labels.tolist() == [4, 1, 1]
    assert weights is None
    assert inputs.is_contiguous(memory_format=torch.channels_last)


def test_batches_of_images_in_a_file_are_those_of_images_in_memory(tmp_path):
    part = images(n=9)
    part.inputs.tofile(tmp_path / "x")
    mapped = Part(MappedRows(np.memmap(tmp_path / "x", np.uint8, "r", shape=part.inputs.shape)), part.labels)
    for settings in ({}, {"flip": True}, {"flip": True, "flip_order": "alternating", "translate": 2}):
        for epoch in range(2):
            found = []
            for source in (part, mapped):
                torch.manual_seed(0)
                found.append(BatchSource(source, CPU, LoopConfig(**settings)).batch(np.array([8, 0, 0, 3]), epoch))
            assert torch.equal(found[0][0], found[1][0])
            assert torch.equal(found[0][1], found[1][1])


def test_every_image_is_flipped_or_not():
    part = images()
    source = BatchSource(part, CPU, LoopConfig(flip=True))
    torch.manual_seed(0)
    flipped = 0
    for _ in range(20):
        inputs = source.batch(np.arange(6), 0).inputs
        for image, original in zip(inputs.numpy(), part.inputs, strict=True):
            mirrored = np.array_equal(image, original[:, :, ::-1])
            assert mirrored or np.array_equal(image, original)
            flipped += mirrored
    assert 40 < flipped < 80


def test_alternating_flips_mirror_each_image_in_every_second_epoch():
    part = images(n=200)
    source = BatchSource(part, CPU, LoopConfig(flip=True, flip_order="alternating", seed=3))

    def mirrored(epoch):
        pixels = source.batch(np.arange(200), epoch)[0].numpy()
        turned = (pixels == part.inputs[:, :, :, ::-1]).all((1, 2, 3))
        assert ((pixels == part.inputs).all((1, 2, 3)) ^ turned).all()
        return turned

    first = mirrored(0)
    assert 70 < first.sum() < 130
    assert np.array_equal(mirrored(1), ~first)
    assert np.array_equal(mirrored(4), first)
    other = BatchSource(part, CPU, LoopConfig(flip=True, flip_order="alternating", seed=4))
    assert not np.array_equal(other.batch(np.arange(200), 0)[0], source.batch(np.arange(200), 0)[0])


def test_every_image_is_moved_by_a_step_and_mirrored_at_the_edge():
    part = images()
    source = BatchSource(part, CPU, LoopConfig(translate=2))
    padded = np.pad(part.inputs, ((0, 0), (0, 0), (2, 2), (2, 2)), mode="reflect")
    shifts = {(dy, dx): padded[:, :, dy : dy + 5, dx : dx + 7] for dy in range(5) for dx in range(5)}
    torch.manual_seed(0)
    seen = set()
    for _ in range(40):
        inputs = source.batch(np.arange(6), 0).inputs
        assert inputs.is_contiguous(memory_format=torch.channels_last)
        for place, image in enumerate(inputs.numpy()):
            found = [shift for shift, moved in shifts.items() if np.array_equal(image, moved[place])]
            assert len(found) == 1
            seen.add(found[0])
    assert len(seen) == 25


def test_rows_are_left_alone():
    part = Part(np.arange(12, dtype=np.float32).reshape(4, 3), np.arange(4))
    inputs, labels, *_ = BatchSource(part, CPU, LoopConfig(flip=True, translate=3)).batch(np.array([2, 0]), 0)
    assert inputs.tolist() == [[6, 7, 8], [0, 1, 2]]
    assert labels.tolist() == [2, 0]


def test_a_translation_larger_than_the_image_is_survived():
    source = BatchSource(images(height=2, width=2), CPU, LoopConfig(translate=9))
    assert source.batch(np.arange(6), 0)[0].shape == (6, 3, 2, 2)


def test_weights_come_with_their_samples():
    part = replace(images(), weights=np.array([1.0, 2.0, 0.5, 4.0, 8.0, 3.0]))
    assert BatchSource(part, CPU, LoopConfig()).batch(np.array([4, 1, 1]), 0).weights.tolist() == [8, 2, 2]


def test_places_are_those_of_the_samples_after_the_first_quarter_of_the_epochs():
    source = BatchSource(images(), CPU, LoopConfig(epochs=9))
    found = [source.batch(np.array([4, 1]), epoch).places for epoch in range(4)]
    assert found[:2] == [None, None]
    assert [places.tolist() for places in found[2:]] == [[4, 1], [4, 1]]
    assert BatchSource(images(), CPU, LoopConfig(epochs=1)).batch(np.array([2]), 0).places.tolist() == [2]
