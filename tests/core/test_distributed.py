"""DeepLDALoss under torch.distributed: ranks that share a batch compute the same as one process with all of it."""

import numpy as np
import pytest
import rank_jobs
import torch
from batches import COMBINATIONS, STATISTICS, gaussian_batch, relative_error, tensors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ranks import RankPool, values

from deeplda import DeepLDALoss

FAR_APART = np.array([3, 10**6, 2**40, 2**62])
pytestmark = pytest.mark.filterwarnings("ignore::deeplda.batch_rule.SmallBatchWarning")


@pytest.fixture(scope="module", params=[2, 3], ids=["2 ranks", "3 ranks"])
def pool(request, tmp_path_factory):
    ranks = RankPool(request.param, tmp_path_factory.mktemp("ranks"))
    yield ranks
    ranks.close()


def split(y, layout, size):
    """Return the rows of each rank."""
    rows, n = np.arange(len(y)), len(y)
    if layout == "even":
        return np.array_split(rows, size)
    if layout == "uneven":
        return np.split(rows, [1, n // 7][: size - 1])
    if layout == "empty":
        return [rows[:0], *np.array_split(rows, size - 1)]
    if layout == "by class":
        return [rows[y % size == rank] for rank in range(size)]
    raise ValueError(layout)


LAYOUTS = ("even", "uneven", "empty", "by class")


def one_process(h, y, options, dtype=None):
    features, labels = tensors(h, y) if dtype is None else tensors(h, y, dtype)
    criterion = DeepLDALoss(**options)
    value = criterion(features, labels)
    value.backward()
    return value.item(), features.grad.numpy(), criterion.diagnostics.eigenvalues.numpy()


def across_ranks(pool, parts, h, y, options):
    """Return value, averaged gradient in the order of the batch, and eigenvalues, checked to agree on all ranks."""
    results = values(pool.run(rank_jobs.loss, [(h[rows], y[rows], options) for rows in parts]))
    gradient = np.empty_like(h)
    for rows, (_, at_rank, _) in zip(parts, results, strict=True):
        assert at_rank.shape == (len(rows), h.shape[1])
        gradient[rows] = at_rank / pool.size
    assert len({value for value, _, _ in results}) == 1
    assert all(np.array_equal(eigenvalues, results[0][2]) for _, _, eigenvalues in results)
    return results[0][0], gradient, results[0][2]


def assert_same(found, true, *, value_error=1e-12, gradient_error=1e-10):
    assert found[0] == pytest.approx(true[0], rel=value_error, abs=0)
    assert relative_error(found[1], true[1]) < gradient_error
    assert relative_error(found[2], true[2]) < 1e-10


@pytest.mark.parametrize(("statistic", "scatter", "class_weight"), COMBINATIONS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_process_and_many_agree(pool, statistic, scatter, class_weight, layout):
    h, y = gaussian_batch(90, 6, 4)
    parts = split(y, layout, pool.size)
    for alpha in (0.0, 0.6, 1.0):
        options = {"statistic": statistic, "scatter": scatter, "class_weight": class_weight, "alpha": alpha}
        assert_same(across_ranks(pool, parts, h, y, options), one_process(h, y, options))


@pytest.mark.parametrize(("statistic", "scatter"), [(rank_jobs.mixed, "pooled"), (rank_jobs.mixed, "dorfer")])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_callable_statistic(pool, statistic, scatter, layout):
    h, y = gaussian_batch(90, 6, 4)
    options = {"statistic": statistic, "scatter": scatter, "alpha": 0.6}
    found = across_ranks(pool, split(y, layout, pool.size), h, y, options)
    assert_same(found, one_process(h, y, options))


@pytest.mark.parametrize("shape", [(90, 3, 7), (60, 5, 5), (200, 12, 2)], ids=["d < C - 1", "d = C", "two classes"])
def test_other_shapes(pool, shape):
    h, y = gaussian_batch(*shape)
    for statistic in ("smallest", "wilks"):
        options = {"statistic": statistic}
        assert_same(
            across_ranks(pool, split(y, "uneven", pool.size), h, y, options | {"epsilon": 0.5}),
            one_process(h, y, options | {"epsilon": 0.5}),
        )


def test_label_ids_far_apart(pool):
    h, y = gaussian_batch(80, 6, 4)
    found = across_ranks(pool, split(y, "by class", pool.size), h, FAR_APART[y], {})
    assert_same(found, one_process(h, y, {}))


def test_more_classes_than_the_first_message_holds(pool):
    h, y = gaussian_batch(1200, 3, 600)
    found = across_ranks(pool, split(y, "by class", pool.size), h, y, {"statistic": "pillai"})
    assert_same(found, one_process(h, y, {"statistic": "pillai"}))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("offset", "rounding"), [(100.0, 1.0), (1e6, 1e3)])
def test_an_offset_costs_the_rounding_of_the_means_alone(pool, layout, offset, rounding):
    h, y = gaussian_batch(90, 6, 4, offset=offset)
    found = across_ranks(pool, split(y, layout, pool.size), h, y, {})
    assert_same(found, one_process(h, y, {}), value_error=1e-12 * rounding, gradient_error=1e-10 * rounding)


@pytest.mark.parametrize("size", [1e-200, 1e-9, 1e9, 1e200])
def test_extreme_sizes_on_one_rank(pool, size):
    """All ranks scale the features by the power of two that suits the whole batch."""
    h, y = gaussian_batch(90, 6, 4)
    h *= size
    h[y == 0] *= 1e-3
    found = across_ranks(pool, split(y, "by class", pool.size), h, y, {"lam": 0.0})
    assert_same(found, one_process(h, y, {"lam": 0.0}))


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_scales_of_dimensions_and_large_eigenvalues(pool, statistic, layout):
    """Along the first dimension, the classes are almost points."""
    h, y = gaussian_batch(90, 4, 3)
    h[:, 0] = np.array([0.0, 1.0, 3.0])[y] + 1e-6 * h[:, 0]
    h *= np.array([1.0, 1e5, 1e-5, 1.0])
    options = {"statistic": statistic, "lam": 0.0}
    found = across_ranks(pool, split(y, layout, pool.size), h, y, options)
    true = one_process(h, y, options)
    assert true[2].max() > 1e8
    assert found[0] == pytest.approx(true[0], rel=1e-8)
    assert relative_error(found[1], true[1]) < 1e-6


@pytest.mark.parametrize("d", [20, 60])
@pytest.mark.parametrize("alike", [False, True])
def test_float32(pool, d, alike):
    """Products are in float32 (d = 60); all ranks repeat them in float64 if two dimensions are almost the same."""
    h, y = gaussian_batch(1500, d, 5)
    if alike:
        h[:, 1] = 100 * h[:, 0] + h[:, 1]
    h, options = h.astype(np.float32), {"alpha": 1.0, "statistic": "smallest"}
    value, gradient, eigenvalues = across_ranks(pool, split(y, "empty", pool.size), h, y, options)
    true = one_process(h.astype(np.float64), y, options)
    assert value == pytest.approx(true[0], rel=1e-5)
    assert relative_error(gradient, true[1]) < 1e-5
    assert relative_error(eigenvalues, true[2]) < 1e-5


def test_float32_dimensions_of_very_different_scales(pool):
    """All ranks start again in float64, even the one without a sample."""
    h, y = gaussian_batch(1500, 60, 5)
    h = (h * 2.0 ** np.linspace(-37, 37, 60).round()).astype(np.float32)
    options = {"lam": 0.0, "alpha": 0.0}
    value, gradient, eigenvalues = across_ranks(pool, split(y, "empty", pool.size), h, y, options)
    true = one_process(h.astype(np.float64), y, options)
    assert value == pytest.approx(true[0], rel=1e-6)
    units = h.std(0)
    assert relative_error(gradient * units, true[1] * units) < 1e-6
    assert relative_error(eigenvalues, true[2]) < 1e-9


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_sharing_of_any_batch(pool, data):
    n, d, classes = (data.draw(st.integers(low, high)) for low, high in ((12, 60), (2, 8), (2, 6)))
    h, y = gaussian_batch(n, d, classes, seed=data.draw(st.integers(0, 99)))
    owner = np.array(data.draw(st.lists(st.integers(0, pool.size - 1), min_size=n, max_size=n)))
    parts = [np.flatnonzero(owner == rank) for rank in range(pool.size)]
    options = {"alpha": data.draw(st.sampled_from([0.0, 0.5, 1.0])), "statistic": "wilks"}
    if options["alpha"] == 1.0 and n - classes < d:
        options["alpha"] = 0.5
    assert_same(across_ranks(pool, parts, h, y, options), one_process(h, y, options))


def test_diagnostics_are_of_the_whole_batch(pool):
    h, y = gaussian_batch(90, 6, 4)
    h[:, 2] = 3.3
    criterion = DeepLDALoss()
    criterion(*tensors(h, y))
    parts = split(y, "by class", pool.size)
    for found in values(pool.run(rank_jobs.figures, [(h[rows], y[rows]) for rows in parts])):
        assert found == {name: getattr(criterion.diagnostics, name) for name in found}
        assert found["classes"] == 4
        assert found["dead_dims"] == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [264, 4 + 4 * 6, 6 * 6]),
        ({"alpha": 0.0}, [264, 4 + 4 * 6, 6]),
        ({"class_weight": "balanced"}, [264, 4 + 4 * 6, 6 * 6]),
        ({"scatter": "dorfer", "statistic": "smallest"}, [264, 4 + 4 * 6, 6 * 6, 6 * 6]),
    ],
)
def test_what_is_exchanged_does_not_grow_with_the_batch(pool, options, expected):
    for n in (30, 900):
        h, y = gaussian_batch(n, 6, 4)
        jobs = [(h[rows], y[rows], options) for rows in split(y, "uneven", pool.size)]
        assert values(pool.run(rank_jobs.numbers_exchanged, jobs)) == [expected] * pool.size


