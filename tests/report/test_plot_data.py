"""The page's numbers are those of the run, and thumbnails are where the sheet says."""

import base64
import io

import numpy as np
import pytest
from PIL import Image
from trained_runs import image_set, row_set, train_run

from deeplda.report.plot_data import image_uri, pack_densities, pack_points, pack_samples, thumbnail_sheet
from deeplda.report.record import inspect_run


def unpack(text, dtype):
    return np.frombuffer(base64.b64decode(text), dtype)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    home = tmp_path_factory.mktemp("rows")
    return inspect_run(train_run(home / "run", row_set(home / "rows.npz", ("a", "b", "c"))))


def test_points_come_back(rows):
    found = pack_points(rows)
    n = len(rows.labels)
    np.testing.assert_array_equal(unpack(found["labels"], "<u2"), rows.labels)
    np.testing.assert_array_equal(unpack(found["decided"], "<u2"), rows.decided)
    np.testing.assert_allclose(unpack(found["probabilities"], "<u2") / 65535, rows.probabilities, atol=1e-5)
    low, high = np.array(found["low"]), np.array(found["high"])
    places = unpack(found["coordinates"], "<u2").reshape(-1, n).T / 65535
    np.testing.assert_allclose(low + places * (high - low), rows.coordinates, atol=2e-5 * (high - low).max())


def test_rows_show_their_first_values(rows):
    found = pack_samples(rows)
    assert (found["shown"], found["all"]) == (12, 15)
    assert found["names"] == [f"test sample {place}" for place in rows.places]
    np.testing.assert_array_equal(unpack(found["values"], "<f4").reshape(-1, 12), rows.samples[:, :12])


def test_images_are_in_one_sheet(tmp_path):
    data = image_set(tmp_path / "images.npz", ("a", "b"))
    found = pack_samples(inspect_run(train_run(tmp_path / "run", data, epochs=1)))
    assert found["tile"] == (8, 8)
    assert found["sheet"].startswith("data:image/png;base64,")


def test_densities_of_each_dimension(rows):
    found = pack_densities(rows)
    d = rows.embedding.shape[1]
    curves = unpack(found["curves"], "<u2").reshape(d, 3, found["bins"])
    assert (curves.max((1, 2)) == 65535).all()
    assert len(found["low"]) == len(found["high"]) == found["all"] == d


def opened(source):
    header, data = source.split(",")
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert header == f"data:image/{image.format.lower()};base64"
    return image


def tiles(sheet, count):
    """The images of the sheet, as H x W x C."""
    pixels = np.atleast_3d(np.asarray(opened(sheet.sheet)))
    for i in range(count):
        x, y = i % sheet.columns * sheet.pitch[0], i // sheet.columns * sheet.pitch[1]
        yield pixels[y : y + sheet.tile[1], x : x + sheet.tile[0]]


@pytest.mark.parametrize("shape", [(7, 1, 8, 8), (5, 3, 6, 9), (1, 3, 32, 32)])
def test_a_few_small_images_are_kept_exactly(shape):
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    sheet = thumbnail_sheet(images)
    assert sheet.sheet.startswith("data:image/png")
    for image, tile in zip(images, tiles(sheet, len(images)), strict=True):
        np.testing.assert_array_equal(tile, image.transpose(1, 2, 0))


def test_many_images_become_jpeg_whose_tiles_do_not_run_into_each_other():
    # Alternating black and white: any colour from a neighbour would show.
    images = np.zeros((1_000, 3, 30, 30), np.uint8)
    images[::2] = 255
    sheet = thumbnail_sheet(images)
    assert sheet.sheet.startswith("data:image/jpeg")
    assert sheet.tile == (30, 30)
    assert sheet.pitch == (32, 32)
    for i, tile in enumerate(tiles(sheet, 1_000)):
        assert np.ptp(tile) <= 8
        assert abs(int(tile.mean()) - (0 if i % 2 else 255)) <= 4


@pytest.mark.parametrize(("count", "side"), [(100, 64), (4_000, 48), (9_000, 32)])
def test_the_more_images_the_smaller(count, side):
    assert thumbnail_sheet(np.zeros((count, 1, 100, 50), np.uint8)).tile == (side // 2, side)


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (2, "L"), (3, "RGB"), (5, "L")])
def test_any_number_of_channels_can_be_seen(channels, mode):
    assert opened(image_uri(np.zeros((channels, 8, 8), np.uint8))).mode == mode


def test_a_large_picture_is_brought_down():
    assert opened(image_uri(np.zeros((3, 300, 200), np.uint8), side=96)).size == (64, 96)
