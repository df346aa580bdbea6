"""The split of a grown folder for a run that starts from an earlier one: nothing that was trained on is tested."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deeplda.data import load_data
from deeplda.data.folder_options import Grown
from deeplda.errors import InputError

PARTS = ("train", "val", "test")


def save(file: Path, seed: int, shape: tuple[int, ...] = (4, 4)) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)).save(file)


def photos(root: Path, places: range, names: tuple[str, ...] = ("cat", "dog")) -> Path:
    for place in places:
        save(root / names[place % len(names)] / f"p{place // 4}-{place}.png", place)
    return root


@pytest.fixture
def folder(tmp_path):
    """A folder of 60 images."""
    return photos(tmp_path / "photos", range(60))


def files(data):
    return {part: set(getattr(data, part).files) for part in PARTS}


def contents(data, *parts):
    return {digest for part in parts for digest in getattr(data, part).digests.tolist()}


def test_old_images_keep_their_parts_and_all_others_get_one(folder):
    before = load_data(folder)
    photos(folder, range(60, 260))
    photos(folder, range(300, 340), ("emu",))
    after = load_data(folder, split=Grown(before.split))
    assert after.class_names == ("cat", "dog", "emu")
    assert all(files(before)[part] < files(after)[part] for part in PARTS)
    assert sum(map(len, files(after).values())) == 300
    assert not contents(after, "test") & contents(before, "train", "val")
    # Both runs are tested on the same images of the classes that both know.
    evaluated = load_data(folder, split=before.split)
    assert files(evaluated)["test"] == {file for file in files(after)["test"] if not file.startswith("emu")}
    # The new class is split exactly, as in a new run.
    counts = {part: sum(file.startswith("emu") for file in files(after)[part]) for part in PARTS}
    assert counts == {"train": 28, "val": 6, "test": 6}
    new = len(files(after)["test"] - files(before)["test"])
    assert f"keep their parts: 240 new images ({new} of them in the test part), 0 removed, 0 changed" in after.notes[0]
    # What the run stores is what it was given: an unchanged folder has the same split.
    assert load_data(folder, split=after.split, exact=True).fingerprint == after.fingerprint


def test_a_new_split_would_test_images_that_were_trained_on(folder):
    """The leak that `Grown` prevents, to see that these tests could find it."""
    before = load_data(folder)
    photos(folder, range(60, 260))
    assert contents(load_data(folder), "test") & contents(before, "train", "val")


def test_a_folder_without_old_images_is_split_as_for_a_new_run(folder, tmp_path):
    other = photos(tmp_path / "other", range(500, 560), ("cat", "fox"))
    found = load_data(other, split=Grown(load_data(folder).split))
    assert found.fingerprint == load_data(other).fingerprint


def test_renamed_copied_relabelled_and_changed_training_images_are_not_tested(folder):
    before = load_data(folder)
    trained = sorted(files(before)["train"])
    for place, file in enumerate(trained):
        renamed, action = folder / "dog" / f"renamed-{place}.png", place % 4
        if action == 0:
            (folder / file).rename(renamed)
        elif action == 1:
            renamed.write_bytes((folder / file).read_bytes())
        elif action == 2:
            save(folder / file, 1000 + place)
        else:
            (folder / "emu").mkdir(exist_ok=True)
            (folder / file).rename(folder / "emu" / f"{place}.png")
    after = load_data(folder, split=Grown(before.split))
    assert files(after)["test"] == files(before)["test"]
    assert len(files(after)["train"]) == len(trained) + len(range(1, len(trained), 4))


@pytest.mark.parametrize("before_by", [r"p(\d+)-", None])
def test_added_images_of_a_group_follow_it_also_in_a_new_class(folder, before_by):
    """Without a pattern in the earlier run, its images have no groups, but those of the new run's pattern count."""
    before = load_data(folder, group_by=before_by)

    def groups(data, part):
        return {file.split("/")[1].split("-")[0] for file in files(data)[part]}

    trained = groups(before, "train")
    for group in {group for part in PARTS for group in groups(before, part)}:
        save(folder / "cat" / f"{group}-added.png", 2000 + int(group[1:]))
        save(folder / "emu" / f"{group}-added.png", 3000 + int(group[1:]))
    # A group of its own with images of a known class and of the new one stays together.
    for place in range(20):
        save(folder / ("cat", "emu")[place % 2] / f"p{100 + place // 4}-x{place}.png", 4000 + place)
    after = load_data(folder, split=Grown(before.split), group_by=r"p(\d+)-")
    added = {file for file in files(after)["test"] if "added" in file}
    assert not {file for file in added if file.split("/")[1].split("-")[0] in trained}
    parts = Counter(
        (part, file.split("/")[1].split("-")[0]) for part in PARTS for file in files(after)[part] if "-x" in file
    )
    assert set(parts.values()) == {4}


def test_samples_have_the_shape_of_the_earlier_run(folder):
    before = load_data(folder)
    save(folder / "cat" / "colour.png", 5000, (9, 7, 3))
    assert load_data(folder, split=Grown(before.split)).sample_shape == (1, 4, 4)
    assert load_data(folder, split=Grown(before.split), image_size=6).sample_shape == (1, 6, 6)


def test_parts_of_the_users_own_are_kept_unless_they_were_trained_on(tmp_path):
    root = tmp_path / "photos"
    for part, places in (("train", range(40)), ("test", range(40, 48))):
        photos(root / part, places)
    before = load_data(root)
    moved = sorted(file for file in files(before)["train"] if "cat" in file)[0]
    (root / moved).rename(root / "test" / "cat" / "moved.png")
    photos(root / "test", range(48, 52))
    after = load_data(root, split=Grown(before.split))
    assert "test/cat/moved.png" in files(after)["train"]
    assert len(files(after)["test"]) == 12
    assert any("1 image in val or test folders" in note for note in after.notes)


def test_a_grown_folder_without_test_images_is_rejected(folder):
    before = load_data(folder)
    for file in files(before)["test"]:
        (folder / file).unlink()
    with pytest.raises(InputError, match="too few to split off a test set"):
        load_data(folder, split=Grown(before.split))