def bad_batches():
    """Return what ranks 0 and 1 pass, and the error that all ranks must raise."""
    h, y = gaussian_batch(40, 6, 4)
    good, nan, inf = (h, y), h.copy(), h.copy()
    nan[3, 2], inf[0, 0] = np.nan, -np.inf
    h8 = torch.tensor(h).to(torch.float8_e4m3fn)
    return {
        "NaN": (good, (nan, y), ValueError, "on rank 1: features has 1 NaN and 0 infinite values among 240"),
        "infinite": ((inf, y), good, ValueError, "on rank 0: features has 0 NaN and 1 infinite values"),
        "both": ((nan, y), (inf, y), ValueError, "on rank 0: features has 1 NaN"),
        "integers": (good, (h.astype(np.int64), y), TypeError, "on rank 1: features has dtype torch.int64"),
        "float labels": (good, (h, y.astype(float)), TypeError, "on rank 1: labels has dtype torch.float64"),
        "float8": (good, (h8, y), TypeError, "on rank 1: features has dtype torch.float8_e4m3fn, need 16 bits"),
        "no tensor": (good, (h.tolist(), y), TypeError, "on rank 1: features is of type list"),
        "nothing": (good, (None, None), TypeError, "on rank 1: features is of type NoneType"),
        "3-d": (good, (h[:, :, None], y), ValueError, r"on rank 1: features has shape \(40, 6, 1\), need \(n, d\)"),
        "labels short": ((h, y[:-1]), good, ValueError, r"on rank 0: labels has shape \(39,\), need \(40,\)"),
        "negative label": (good, (h, y - 1), ValueError, "on rank 1: labels contains -1"),
        "no column": (good, (h[:, :0], y), ValueError, r"on rank 1: features has shape \(40, 0\)"),
        "other width": (good, (h[:, :5], y), ValueError, "features has 5 columns on rank 1 but 6 on rank 0"),
        "other precision": (
            good,
            (h.astype(np.float32), y),
            ValueError,
            "a different dtype on rank 1 than on rank 0",
        ),
        "one class": (
            (h, y * 0 + 7),
            (h, y * 0 + 7),
            ValueError,
            "all .* samples belong to class 7, need at least two classes",
        ),
        "empty": ((h[:0], y[:0]), (h[:0], y[:0]), ValueError, r"features has shape \(0, 6\) on every rank"),
    }


