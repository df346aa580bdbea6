"""A folder that is too large for memory is packed into the cache, and the pack follows the folder."""

import shutil

import pytest
from image_folders import photos, save

from deeplda import memory
from deeplda.data import open_pack
from deeplda.data.folder_options import FolderOptions
from deeplda.data.packing import packed_if_large
from deeplda.training.config import RunConfig
from deeplda.training.preparation import find_data
from deeplda.training.progress import Progress

# 40 colour images of 4 x 5 pixels.
SIZE = 40 * 4 * 5 * 3


@pytest.fixture
def folder(tmp_path):
    return photos(tmp_path / "photos", range(40))


@pytest.fixture
def find(tmp_path, folder, monkeypatch):
    """Return where a folder is read from with this much memory, and the notes."""

    def find(available, image_size=None, processes=1, source=folder):
        # Reading an index needs a few thousand bytes.
        monkeypatch.setattr("deeplda.data.packing.fits_in_memory", lambda size: 2 * size <= available)
        notes = []
        place = packed_if_large(
            source,
            options=FolderOptions(image_size),
            data_dir=tmp_path / "cache",
            processes=processes,
            note=notes.append,
        )
        return place, notes

    return find


def test_half_of_the_memory_is_the_limit(find, folder):
    assert find(2 * SIZE) == (folder, [])
    place, notes = find(2 * SIZE - 1)
    assert len(open_pack(place).files) == 40
    assert notes == [f"the pixels of {folder} take 0.0 GiB, too much for the memory, so they are packed into {place}"]
    assert place.name == "photos.pack"


def test_each_process_would_have_a_copy_and_a_size_changes_what_it_takes(find, folder):
    assert find(4 * SIZE, processes=2) == (folder, [])
    assert find(4 * SIZE - 1, processes=2)[0] != folder
    assert find(2 * SIZE, image_size=4) == (folder, [])
    assert open_pack(find(2 * SIZE, image_size=5)[0]).images.shape == (40, 3, 5, 5)
    assert find(0)[0] != find(0, image_size=5)[0]


def test_greyscale_images_take_a_third(find, tmp_path):
    grey = photos(tmp_path / "grey", range(40), shape=(4, 5))
    assert find(2 * SIZE // 3, source=grey) == (grey, [])
    save(grey / "cat" / "zz.png", 0)
    assert find(2 * SIZE // 3, source=grey)[0] != grey


def test_the_pack_follows_the_folder(find, folder):
    place, _ = find(0)
    photos(folder, range(40, 44))
    assert (find(0)[0], len(open_pack(place).files)) == (place, 44)
    shutil.rmtree(folder / "cat")
    photos(folder, range(0, 10, 2))
    assert "are missing there" in find(0)[1][1]
    assert len(open_pack(place).files) == 5 + 22


def test_other_sources_are_not_packed(find):
    pack, _ = find(0)
    for source in (str(pack), "digits"):
        assert find_data(RunConfig(data=source), Progress(), "content") == source


def test_the_limit_is_that_of_the_machine(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    assert (memory.fits_in_memory(500), memory.fits_in_memory(501)) == (True, False)
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    assert memory.fits_in_memory(2**80)
