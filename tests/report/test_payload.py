"""The page's numbers are those of the run."""

import base64

import numpy as np
import pytest
from scipy.stats import gaussian_kde
from trained_runs import image_set, row_set, train_run

from deeplda.report import payload
from deeplda.report.contents import read_contents


def unpack(text, dtype):
    return np.frombuffer(base64.b64decode(text), dtype)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    home = tmp_path_factory.mktemp("rows")
    return read_contents(train_run(home / "run", row_set(home / "rows.npz", ("a", "b", "c"))))


def test_points_come_back(rows):
    found = payload.points(rows)
    n = len(rows.labels)
    np.testing.assert_array_equal(unpack(found["labels"], "<u2"), rows.labels)
    np.testing.assert_array_equal(unpack(found["decided"], "<u2"), rows.decided)
    np.testing.assert_allclose(unpack(found["probabilities"], "<u2") / 65535, rows.probabilities, atol=1e-5)
    low, high = np.array(found["low"]), np.array(found["high"])
    places = unpack(found["coordinates"], "<u2").reshape(-1, n).T / 65535
    np.testing.assert_allclose(low + places * (high - low), rows.coordinates, atol=2e-5 * (high - low).max())


def test_rows_show_their_first_values(rows):
    found = payload.samples(rows)
    assert (found["shown"], found["all"]) == (12, 15)
    assert found["names"] == [f"test sample {place}" for place in rows.places]
    np.testing.assert_array_equal(unpack(found["values"], "<f4").reshape(-1, 12), rows.samples[:, :12])


def test_images_are_in_one_sheet(tmp_path):
    data = image_set(tmp_path / "images.npz", ("a", "b"))
    found = payload.samples(read_contents(train_run(tmp_path / "run", data, epochs=1)))
    assert found["tile"] == (8, 8)
    assert found["sheet"].startswith("data:image/png;base64,")


@pytest.mark.parametrize("n", [30, 3_000])
def test_densities_agree_with_scipy(n):
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 2
    values = rng.normal(0, 1, n) * np.where(labels, 0.5, 1.0) + 3 * labels
    ends = -5.0, 8.0
    curves = payload.class_densities(values, labels, 3, ends)
    step = (ends[1] - ends[0]) / 128
    places = ends[0] + (np.arange(128) + 0.5) * step
    for c in (0, 1):
        own = values[labels == c]
        spread = min(own.std(), np.subtract(*np.quantile(own, [0.75, 0.25])) / 1.34)
        expected = gaussian_kde(own, bw_method=0.9 * spread * len(own) ** -0.2 / own.std(ddof=1))(places)
        np.testing.assert_allclose(curves[c], expected, atol=0.03 * expected.max())
        assert curves[c].sum() * step == pytest.approx(1, abs=0.01)
    assert not curves[2].any()


def test_a_dead_dimension_has_a_density():
    curves = payload.class_densities(np.zeros(10), np.arange(10) % 2, 2, (-1e-6, 1e-6))
    assert np.isfinite(curves).all()
    assert curves.max() > 0


def test_densities_of_each_dimension(rows):
    found = payload.densities(rows)
    d = rows.embedding.shape[1]
    curves = unpack(found["curves"], "<u2").reshape(d, 3, found["bins"])
    assert (curves.max((1, 2)) == 65535).all()
    assert len(found["low"]) == len(found["high"]) == found["all"] == d
