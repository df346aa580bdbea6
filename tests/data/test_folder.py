"""Folders of images."""

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from deeplda import memory
from deeplda.data import check_data, folder, load_data
from deeplda.data.folder_options import FolderOptions
from deeplda.data.listing import list_images
from deeplda.data.sources import outline_images
from deeplda.errors import InputError


def pixels(seed: int, shape: tuple[int, ...] = (5, 6, 3)) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def save(path: Path, image: NDArray[np.uint8]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path)
    return path


def photos(root: Path, parts: tuple[str, ...] = ("",), n: int = 10, shape: tuple[int, ...] = (5, 6, 3)) -> Path:
    for p, part in enumerate(parts):
        for c, name in enumerate(("cat", "dog")):
            for i in range(n):
                save(root / part / name / f"{i:02}.png", pixels(1000 * p + 100 * c + i, shape))
    return root


def test_every_pixel_in_sorted_order(tmp_path: Path) -> None:
    source = folder.read_folder(photos(tmp_path / "pets"), FolderOptions(split="seed"))
    assert (source.name, source.class_names, source.test, source.val) == ("pets", ("cat", "dog"), None, None)
    expected = np.stack([pixels(100 * c + i) for c in range(2) for i in range(10)]).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(source.train.inputs, expected)
    np.testing.assert_array_equal(source.train.labels, [0] * 10 + [1] * 10)
    assert source.train.files == tuple(f"{name}/{i:02}.png" for name in ("cat", "dog") for i in range(10))


def test_samples_keep_their_files_through_split_and_resize(tmp_path: Path) -> None:
    data = load_data(photos(tmp_path, n=20), image_size=5)
    for part in (data.train, data.val, data.test):
        assert part.files is not None
        for image, file in zip(part.inputs, part.files, strict=True):
            expected = np.asarray(Image.open(tmp_path / file).resize((5, 5), Image.Resampling.BILINEAR))
            np.testing.assert_array_equal(image, expected.transpose(2, 0, 1))


@pytest.mark.parametrize("val", ["val", "valid", "validation", "Val"])
def test_parts_as_given(tmp_path: Path, val: str) -> None:
    data = load_data(photos(tmp_path, ("train", val, "test"), n=3))
    for p, part in enumerate((data.train, data.val, data.test)):
        np.testing.assert_array_equal(part.inputs[4], pixels(1000 * p + 101).transpose(2, 0, 1))
        assert len(part) == 6


def test_missing_parts_are_split_off(tmp_path: Path) -> None:
    unsplit = load_data(photos(tmp_path / "a", n=100))
    assert [len(part) for part in (unsplit.train, unsplit.val, unsplit.test)] == [140, 30, 30]
    tested = load_data(photos(tmp_path / "b", ("train", "test"), n=20))
    assert [len(part) for part in (tested.train, tested.val, tested.test)] == [34, 6, 40]


def test_grey_only_if_all_are_grey(tmp_path: Path) -> None:
    photos(tmp_path, shape=(5, 6))
    assert load_data(tmp_path).sample_shape == (1, 5, 6)
    save(tmp_path / "dog" / "colour.png", pixels(7))
    assert load_data(tmp_path).sample_shape == (3, 5, 6)


def test_other_and_hidden_files_are_ignored_and_suffixes_may_be_upper_case(tmp_path: Path) -> None:
    photos(tmp_path)
    (tmp_path / "cat" / "notes.txt").write_text("x")
    (tmp_path / "cat" / "._00.png").write_text("x")
    (tmp_path / "README.md").write_text("x")
    (tmp_path / ".cache").mkdir()
    save(tmp_path / "cat" / "deeper" / "one.PNG", pixels(5))
    listing = list_images(tmp_path)
    assert listing.class_names == ("cat", "dog")
    assert len(listing.files) == 21


def test_sizes_must_agree_unless_resized(tmp_path: Path) -> None:
    photos(tmp_path)
    save(tmp_path / "dog" / "big.png", pixels(1, (9, 8, 3)))
    with pytest.raises(InputError, match=r"00\.png is 6 x 5 and .*big\.png is 8 x 9 pixels.*--image-size"):
        load_data(tmp_path)
    assert load_data(tmp_path, image_size=4).sample_shape == (3, 4, 4)


