"""Sample weights: repeated samples, SciPy with weighted sums, finite differences, and two ranks against one process."""

from functools import partial

import numpy as np
import pytest
import rank_jobs
import scipy.linalg
import torch
from batches import COMBINATIONS, constants, gaussian_batch, relative_error, tensors
from oracle import oracle, regularised, statistic_of
from ranks import RankPool, values

from deeplda import DeepLDALoss, DLDALoss, RDLDALoss, deep_lda_loss
from deeplda.core import class_moments, discriminant_eigenvalues

WEIGHTABLE = [combination for combination in COMBINATIONS if combination[1] != "dorfer"]
every_combination = pytest.mark.parametrize(("statistic", "scatter", "class_weight"), WEIGHTABLE)


def drawn_weights(n, seed=0):
    return np.random.default_rng(seed).uniform(0.1, 5, n)


def loss_and_gradient(h, y, weights, dtype=torch.float64, **options):
    features, labels = tensors(h, y, dtype)
    given = () if weights is None else (torch.tensor(weights),)
    loss = DeepLDALoss(**options)(features, labels, *given)
    loss.backward()
    return loss.item(), features.grad.double().numpy()


def weighted_scatters(h, y, weights, scatter, class_weight):
    """S_W and S_B as sums over single samples."""
    classes, total = np.unique(y), weights.sum()
    w = weights.copy()
    if class_weight == "balanced":
        for c in classes:
            w[y == c] *= total / (len(classes) * weights[y == c].sum())
    mu = sum(w[i] * h[i] for i in range(len(h))) / w.sum()
    s_w = s_b = 0
    for c in classes:
        mean = sum(w[i] * h[i] for i in np.flatnonzero(y == c)) / w[y == c].sum()
        s_w = s_w + sum(w[i] * np.outer(h[i] - mean, h[i] - mean) for i in np.flatnonzero(y == c))
        s_b = s_b + w[y == c].sum() * np.outer(mean - mu, mean - mu)
    return (s_w, s_b) if scatter == "sum" else (s_w / total, s_b / total)


@pytest.mark.filterwarnings("ignore:6 classes can differ in 5 directions")
@every_combination
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("shape", [(40, 6, 3), (50, 3, 6)], ids=["d > C", "d < C"])
def test_a_weight_of_two_is_the_sample_twice(statistic, scatter, class_weight, alpha, shape):
    h, y = gaussian_batch(*shape)
    weights = np.random.default_rng(1).integers(0, 4, len(y))
    weights[: shape[2]] = 1  # every class is present
    options = {"statistic": statistic, "scatter": scatter, "class_weight": class_weight, "alpha": alpha, "epsilon": 0.5}
    copies = np.repeat(np.arange(len(y)), weights)
    true = oracle(h[copies], y[copies], **options)
    expected = np.zeros_like(h)
    np.add.at(expected, copies, true.gradient)
    value, gradient = loss_and_gradient(h, y, weights, **options)
    assert value == pytest.approx(true.value, rel=1e-9)
    assert relative_error(gradient, expected) < 1e-7


@every_combination
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_the_value_is_that_of_scipy(statistic, scatter, class_weight, alpha):
    h, y = gaussian_batch(60, 4, 3)
    weights = drawn_weights(60)
    s_w, s_b = weighted_scatters(h, y, weights, scatter, class_weight)
    v = scipy.linalg.eigh(s_b, regularised(s_w, alpha, 0.01), eigvals_only=True)[-2:]
    value, _ = statistic_of(v, statistic, 0.5, 2)
    options = {"alpha": alpha, "lam": 0.01, "scatter": scatter, "class_weight": class_weight}
    assert loss_and_gradient(h, y, weights, statistic=statistic, epsilon=0.5, **options)[0] == pytest.approx(value)
    found = discriminant_eigenvalues(*constants(h, y), sample_weight=torch.tensor(weights), **options)
    np.testing.assert_allclose(found, v, rtol=1e-9)


@every_combination
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_the_gradient_is_that_of_central_differences(statistic, scatter, class_weight, alpha):
    h, y = gaussian_batch(30, 3, 3)
    weights = drawn_weights(30)
    options = {"statistic": statistic, "scatter": scatter, "class_weight": class_weight, "alpha": alpha, "lam": 0.1}
    _, gradient = loss_and_gradient(h, y, weights, **options)
    direction, step = np.random.default_rng(3).normal(size=h.shape), 1e-5
    ahead, behind = (loss_and_gradient(h + sign * step * direction, y, weights, **options)[0] for sign in (1, -1))
    assert (gradient * direction).sum() == pytest.approx((ahead - behind) / (2 * step), rel=1e-6)


