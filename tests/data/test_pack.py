"""Packs are read as they were written, without their pixels, and damaged ones are rejected."""

import hashlib
import json
import os
import shutil
import tracemalloc

import numpy as np
import pytest
import torch
from image_folders import photos

from deeplda import memory
from deeplda.data import check_data, load_data, open_pack, pack_data
from deeplda.data.mapped_rows import MappedRows, is_mapped
from deeplda.data.pack_index import IMAGES_FILE, INDEX_FILE
from deeplda.data.sources import load_labelled, source_changes
from deeplda.errors import InputError
from deeplda.normalisation import Normalisation
from deeplda.training.batches import BatchSource
from deeplda.training.config import LoopConfig

PARTS = ("train", "val", "test")


@pytest.fixture
def home(tmp_path):
    """A folder of 60 images, and a pack of it."""
    pack_data(photos(tmp_path / "photos", range(60)), tmp_path / "photos.pack")
    return tmp_path


def assert_same(packed, folder):
    assert (packed.class_names, packed.sample_shape, packed.left_out) == (folder.class_names, folder.sample_shape, ())
    for name in PARTS:
        one, other = getattr(packed, name), getattr(folder, name)
        assert isinstance(one.inputs, MappedRows)
        np.testing.assert_array_equal(np.asarray(one.inputs), other.inputs)
        np.testing.assert_array_equal(one.labels, other.labels)
        np.testing.assert_array_equal(one.digests, other.digests)
        assert one.files == other.files


@pytest.mark.parametrize("options", [{}, {"split_seed": 3}, {"group_by": r"(\d\d)\d\.png"}], ids=str)
def test_a_pack_is_split_like_its_folder(home, options):
    folder, packed = load_data(home / "photos", **options), load_data(home / "photos.pack", **options)
    assert_same(packed, folder)
    assert packed.fingerprint == folder.fingerprint
    assert packed.split.to_jsonl() == folder.split.to_jsonl()


def test_parts_of_the_folder_are_those_of_the_pack(tmp_path):
    photos(tmp_path / "photos", range(10), ("training", "test"))
    pack_data(tmp_path / "photos", tmp_path / "out")
    assert_same(load_data(tmp_path / "out"), load_data(tmp_path / "photos"))
    names = {"class_names": ("cat", "dog"), "sample_shape": (3, 4, 5)}
    assert load_labelled(tmp_path / "out", **names).split == "test"
    assert len(load_labelled(tmp_path / "out", **names).part) == 10


@pytest.mark.parametrize("exact", [False, True])
def test_a_stored_split_means_the_same_for_both(home, exact):
    split = load_data(home / "photos").split
    photos(home / "photos", range(60, 100))
    pack_data(home / "photos", home / "photos.pack")
    folder, packed = (load_data(home / name, split=split, exact=exact) for name in ("photos", "photos.pack"))
    assert packed.changed == folder.changed
    # The images that were added are at the end of the pack, so only the exact split has the same order.
    assert (packed.fingerprint == folder.fingerprint) == exact
    for name in PARTS:
        assert set(getattr(packed, name).files) == set(getattr(folder, name).files)
    assert source_changes(home / "photos.pack", split) == source_changes(home / "photos", split)


def test_a_stored_split_of_another_shape_is_rejected(home):
    split = load_data(home / "photos", image_size=3).split
    with pytest.raises(InputError, match="has images of 3 x 4 x 5 pixels, but those of the run have 3 x 3 x 3"):
        load_data(home / "photos.pack", split=split)


def test_other_sizes_are_resized_in_memory(home):
    data = load_data(home / "photos.pack", image_size=7)
    assert data.sample_shape == (3, 7, 7)
    assert isinstance(data.train.inputs, np.ndarray)
    labelled = load_labelled(home / "photos.pack", class_names=("dog",), sample_shape=(3, 2, 2))
    assert (labelled.part.inputs.shape, labelled.split) == ((30, 3, 2, 2), "all")


def test_open_pack_maps_images_for_an_estimator(home):
    pack = open_pack(home / "photos.pack")
    assert is_mapped(pack.images)
    assert not pack.images.flags.writeable
    assert (pack.images.shape, pack.class_names, pack.files[1]) == ((60, 3, 4, 5), ("cat", "dog"), "cat/002.png")
    np.testing.assert_array_equal(pack.labels, [0] * 30 + [1] * 30)


def test_nothing_is_loaded(tmp_path):
    """Images of 87 MB: reading, splitting, the fingerprint, the normalisation and a batch take a fraction of it."""
    images = np.random.default_rng(0).integers(0, 256, (900, 3, 180, 180), dtype=np.uint8)
    np.savez(tmp_path / "x.npz", x_train=images, y_train=np.arange(900) % 3)
    pack_data(tmp_path / "x.npz", tmp_path / "x.pack")
    tracemalloc.start()
    try:
        data = load_data(tmp_path / "x.pack").without_validation()
        assert len(data.fingerprint) == 32
        batch = BatchSource(data.train, torch.device("cpu"), LoopConfig()).batch(np.arange(10), 0)
        assert len(batch.inputs) == 10
        assert len(Normalisation(data.sample_shape).fit(data.train.inputs).mean) == 3
        _, lazy = tracemalloc.get_traced_memory()
        assert np.asarray(data.train.inputs).nbytes > images.nbytes / 2
        _, loaded = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The normalisation converts pieces of 16 MB.
    assert lazy < images.nbytes / 2 < loaded


