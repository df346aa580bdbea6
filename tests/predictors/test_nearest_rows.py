"""The nearest rows of a gallery, compared with all distances computed by differences in float64."""

import numpy as np
import pytest

from deeplda.predictors.nearest_rows import NearestRows


def searched(queries, gallery, count, block, query_keys=None, gallery_keys=None):
    search = NearestRows(queries, count, query_keys)
    for start in range(0, len(gallery), block):
        part = slice(start, start + block)
        search.add(gallery[part], None if gallery_keys is None else gallery_keys[part])
    return search.found()


def by_brute_force(queries, gallery, count):
    distances = np.sqrt(np.square(queries[:, None] - gallery).sum(-1))
    order = np.argsort(distances, axis=1, kind="stable")[:, :count]
    return order, np.take_along_axis(distances, order, 1)


@pytest.mark.parametrize("offset", [0, 1e7])
@pytest.mark.parametrize(("width", "rows", "block"), [(1, 60, 7), (9, 2000, 173), (200, 500, 500)])
def test_neighbours_are_those_of_a_brute_force_search(width, rows, block, offset):
    rng = np.random.default_rng(width)
    # Whole numbers, so that an offset loses nothing; with many rows that are equal or equally far.
    gallery = np.round(4 * rng.normal(size=(rows, width))) + offset
    gallery[rows // 2 :] = gallery[: rows - rows // 2]
    queries = np.concatenate([gallery[:5], np.round(4 * rng.normal(size=(8, width))) + offset])
    found = searched(queries, gallery, 10, block)
    indices, distances = by_brute_force(queries, gallery, 10)
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_allclose(found.distances, distances, rtol=1e-12)


def test_tiny_differences_beside_a_large_norm_are_exact():
    """The formula |q|^2 + |g|^2 - 2 q.g alone would have errors of about 1e-4 here."""
    rng = np.random.default_rng(0)
    gallery = 1e6 * rng.normal(size=(1, 3)) + 1e-4 * rng.normal(size=(400, 3))
    queries = np.concatenate([gallery[:3] + 1e-5, -gallery[:3]])
    found = searched(queries, gallery, 5, 64)
    indices, distances = by_brute_force(queries, gallery, 5)
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_allclose(found.distances, distances, rtol=1e-4)


def test_a_gallery_that_is_smaller_than_the_count():
    found = searched(np.zeros((2, 3)), np.arange(9.0).reshape(3, 3), 5, 2)
    np.testing.assert_array_equal(found.indices, [[0, 1, 2, -1, -1]] * 2)
    np.testing.assert_array_equal(np.isinf(found.distances), found.indices < 0)


def test_rows_with_the_key_of_a_query_are_left_out():
    rng = np.random.default_rng(1)
    gallery = rng.normal(size=(50, 2))
    keys = np.arange(50) % 10
    found = searched(gallery[:3], gallery, 4, 8, keys[:3], keys)
    for query in range(3):
        others = np.flatnonzero(keys != keys[query])
        expected, _ = by_brute_force(gallery[query : query + 1], gallery[others], 4)
        np.testing.assert_array_equal(found.indices[query], others[expected[0]])


def test_no_queries():
    assert searched(np.empty((0, 2)), np.zeros((4, 2)), 3, 2).indices.shape == (0, 3)