def test_gradcheck():
    h, y = gaussian_batch(12, 3, 3)
    weights = torch.tensor(drawn_weights(12))
    criterion = DeepLDALoss("pillai", alpha=0.5, lam=0.1)
    assert torch.autograd.gradcheck(lambda features: criterion(features, torch.tensor(y), weights), tensors(h, y)[0])


@pytest.mark.parametrize("statistic", ["wilks", "smallest"])
def test_weight_zero_is_absence(statistic):
    """Not even an infinite feature matters, and a class without weight is absent."""
    h, y = gaussian_batch(60, 4, 4)
    weights = np.where((np.arange(60) % 5 == 1) | (y == 3), 0.0, drawn_weights(60))
    h[weights == 0] = np.inf
    kept = weights > 0
    value, gradient = loss_and_gradient(h, y, weights, statistic=statistic)
    expected, slope = loss_and_gradient(h[kept], y[kept], weights[kept], statistic=statistic)
    assert value == expected
    np.testing.assert_array_equal(gradient[kept], slope)
    assert not gradient[~kept].any()
    moments, others = (
        class_moments(*tensors(h[rows], y[rows]), torch.tensor(weights[rows])) for rows in (slice(None), kept)
    )
    for name in ("classes", "counts", "means", "within"):
        assert torch.equal(getattr(moments, name), getattr(others, name))


@pytest.mark.parametrize("products", ["float32", "float64"])
def test_float32(products, monkeypatch):
    if products == "float32":
        monkeypatch.setattr("deeplda.core.moments._SMALL_PRODUCT", 0)
    h, y = gaussian_batch(300, 20, 5, offset=100.0)
    weights = drawn_weights(300) * 1e-6
    exact, slope = loss_and_gradient(h.astype(np.float32), y, weights)
    value, gradient = loss_and_gradient(h, y, weights, torch.float32)
    assert value == pytest.approx(exact, rel=1e-5)
    assert relative_error(gradient, slope) < 5e-5


def test_only_ratios_matter_unless_sums_are_not_divided():
    h, y = gaussian_batch(60, 4, 3)
    weights = drawn_weights(60)
    value, gradient = loss_and_gradient(h, y, weights)
    again, slope = loss_and_gradient(h, y, weights * 8)
    assert again == pytest.approx(value, rel=1e-12)
    assert relative_error(slope, gradient) < 1e-10
    sums = loss_and_gradient(h, y, weights, scatter="sum", lam=0.5 * weights.sum())[0]
    assert sums == pytest.approx(loss_and_gradient(h, y, weights, lam=0.5)[0], rel=1e-12)


def test_equal_weights_are_none():
    h, y = gaussian_batch(60, 4, 3)
    plain, weighted = loss_and_gradient(h, y, None), loss_and_gradient(h, y, np.full(60, 3, dtype=np.int64))
    assert weighted[0] == pytest.approx(plain[0], rel=1e-13)
    assert relative_error(weighted[1], plain[1]) < 1e-12


def test_class_weights_as_sample_weights_are_balanced():
    h, y = gaussian_batch(60, 4, 3)
    counts = np.bincount(y)
    balanced = loss_and_gradient(h, y, None, class_weight="balanced", alpha=0.5)
    weighted = loss_and_gradient(h, y, (60 / (3 * counts))[y], alpha=0.5)
    assert weighted[0] == pytest.approx(balanced[0], rel=1e-12)
    assert relative_error(weighted[1], balanced[1]) < 1e-10


def test_every_public_loss_takes_them():
    h, y = gaussian_batch(60, 4, 3)
    features, labels = tensors(h, y)
    weights = torch.tensor(drawn_weights(60))
    for loss in (RDLDALoss(), DLDALoss()):
        same = DeepLDALoss("smallest", alpha=loss.alpha)
        assert torch.equal(loss(features, labels, weights), same(features, labels, weights))
    assert torch.equal(deep_lda_loss(features, labels, sample_weight=weights), DeepLDALoss()(features, labels, weights))
    slope = torch.func.grad(lambda at: deep_lda_loss(at, labels, sample_weight=weights))(features.detach())
    np.testing.assert_allclose(slope, loss_and_gradient(h, y, weights.numpy())[1], rtol=1e-12)