def test_a_few_broken_files_of_a_class_are_skipped_and_many_are_not(tmp_path: Path) -> None:
    photos(tmp_path, n=39)
    text, cut = tmp_path / "cat" / "text.jpg", save(tmp_path / "cat" / "zcut.png", pixels(1))
    text.write_text("not an image")
    data = load_data(tmp_path)
    assert data.left_out == (str(text),)
    assert [note for note in data.notes if "text.jpg cannot be read (unknown image format)" in note] == list(data.notes)
    assert sum(map(len, (data.train, data.val, data.test))) == 79
    with pytest.raises(InputError, match=r"text\.jpg cannot be read"):
        load_data(tmp_path, strict=True)
    # The header of the second one is intact; 3 of 42 are more than 5 %.
    for name in ("zcut.png", "zcut2.png"):
        (tmp_path / "cat" / name).write_bytes(cut.read_bytes()[:70])
    with pytest.raises(InputError, match=r"3 of 42 .* class cat .* at most 5%: .*--skip-unreadable; .*text\.jpg"):
        load_data(tmp_path)
    data = load_data(tmp_path, skip_unreadable=True)
    assert [Path(file).name for file in data.left_out] == ["text.jpg", "zcut.png", "zcut2.png"]
    assert sum(map(len, (data.train, data.val, data.test))) == 78


def test_every_ignored_file_is_accounted_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(tmp_path, ("train", "test"), n=4)
    for name in ("train/cat/a.TXT", "train/dog/b.txt", "test/dog/c.xcf", "train/cat/Makefile", "train/cat/.hidden"):
        (tmp_path / name).write_text("x")
    (tmp_path / "train" / "dog" / "phone.heic").write_text("x")
    save(tmp_path / "train" / "loose.png", pixels(1))
    monkeypatch.setattr("deeplda.data.images.is_installed", lambda _: False)
    assert list_images(tmp_path).notes == (
        "ignored: 1 image in no class folder, such as loose.png",
        "ignored: 2 .txt files (not a readable format)",
        "ignored: 1 file without an extension (not a readable format)",
        "ignored: 1 .heic file (HEIC needs an extra package: pip install 'deeplda[heic]')",
        "ignored: 1 .xcf file (not a readable format)",
    )
    for number in range(30):
        (tmp_path / "test" / "cat" / f"a.x{number}").write_text("x")
    assert list_images(tmp_path).notes[-1] == "ignored: 24 files with other extensions (not a readable format)"
    assert load_data(tmp_path).notes[:6] == list_images(tmp_path).notes[:6]


def test_a_class_of_heic_files_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(tmp_path)
    (tmp_path / "emu").mkdir()
    (tmp_path / "emu" / "a.heic").write_text("x")
    monkeypatch.setattr("deeplda.data.images.is_installed", lambda _: False)
    with pytest.raises(InputError, match=r"class emu .* no readable image.*1 \.heic file .*deeplda\[heic\]"):
        load_data(tmp_path)


def test_an_outline_comes_from_the_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(tmp_path, n=10)
    save(tmp_path / "dog" / "big.png", pixels(1, (9, 8, 3)))
    (tmp_path / "dog" / "broken.png").write_text("x")
    monkeypatch.setattr(folder, "decode_and_digest", lambda *_: pytest.fail("decoded"))
    found = folder.outline_folder(tmp_path)
    assert sorted(map(tuple, found.sizes.tolist())) == [(5, 6)] * 20 + [(9, 8)]
    assert found.classes == 2
    monkeypatch.setattr(folder, "_OUTLINED", 2)
    assert folder.outline_folder(tmp_path).sizes.tolist() == [[5, 6]]  # the last file is broken


@pytest.mark.parametrize("parts", [(), ("test",), ("val", "test")])
def test_an_outline_has_the_number_of_images_that_will_be_trained_on(tmp_path: Path, parts: tuple[str, ...]) -> None:
    photos(tmp_path, ("train", *parts), n=15)
    found = outline_images(tmp_path)
    assert found is not None
    assert found.images == len(load_data(tmp_path).train)