def test_known_sets_and_arrays_are_packed_with_names_like_files(tmp_path):
    pack_data("digits", tmp_path / "digits.pack")
    pack, digits = open_pack(tmp_path / "digits.pack"), load_data("digits")
    assert (len(pack.files), pack.files[0], pack.class_names) == (1797, "train/0/0000000", digits.class_names)
    everything = np.concatenate([digits.train.inputs, digits.val.inputs, digits.test.inputs])
    assert pack.images.astype(int).sum() == everything.astype(int).sum()
    assert [len(part) for part in (load_data(tmp_path / "digits.pack").test, digits.test)] == [270, 270]
    rows = np.zeros((4, 2))
    np.savez(tmp_path / "rows.npz", x_train=rows, y_train=np.arange(4) % 2)
    with pytest.raises(InputError, match="need images of 1 or 3 channels"):
        pack_data(tmp_path / "rows.npz", tmp_path / "rows.pack")
    with pytest.raises(InputError, match="is a pack already"):
        pack_data(tmp_path / "digits.pack", tmp_path / "again.pack")


def test_check_reads_every_pixel(home):
    rows = check_data(home / "photos.pack")
    assert [(row.found, row.ok) for row in rows] == [("train, cat: 30 images", True), ("train, dog: 30 images", True)]
    content = bytearray((home / "photos.pack" / IMAGES_FILE).read_bytes())
    content[len(content) // 2] ^= 1
    (home / "photos.pack" / IMAGES_FILE).write_bytes(content)
    (broken,) = [row.found for row in check_data(home / "photos.pack") if not row.ok]
    assert broken == "the pixels of 60 images from cat/000.png on are damaged"
    load_data(home / "photos.pack")  # only the index is verified at every start


def test_any_damage_of_the_index_is_noticed(home):
    file = home / "photos.pack" / INDEX_FILE
    whole = file.read_bytes()
    lines = whole.splitlines(keepends=True)
    wrong = [whole.replace(b"cat", b"cut", 1), b"".join([lines[0], *lines[2:]]), b"\n" + whole, whole + b"x\n"]
    wrong += [whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :] for place in range(0, len(whole) - 1, 97)]
    for content in wrong:
        file.write_bytes(content)
        with pytest.raises(InputError, match="is damaged"):
            open_pack(home / "photos.pack")


def with_lines(pack, *changes):
    """Rewrite the lines of an index with right checksums; each change takes and returns the list of lines."""
    file = pack / INDEX_FILE
    lines = [json.loads(line.partition(" ")[2]) for line in file.read_text().splitlines()]
    for change in changes:
        lines = change(lines) or lines
    written, checksum = b"", ""
    for line in lines:
        text = json.dumps(line).encode()
        checksum = hashlib.sha256(checksum.encode() + text).hexdigest()
        written += b"%s %s\n" % (checksum.encode(), text)
    file.write_bytes(written)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda lines: lines[0].update(shape=[3, 40, 5]), "images.bin has 3,600 bytes instead of 36,000"),
        (lambda lines: lines[0].update(shape=[3, 0, 5]), "greater than or equal to 1"),
        (lambda lines: lines[0].update(shape=[3, 2**30, 2**30]), "does not fit in memory"),
        (lambda lines: lines[0].update(version=2), "Input should be 1"),
        (lambda lines: lines[1]["images"].append(lines[1]["images"][0]), "declares 60 images, but lists 61"),
        (lambda lines: lines[1]["images"][0].__setitem__(0, 9), "has no folder"),
        (lambda lines: lines[1]["images"][0].__setitem__(0, -1), "greater than or equal to 0"),
        (lambda lines: lines[1]["images"][0].__setitem__(1, lines[1]["images"][1][1]), "several with the same name"),
        (lambda lines: lines[2].update(classes=["cat"]), "contradict each other"),
        (lambda lines: lines[2].update(classes=["cat", "dog", "dog"]), "contradict each other"),
        (lambda lines: lines[:2], "is incomplete: run the deeplda data pack command again"),
        (lambda lines: [lines[0], lines[2] | {"images": 0}], "has no images"),
    ],
)
def test_an_index_that_lies_is_rejected(home, change, complaint):
    with_lines(home / "photos.pack", change)
    with pytest.raises(InputError, match=complaint):
        open_pack(home / "photos.pack")


def test_files_that_are_missing_or_too_large_are_rejected(home, monkeypatch):
    pack = home / "photos.pack"
    (pack / IMAGES_FILE).rename(pack / "elsewhere")
    with pytest.raises(InputError, match="cannot be read"):
        open_pack(pack)
    os.mkfifo(pack / IMAGES_FILE)
    with pytest.raises(InputError, match="cannot be read"):
        open_pack(pack)
    with (pack / INDEX_FILE).open("r+b") as stream:
        stream.truncate(2**40)
    with pytest.raises(InputError, match="more than 1,073,741,824"):
        open_pack(pack)
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    shutil.rmtree(pack)
    monkeypatch.undo()
    pack_data(home / "photos", pack)
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    with pytest.raises(InputError, match="does not fit in memory"):
        open_pack(pack)