def test_diagnostics():
    criterion = DeepLDALoss()
    criterion(*tensors(*gaussian_batch(8, 2, 2)), torch.full((8,), 0.25))
    counts = np.bincount(gaussian_batch(8, 2, 2)[1])
    assert criterion.diagnostics.smallest_class == counts.min() / 4
    criterion(*tensors(*gaussian_batch(8, 2, 2)))
    assert repr(criterion.diagnostics.smallest_class) == str(counts.min())


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ([1.0] * 6, TypeError, "sample_weight is of type list, need a tensor"),
        (torch.ones(6, dtype=torch.bool), TypeError, r"sample_weight is of dtype torch\.bool"),
        (torch.ones(6, requires_grad=True), TypeError, "sample_weight is a tensor that requires a gradient"),
        (torch.ones(6).to_sparse(), TypeError, "sample_weight has layout"),
        (torch.ones(5), ValueError, r"sample_weight has shape \(5,\) .*, need \(6,\)"),
        (torch.ones(6, 1), ValueError, r"sample_weight has shape \(6, 1\)"),
        (torch.tensor([1.0, 1, 1, 1, 1, -1]), ValueError, "values from -1 to 1, need finite numbers >= 0"),
        (torch.tensor([1.0, 1, 1, 1, 1, np.nan]), ValueError, "values from nan to nan"),
        (torch.tensor([1.0, 1, 1, 1, 1, np.inf]), ValueError, "values from 1 to inf"),
        (torch.full((6,), 1e-40).double(), ValueError, "divide them by their mean"),
        (torch.zeros(6), ValueError, r"features has shape \(0, 2\)"),
    ],
)
def test_other_weights_are_rejected(weights, error, message):
    features, labels = torch.randn(6, 2), torch.arange(6) % 2
    with pytest.raises(error, match=message):
        DeepLDALoss()(features, labels, weights)
    with pytest.raises(error, match=message):
        class_moments(features, labels, weights)


@pytest.mark.parametrize("function", [discriminant_eigenvalues, partial(deep_lda_loss, statistic="hotelling")])
def test_unbiased_covariances_have_no_weights(function):
    features, labels, weights = torch.randn(6, 2), torch.arange(6) % 2, torch.ones(6)
    with pytest.raises(ValueError, match="scatter is 'dorfer' but samples have weights"):
        function(features, labels, scatter="dorfer", sample_weight=weights)


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    ranks = RankPool(2, tmp_path_factory.mktemp("ranks"))
    yield ranks
    ranks.close()


@every_combination
@pytest.mark.parametrize("layout", ["uneven", "by class", "no weight on a rank"])
def test_two_ranks_compute_what_one_process_does(pool, statistic, scatter, class_weight, layout):
    h, y = gaussian_batch(60, 6, 4)
    weights = drawn_weights(60)
    weights[::7] = 0
    first = {"uneven": np.arange(60) < 9, "by class": y % 2 == 0, "no weight on a rank": np.arange(60) % 7 == 0}[layout]
    parts = [np.flatnonzero(first), np.flatnonzero(~first)]
    for alpha in (0.0, 0.6, 1.0):
        options = {"statistic": statistic, "scatter": scatter, "class_weight": class_weight, "alpha": alpha}
        value, slope = loss_and_gradient(h, y, weights, **options)
        found = values(pool.run(rank_jobs.loss, [(h[own], y[own], options, weights[own]) for own in parts]))
        assert [rank[0] for rank in found] == pytest.approx([value] * 2, rel=1e-12)
        gradient = np.empty_like(h)
        for own, rank in zip(parts, found, strict=True):
            gradient[own] = rank[1] / 2
        assert relative_error(gradient, slope) < 1e-10


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([np.ones(20), -np.ones(20)], "on rank 1: sample_weight has values from -1 to -1"),
        ([np.ones(19), np.ones(20)], r"on rank 0: sample_weight has shape \(19,\)"),
        ([np.ones(20), None], "the loss has different options on rank 1 than on rank 0"),
        ([np.zeros(20), np.zeros(20)], r"features has shape \(0, 6\) on every rank"),
    ],
)
def test_all_ranks_raise_the_same_error(pool, weights, message):
    h, y = gaussian_batch(40, 6, 4)
    jobs = [(h[rank::2], y[rank::2], {}, weights[rank]) for rank in range(2)]
    errors = pool.run(rank_jobs.loss, jobs)
    for found in errors:
        with pytest.raises(ValueError, match=message):
            raise found
    assert len({str(found) for found in errors}) == 1