def test_a_class_without_readable_images(tmp_path: Path) -> None:
    photos(tmp_path)
    (tmp_path / "emu").mkdir()
    with pytest.raises(InputError, match=r"class emu .* no readable image"):
        load_data(tmp_path)
    (tmp_path / "emu" / "a.png").write_text("x")
    with pytest.raises(InputError, match=r"class emu .* no readable image"):
        load_data(tmp_path, skip_unreadable=True)


def test_images_that_are_all_the_same_cannot_be_split(tmp_path: Path) -> None:
    for name in ("a/1.png", "a/2.png", "b/1.png"):
        save(tmp_path / name, pixels(0))
    with pytest.raises(InputError, match="too few to split off a test set, need at least two samples of different"):
        load_data(tmp_path)


def test_classes_must_be_the_same_in_every_part(tmp_path: Path) -> None:
    photos(tmp_path, ("train", "test"), n=2)
    save(tmp_path / "test" / "emu" / "0.png", pixels(1))
    with pytest.raises(InputError, match=r"differ \(emu\)"):
        load_data(tmp_path)


@pytest.mark.parametrize(
    ("folders", "says"),
    [
        ([], "has no subfolders"),
        (["train"], "has no subfolders"),
        (["bus", "train"], "is itself a class, rename it"),
        (["test/a"], "test/ but no train/"),
        (["train/a", "val/a", "valid/a"], "both val/ and valid/"),
    ],
)
def test_folders_that_are_not_data_sets(tmp_path: Path, folders: list[str], says: str) -> None:
    for name in folders:
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(InputError, match=says):
        load_data(tmp_path)


def test_links_are_followed_without_endless_loops(tmp_path: Path) -> None:
    photos(tmp_path / "real")
    root = tmp_path / "linked"
    root.mkdir()
    for name in ("cat", "dog"):
        (root / name).symlink_to(tmp_path / "real" / name, target_is_directory=True)
    (tmp_path / "real" / "cat" / "loop").symlink_to(tmp_path / "real" / "cat", target_is_directory=True)
    (tmp_path / "real" / "dog" / "up").symlink_to(tmp_path / "real" / "dog" / "up")
    assert len(list_images(root).files) == 20


def test_too_large_for_memory_is_rejected_before_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(tmp_path)
    monkeypatch.setattr(memory, "available_memory", lambda: 10_000)
    monkeypatch.setattr(folder, "decode_and_digest", lambda *_: pytest.fail("decoded"))
    with pytest.raises(InputError, match="at 100 x 100 does not fit in memory"):
        load_data(tmp_path, image_size=100)


def test_check_lists_classes_and_broken_files(tmp_path: Path) -> None:
    photos(tmp_path)
    (tmp_path / "dog" / "bad.png").write_text("x")
    rows = check_data(tmp_path)
    assert [(row.found, row.ok) for row in rows[:2]] == [
        ("train, cat: 10 images", True),
        ("train, dog: 10 images", True),
    ]
    assert [(row.file.name, row.ok) for row in rows[2:]] == [("bad.png", False)]
    (tmp_path / "emu").mkdir()
    rows = check_data(tmp_path)
    assert [(row.found, row.ok) for row in rows[2:3]] == [("train, emu: 0 images", False)]
    assert [(row.file.name, row.ok) for row in rows[3:]] == [("bad.png", False)]


def test_a_class_name_that_is_not_utf_8(tmp_path: Path) -> None:
    for name in (b"a", b"\xff\n"):
        folder = tmp_path / os.fsdecode(name)
        folder.mkdir()
        for number in range(4):
            Image.fromarray(np.zeros((4, 4), dtype=np.uint8)).save(folder / f"{number}.png")
    with pytest.raises(InputError, match=r"is named '\\udcff\\n', need UTF-8"):
        load_data(tmp_path)
    (row,) = check_data(tmp_path)
    assert not row.ok
    assert "need UTF-8" in row.found


def test_folders_that_are_nested_too_deeply_are_rejected(tmp_path):
    folder = tmp_path / "photos" / "a" / Path(*["x"] * 150)
    folder.mkdir(parents=True)
    with pytest.raises(InputError, match="100 levels"):
        load_data(tmp_path / "photos")
