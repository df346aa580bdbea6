"""Stored splits: images keep their parts in a folder that changes, and damaged files are rejected."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deeplda.data import load_data
from deeplda.data.folder import folder_changes
from deeplda.data.stored_split import SPLIT_FILE, read_split
from deeplda.errors import InputError

PARTS = ("train", "val", "test")


def save(file: Path, seed: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (3, 4), dtype=np.uint8)).save(file)


def photos(root: Path, count: int = 40, start: int = 0) -> Path:
    for place in range(start, start + count):
        save(root / ("cat", "dog")[place % 2] / f"p{place // 4}-{place}.png", place)
    return root


@pytest.fixture
def folder(tmp_path):
    """A folder of 40 images."""
    return photos(tmp_path / "photos")


def stored(data, tmp_path):
    """Write a split and read it again."""
    (tmp_path / SPLIT_FILE).write_text(data.split.to_jsonl())
    return read_split(tmp_path / SPLIT_FILE)


def files(data):
    return {part: set(getattr(data, part).files) for part in PARTS}


def test_a_split_is_read_as_it_was_written(folder, tmp_path):
    data = load_data(folder, group_by=r"p\d+")
    split = stored(data, tmp_path)
    assert (split.class_names, split.shape, split.files) == (("cat", "dog"), (1, 3, 4), data.split.files)
    for name in ("digests", "groups", "parts"):
        np.testing.assert_array_equal(getattr(split.assignment, name), getattr(data.split.assignment, name))
    written = {part: {f for f, p in zip(split.files, split.assignment.parts, strict=True) if PARTS[p] == part}
               for part in PARTS}  # fmt: skip
    assert written == files(data)
    assert len((tmp_path / SPLIT_FILE).read_text().splitlines()) == 41


@pytest.mark.parametrize("exact", [False, True])
def test_an_unchanged_folder_gives_the_same_data(folder, tmp_path, exact):
    data = load_data(folder)
    again = load_data(folder, split=stored(data, tmp_path), exact=exact)
    assert again.fingerprint == data.fingerprint
    assert (again.changed, again.notes) == (False, ())
    assert folder_changes(folder, data.split) is None


def test_added_images_never_move_others_and_only_test_images_count(folder, tmp_path):
    data = load_data(folder)
    split = stored(data, tmp_path)
    photos(folder, count=200, start=40)
    before, after = files(data), load_data(folder, split=split)
    assert files(after)["train"] == before["train"]
    assert files(after)["val"] == before["val"]
    added = files(after)["test"] - before["test"]
    assert files(after)["test"] >= before["test"]
    assert 15 <= len(added) <= 45
    assert after.changed
    assert f"200 new images ({len(added)} of them in the test part), 0 removed, 0 changed" in after.notes[0]
    assert folder_changes(folder, split) == "200 new images, 0 removed, 0 changed"
    # A new split of the larger folder, which earlier versions made, moves training images into the test set.
    seeded = load_data(folder, split="seed")
    assert files(seeded)["test"] & before["train"]


def test_removed_changed_moved_and_copied_images(folder, tmp_path):
    data = load_data(folder)
    split, before = stored(data, tmp_path), files(data)
    removed, changed, moved, copied = sorted(before["train"])[:4]
    (folder / removed).unlink()
    save(folder / changed, 1000)
    (folder / moved).rename(folder / "cat" / "moved.png")
    (folder / "cat" / "copy.png").write_bytes((folder / copied).read_bytes())
    tested = sorted(before["test"])[0]
    save(folder / tested, 1001)
    after = load_data(folder, split=split)
    assert files(after)["train"] == before["train"] - {removed, changed, moved} | {"cat/moved.png"}
    assert files(after)["test"] == before["test"]
    assert "0 new images, 1 removed, 2 changed" in after.notes[0]


def test_a_changed_training_image_is_never_tested(folder, tmp_path):
    data = load_data(folder)
    split, before = stored(data, tmp_path), files(data)
    for place, file in enumerate(sorted(before["train"] | before["val"])):
        save(folder / file, 2000 + place)
    after = load_data(folder, split=split)
    assert files(after) == {"train": set(), "val": set(), "test": before["test"]}


def test_an_exact_split_ignores_added_images_and_rejects_others(folder, tmp_path):
    data = load_data(folder)
    split = stored(data, tmp_path)
    photos(folder, count=6, start=40)
    save(folder / "emu" / "0.png", 500)
    Image.fromarray(np.zeros((9, 9, 3), dtype=np.uint8)).save(folder / "cat" / "colour.png")
    again = load_data(folder, split=split, exact=True)
    assert again.fingerprint == data.fingerprint
    assert "ignored: the class emu (1 image), which the model does not have" in again.notes
    assert any("ignored: 7 images" in note and "added since" in note for note in again.notes)
    one, other = (folder / file for file in sorted(files(data)["train"])[:2])
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    with pytest.raises(InputError, match=rf"has changed since the run started \(1 image changed, such as .*{one.name}"):
        load_data(folder, split=split, exact=True)
    one.write_text("broken")
    with pytest.raises(InputError, match=rf"has changed since the run started \(.*{one.name} cannot be read"):
        load_data(folder, split=split, exact=True)
    one.unlink()
    with pytest.raises(InputError, match=rf"has changed since the run started \(1 image missing, such as .*{one.name}"):
        load_data(folder, split=split, exact=True)
    one.write_bytes(content)
    assert load_data(folder, split=split, exact=True).fingerprint == data.fingerprint


def test_new_images_of_a_group_follow_it(folder, tmp_path):
    """Groups are p0, p1, ...; four images in two classes each."""
    data = load_data(folder, group_by=r"p(\d+)-")
    split = stored(data, tmp_path)

    def part_of(found):
        return {file.split("/")[1].split("-")[0]: part for part in PARTS for file in files(found)[part]}

    assert all(
        len({part for part in PARTS if any(f"/{g}-" in f for f in files(data)[part])}) == 1 for g in part_of(data)
    )
    assert data.notes == ("group_by found 10 groups in 40 images",)
    for group in part_of(data):
        save(folder / "cat" / f"{group}-new.png", 3000 + int(group[1:]))
    after = load_data(folder, split=split, group_by=r"p(\d+)-")
    tested = {group for group, part in part_of(data).items() if part == "test"}
    assert tested
    assert {file for file in files(after)["test"] if "new" in file} == {f"cat/{group}-new.png" for group in tested}


def test_parts_of_the_users_own_are_kept(tmp_path):
    photos(tmp_path / "photos" / "train")
    photos(tmp_path / "photos" / "test", count=8, start=100)
    (tmp_path / "photos" / "test" / "cat" / "leak.png").write_bytes(
        (tmp_path / "photos" / "train" / "cat" / "p0-0.png").read_bytes()
    )
    data = load_data(tmp_path / "photos")
    assert Counter(map(len, files(data).values())) == Counter([34, 6, 9])
    assert all(file.startswith("test/") for file in files(data)["test"])
    assert "train/cat/p0-0.png" in files(data)["train"]
    assert any("1 of the test images have the same content as a training image" in note for note in data.notes)
    split = stored(data, tmp_path)
    photos(tmp_path / "photos" / "test", count=8, start=200)
    photos(tmp_path / "photos" / "train", count=20, start=300)
    after = load_data(tmp_path / "photos", split=split)
    assert files(after)["train"] == files(data)["train"]
    assert len(after.test) == 17
    # An image that was trained on does not become a test image in another folder.
    trained = sorted(files(data)["train"])[1]
    (tmp_path / "photos" / trained).rename(tmp_path / "photos" / "test" / "cat" / "x.png")
    assert "test/cat/x.png" in files(load_data(tmp_path / "photos", split=split))["train"]


def test_duplicates_with_different_labels_are_reported(folder):
    (folder / "dog" / "copy.png").write_bytes((folder / "cat" / "p0-0.png").read_bytes())
    data = load_data(folder)
    assert any("1 image with identical copies in other classes: cat/p0-0.png = dog/copy.png" in n for n in data.notes)
    assert any({"cat/p0-0.png", "dog/copy.png"} <= part for part in files(data).values())


def test_a_class_that_is_gone_and_images_of_other_sizes(folder, tmp_path):
    data = load_data(folder)
    split = stored(data, tmp_path)
    for file in (folder / "dog").iterdir():
        file.unlink()
    Image.fromarray(np.zeros((30, 20, 3), dtype=np.uint8)).save(folder / "cat" / "colour.png")
    after = load_data(folder, split=split)
    assert after.class_names == ("cat", "dog")
    assert after.sample_shape == (1, 3, 4)
    assert set(after.test.labels) == {0}


def lines_of(split):
    return [json.loads(line) for line in split.to_jsonl().splitlines()]


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[:-1],
        lambda lines: [*lines, lines[-1]],
        lambda lines: lines[:1],
        lambda lines: lines[:0],
        lambda lines: [lines[0] | {"version": 2}, *lines[1:]],
        lambda lines: [lines[0] | {"shape": [2, 3, 4]}, *lines[1:]],
        lambda lines: [lines[0] | {"shape": [1, 0, 4]}, *lines[1:]],
        lambda lines: [lines[0] | {"classes": ["a", "a"]}, *lines[1:]],
        lambda lines: [lines[0], lines[1] | {"part": "Test"}, *lines[2:]],
        lambda lines: [lines[0], lines[1] | {"hash": "x" * 32}, *lines[2:]],
        lambda lines: [lines[0], lines[1] | {"extra": 1}, *lines[2:]],
        lambda lines: [lines[0], lines[1] | {"file": lines[2]["file"]}, *lines[2:]],
    ],
)
def test_damaged_splits_are_rejected(folder, tmp_path, change):
    lines = change(lines_of(load_data(folder).split))
    (tmp_path / SPLIT_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(InputError, match=r"split\.jsonl is damaged \(.*\): restore it, or train again"):
        read_split(tmp_path / SPLIT_FILE)


def test_a_split_that_declares_huge_images(folder, tmp_path):
    header, *lines = lines_of(load_data(folder).split)
    header["shape"] = [3, 2**31 - 1, 2**31 - 1]
    (tmp_path / SPLIT_FILE).write_text("".join(json.dumps(line) + "\n" for line in (header, *lines)))
    with pytest.raises(InputError, match="does not fit in memory"):
        load_data(folder, split=read_split(tmp_path / SPLIT_FILE))