@pytest.mark.parametrize(("first", "second", "error", "message"), bad_batches().values(), ids=bad_batches().keys())
def test_all_ranks_raise_the_same_error(pool, first, second, error, message):
    jobs = [(*batch, {}) for batch in (first, second, first)[: pool.size]]
    errors = pool.run(rank_jobs.loss_of_anything, jobs)
    for found in errors:
        with pytest.raises(error, match=message):
            raise found
    assert len({str(found) for found in errors}) == 1
    test_label_ids_far_apart(pool)


@pytest.mark.parametrize("options", [{"alpha": 0.0}, {"statistic": rank_jobs.mixed}])
def test_other_options_on_a_rank(pool, options):
    h, y = gaussian_batch(40, 6, 4)
    jobs = [(h, y, options if rank == 1 else {}) for rank in range(pool.size)]
    for found in pool.run(rank_jobs.loss_of_anything, jobs):
        with pytest.raises(ValueError, match="different options on rank 1 than on rank 0"):
            raise found


def test_warnings_are_of_the_whole_batch_and_said_once(pool):
    h, y = gaussian_batch(90, 3, 7)
    parts = split(y, "by class", pool.size)
    first, *others = values(pool.run(rank_jobs.warnings_of_loss, [(h[rows], y[rows]) for rows in parts]))
    assert [message.partition(",")[0] for message in first] == [
        "a batch of 90 samples in 7 classes does not suit 3 dimensions"
    ]
    assert not any(others)


