"""Writing packs: killed at any moment and resumed, they end in the same bytes; images that were added are appended."""

import json
import os
import shutil

import numpy as np
import pytest
from image_folders import photos, save

from deeplda.data import load_data, open_pack, pack_data, pack_writer
from deeplda.data.pack_index import IMAGES_FILE, INDEX_FILE
from deeplda.errors import InputError
from deeplda.output_folder import OutputFolder


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(pack_writer, "_MOST_IMAGES", 4)


@pytest.fixture
def folder(tmp_path):
    """A folder of 22 images and two broken files, one of them in the first block."""
    photos(tmp_path / "photos", range(22))
    for name in ("cat/001.png", "dog/100.png"):
        (tmp_path / "photos" / name).write_bytes(b"broken")
    return tmp_path / "photos"


def pack(folder, out, **options):
    return pack_data(folder, out, skip_unreadable=True, **options)


def contents(out):
    return {name: (out / name).read_bytes() for name in (IMAGES_FILE, INDEX_FILE)}


def test_killed_at_every_write_and_resumed(folder, tmp_path, monkeypatch):
    """The process is killed before the n-th flush to disk, with what it wrote until then."""
    pack(folder, tmp_path / "whole")
    whole, flush, kills = contents(tmp_path / "whole"), os.fsync, 0
    for moment in range(100):
        count = iter(range(1000))

        def fsync(descriptor, moment=moment, count=count):
            if next(count) == moment:
                raise Killed
            flush(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        out = tmp_path / f"killed-{moment}"
        try:
            pack(folder, out)
            break
        except Killed:
            kills += 1
        if moment < 13:
            with pytest.raises(InputError, match="incomplete"):
                open_pack(out)
        monkeypatch.setattr(os, "fsync", flush)
        pack(folder, out)
        assert contents(out) == whole
    assert kills == 14  # the first line, the pixels and the line of each of six blocks, and the last line


def test_whatever_is_left_of_the_last_write_is_replaced(folder, tmp_path):
    """Of the index, every line may be cut off; images.bin may have any number of bytes more than the index needs."""
    pack(folder, tmp_path / "whole")
    whole, size = contents(tmp_path / "whole"), 3 * 4 * 5
    lines = whole[INDEX_FILE].splitlines(keepends=True)
    rng, images = np.random.default_rng(0), 0
    for place, line in enumerate(lines):
        for cut in {0, 1, len(line) // 2, len(line) - 1}:
            out = tmp_path / "out"
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            (out / INDEX_FILE).write_bytes(b"".join(lines[:place]) + line[:cut])
            (out / IMAGES_FILE).write_bytes(whole[IMAGES_FILE][: images * size] + rng.bytes(rng.integers(500)))
            with pytest.raises(InputError, match="incomplete"):
                open_pack(out)
            pack(folder, out)
            assert contents(out) == whole
        images += len(json.loads(line.partition(b" ")[2]).get("images", [])) if 0 < place < len(lines) - 1 else 0


def test_new_images_are_appended_and_nothing_is_moved(folder, tmp_path):
    out = tmp_path / "out"
    first = pack(folder, out)
    before, old = contents(out), open_pack(out)
    assert (first.added, first.images) == (22, 22)
    assert pack(folder, out).added == 0
    assert contents(out) == before
    photos(folder, range(30, 40))
    save(folder / "bird" / "1.png", 1)
    save(folder / "bird" / "2.png", 2)
    assert (pack(folder, out).added, pack(folder, out).added) == (12, 0)
    after = contents(out)
    assert all(after[name].startswith(before[name]) and len(after[name]) > len(before[name]) for name in before)
    new = open_pack(out)
    assert new.files[:22] == old.files
    np.testing.assert_array_equal(new.images[:22], old.images)
    assert new.class_names == ("bird", "cat", "dog")
    assert [new.class_names[label] for label in new.labels] == [file.partition("/")[0] for file in new.files]
    both = load_data(out, skip_unreadable=True), load_data(folder, skip_unreadable=True)
    assert {*both[0].test.files} == {*both[1].test.files}


def test_an_interrupted_append_leaves_the_pack_as_it_was(folder, tmp_path, monkeypatch):
    out = tmp_path / "out"
    pack(folder, out)
    old = open_pack(out)
    photos(folder, range(30, 50))
    append, calls = OutputFolder.append_lines, iter(range(100))

    def append_lines(self, name, lines):
        if next(calls) == 2:
            raise Killed
        append(self, name, lines)

    monkeypatch.setattr(OutputFolder, "append_lines", append_lines)
    with pytest.raises(Killed):
        pack(folder, out)
    assert (out / IMAGES_FILE).stat().st_size == (22 + 12) * 60
    now = open_pack(out)
    assert (now.files, now.images.shape) == (old.files, old.images.shape)
    monkeypatch.undo()
    pack(folder, out)
    assert len(open_pack(out).files) == 42


def test_a_broken_file_that_is_repaired_is_packed(folder, tmp_path):
    out = tmp_path / "out"
    assert [note.partition("/photos/")[2][:11] for note in pack(folder, out).notes] == ["cat/001.png", "dog/100.png"]
    assert load_data(out).left_out == ("cat/001.png", "dog/100.png")
    save(folder / "cat" / "001.png", 5)
    assert pack(folder, out).added == 1
    assert load_data(out).left_out == ("dog/100.png",)


def test_too_many_broken_files_leave_the_pack_incomplete(folder, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(InputError, match="1 of 12 images of the class cat are broken"):
        pack_data(folder, out)
    with pytest.raises(InputError, match="incomplete"):
        open_pack(out)
    for name in ("cat/001.png", "dog/100.png"):
        (folder / name).unlink()
    assert pack_data(folder, out).images == 22
    (folder / "cat/001.png").write_bytes(b"broken")
    with pytest.raises(InputError, match="cannot be read"):
        pack_data(folder, out, strict=True)
    assert len(open_pack(out).files) == 22


def test_removed_and_changed_images_are_rejected(folder, tmp_path):
    out = tmp_path / "out"
    pack(folder, out)
    before = contents(out)
    save(folder / "cat" / "004.png", 99)
    with pytest.raises(
        InputError, match=r"1 image of .*out have changed .* such as cat/004.png: pack the images into a"
    ):
        pack(folder, out)
    (folder / "cat" / "004.png").unlink()
    with pytest.raises(InputError, match=r"are missing there, such as cat/004\.png"):
        pack(folder, out)
    assert contents(out) == before


def test_other_sizes_and_colours_are_rejected(tmp_path):
    folder, out = photos(tmp_path / "photos", range(6), shape=(4, 5)), tmp_path / "out"
    pack(folder, out)
    with pytest.raises(InputError, match="has images of 5 x 4 pixels, which were not resized: omit --image-size"):
        pack(folder, out, image_size=4)
    save(folder / "cat" / "large.png", 0, (6, 5))
    with pytest.raises(InputError, match="has images of 5 x 4 pixels, but new ones have 5 x 6"):
        pack(folder, out)
    (folder / "cat" / "large.png").unlink()
    save(folder / "cat" / "colour.png", 0, (4, 5, 3))
    with pytest.raises(InputError, match="has greyscale images, but there are new colour images"):
        pack(folder, out)


def test_resized_packs_take_images_of_any_size(tmp_path):
    folder, out = photos(tmp_path / "photos", range(6)), tmp_path / "out"
    pack(folder, out, image_size=8)
    save(folder / "cat" / "large.png", 0, (60, 50, 3))
    assert pack(folder, out).added == 1
    with pytest.raises(InputError, match="has images of 8 x 8 pixels: omit --image-size, or pack into a new folder"):
        pack(folder, out, image_size=9)
    np.testing.assert_array_equal(
        np.sort(np.asarray(open_pack(out).images), axis=0),
        np.sort(
            np.concatenate([getattr(load_data(folder, image_size=8), p).inputs for p in ("train", "val", "test")]), 0
        ),
    )


def test_other_folders_and_full_disks_are_left_alone(folder, tmp_path, monkeypatch):
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "letter").write_text("precious")
    with pytest.raises(InputError, match="contains 'letter', which is not part of a pack"):
        pack(folder, tmp_path / "documents")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 100, 100))
    with pytest.raises(InputError, match=r"the images take 0.0 GiB, but the disk of .*out has only 0.0 GiB left"):
        pack(folder, tmp_path / "out")


def test_only_one_writer_at_a_time(folder, tmp_path):
    pack(folder, tmp_path / "out")
    with OutputFolder.open(tmp_path / "out") as output, output.locked(".lock"):
        with pytest.raises(InputError, match="in use by another process"):
            pack(folder, tmp_path / "out")
        assert len(open_pack(tmp_path / "out").files) == 22