def test_eval_mode_is_local(pool):
    h, y = gaussian_batch(90, 6, 4)
    parts = split(y, "even", pool.size)
    found = values(pool.run(rank_jobs.loss_in_eval_mode, [(h[rows], y[rows]) for rows in parts]))
    assert found == [DeepLDALoss()(*tensors(h[rows], y[rows])).item() for rows in parts]


def test_a_group_of_one_rank_is_local(pool):
    h, y = gaussian_batch(90, 6, 4)
    parts = split(y, "even", pool.size)
    jobs = [([0], h[rows], y[rows]) for rows in parts]
    (value, gradient), *others = pool.run(rank_jobs.loss_of_a_subgroup, jobs)
    assert (value, gradient.tolist()) == tuple(
        np.asarray(x).tolist() for x in one_process(h[parts[0]], y[parts[0]], {})[:2]
    )
    for found in others:
        with pytest.raises(ValueError, match="process_group does not include this process"):
            raise found


def test_a_group_of_some_ranks(pool):
    """The last two ranks share a batch; errors name global ranks."""
    members = [pool.size - 2, pool.size - 1]
    h, y = gaussian_batch(90, 6, 4)
    parts = [h[:0].sum(1)] * (pool.size - 2) + split(y, "uneven", 2)
    parts = [part.astype(np.int64) for part in parts]
    results = pool.run(rank_jobs.loss_of_a_subgroup, [(members, h[rows], y[rows]) for rows in parts])[-2:]
    value, gradient, _ = one_process(h, y, {})
    for rows, (found, at_rank) in zip(parts[-2:], values(results), strict=True):
        assert found == pytest.approx(value, rel=1e-12)
        assert relative_error(at_rank / 2, gradient[rows]) < 1e-9
    h[parts[-1][0], 0] = np.nan
    results = pool.run(rank_jobs.error_in_a_subgroup, [(members, h[rows], y[rows]) for rows in parts])
    for found in results[-2:]:
        with pytest.raises(ValueError, match=f"on rank {pool.size - 1}: features has 1 NaN"):
            raise found


class TestDistributedDataParallel:
    """A user's loop, unchanged except for the wrapper around the network."""

    def batches(self, steps):
        return [gaussian_batch(60 + 5 * (step % 3), 6, 4, seed=step) for step in range(steps)]

    @pytest.mark.parametrize(
        ("layout", "chunk_size"), [*((layout, size) for layout in LAYOUTS for size in (None, 7)), ("uneven", 1000)]
    )
    def test_parameters_after_twenty_steps(self, pool, layout, chunk_size):
        options = {} if layout == "even" else {"statistic": "wilks", "alpha": 1.0, "class_weight": "balanced"}
        batches = self.batches(20)
        jobs = [([], chunk_size, options) for _ in range(pool.size)]
        for h, y in batches:
            for job, rows in zip(jobs, split(y, layout, pool.size), strict=True):
                job[0].append((h[rows], y[rows]))
        true, value = rank_jobs.train(batches, None, options)
        start, _ = rank_jobs.train(batches[:1], None, options)
        assert relative_error(start, true) > 1e-2
        for parameters, found in values(pool.run(rank_jobs.train, jobs)):
            assert relative_error(parameters, true) < 1e-8
            assert found == pytest.approx(value, rel=1e-8)

    def test_one_chunk_is_a_plain_step(self, pool):
        """This includes batch normalisation with its running means (rank 0's during a step) and dropout."""
        jobs = [([],) for _ in range(pool.size)]
        for h, y in self.batches(4):
            for job, rows in zip(jobs, split(y, "even", pool.size), strict=True):
                job[0].append((h[rows], y[rows]))
        for plain, chunked in values(pool.run(rank_jobs.plain_and_chunked, jobs)):
            assert np.array_equal(plain, chunked)

    def test_gradients_are_exchanged_once_however_many_chunks(self, pool):
        h, y = gaussian_batch(60, 6, 4)
        parts = split(y, "uneven", pool.size)
        exchanged = values(pool.run(rank_jobs.gradient_exchanges, [(h[rows], y[rows], 5) for rows in parts]))
        assert exchanged == [1] * pool.size
