"""Batches with extreme scales and eigenvalues, compared with arithmetic of 50 digits."""

import numpy as np
import pytest
import torch
from batches import COMBINATIONS, STATISTICS, constants, gaussian_batch, relative_error, tensors
from exact_oracle import exact_oracle

from deeplda import DeepLDALoss
from deeplda.core import discriminant_eigenvalues
from deeplda.predictors import Hyperplanes

pytestmark = pytest.mark.filterwarnings("ignore::deeplda.batch_rule.SmallBatchWarning")


def loss_and_gradient(h, y, **options):
    features, labels = tensors(h, y)
    loss = DeepLDALoss(**options)(features, labels)
    loss.backward()
    return loss.item(), features.grad.numpy()


def assert_is_exact(h, y, *, value_error=1e-9, gradient_error=1e-8, **options):
    value, gradient = loss_and_gradient(h, y, **options)
    true = exact_oracle(h, y, **options)
    assert value == pytest.approx(true.value, rel=value_error)
    # Dimensions have different units, so each is compared in units of its own standard deviation. Its square may
    # overflow.
    largest = np.abs(h).max()
    units = (h / largest).std(0) * largest
    assert relative_error(gradient * units, true.gradient * units) < gradient_error


def collapsed(factor, *, d):
    """Multiply the deviations from the class means along the last dimension, so that one eigenvalue is large."""
    h, y = gaussian_batch(24, d, 3)
    means = np.stack([h[y == c].mean(0) for c in range(3)])
    return means[y] + (h - means[y]) * np.append(np.ones(d - 1), factor), y


@pytest.mark.parametrize(("statistic", "scatter", "class_weight"), COMBINATIONS)
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_scales_of_dimensions_change_nothing_without_a_ridge(statistic, scatter, class_weight, alpha):
    """A ridge raised for the largest dimension once hid all others."""
    options = {"alpha": alpha, "statistic": statistic, "scatter": scatter, "class_weight": class_weight}
    h, y = gaussian_batch(30, 4, 3)
    scales = np.array([1e7, 1.0, 1e-12, 1e12])
    (before, gradient), (value, scaled) = (loss_and_gradient(x, y, lam=0.0, **options) for x in (h, h * scales))
    assert value == pytest.approx(before, rel=1e-9)
    assert relative_error(scaled * scales, gradient) < 1e-8


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("lam", [0.0, 1e-3])
@pytest.mark.parametrize("statistic", STATISTICS)
def test_scales_of_dimensions(statistic, lam, alpha):
    h, y = gaussian_batch(30, 4, 3)
    assert_is_exact(h * np.array([1e5, 1.0, 1e-9, 1e12]), y, statistic=statistic, lam=lam, alpha=alpha)


@pytest.mark.parametrize(("statistic", "scatter", "class_weight"), COMBINATIONS)
@pytest.mark.parametrize("seed", range(12))
def test_random_batches_of_odd_shapes_and_sizes(statistic, scatter, class_weight, seed):
    rng = np.random.default_rng([seed, COMBINATIONS.index((statistic, scatter, class_weight))])
    classes, d = rng.choice([2, 3, 5]), rng.choice([1, 2, 4, 7])
    h, y = gaussian_batch(classes + d + rng.choice([2, 10]), d, classes, seed=seed, offset=rng.choice([0, 1, 1e6]))
    scale = 10.0 ** rng.integers(-150, 151)
    lam = rng.choice([0, 1e-8, 1e-3, 1]) * scale**2
    options = {"statistic": statistic, "scatter": scatter, "class_weight": class_weight}
    assert_is_exact(
        h * scale, y, alpha=rng.choice([0, 0.3, 1]), lam=lam, value_error=1e-7, gradient_error=1e-7, **options
    )


@pytest.mark.parametrize("dimension", [0, 2])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_dimension_in_which_classes_are_points_does_not_hide_the_others(dimension, alpha):
    h, y = gaussian_batch(30, 3, 3)
    h[:, dimension] = np.array([0.0, 1.0, 3.0])[y]
    for scale in (1.0, 1e9):
        h[:, dimension] *= scale
        found = discriminant_eigenvalues(*constants(h, y), alpha=alpha, lam=0.0)
        true = exact_oracle(h, y, alpha=alpha, lam=0.0).eigenvalues
        np.testing.assert_allclose(found, true, rtol=1e-7)


def test_hyperplanes_do_not_feel_the_scales_of_dimensions_without_a_ridge():
    h, y = gaussian_batch(60, 4, 3)
    scales = np.array([1e7, 1.0, 1e-12, 1e12])
    before, after = (Hyperplanes(lam=0.0).fit(x, y).predict_proba(x) for x in (h, h * scales))
    torch.testing.assert_close(after, before, rtol=0, atol=1e-9)


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("factor", [1e-3, 1e-4, 1e-5, 1e-7, 3e-9])
@pytest.mark.parametrize("d", [2, 3, 5])
def test_large_eigenvalues_do_not_hide_small_ones(statistic, factor, alpha, d):
    """The matrix of the eigenproblem is a product, in which eigenvalues below 1e-16 of the largest one are lost."""
    h, y = collapsed(factor, d=d)
    weak, strong = exact_oracle(h, y, alpha=alpha, lam=0.0).eigenvalues
    assert strong > 0.1 / factor**2
    assert weak < 40
    # The rounding of the class means is not much smaller than the smallest deviations from them.
    error = max(1e-8, 1e-15 / factor)
    assert_is_exact(h, y, statistic=statistic, alpha=alpha, lam=0.0, value_error=error, gradient_error=error)
    found = discriminant_eigenvalues(*constants(h, y), alpha=alpha, lam=0.0)
    assert found[0].item() == pytest.approx(weak, rel=10 * error)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_smallest_eigenvalue_beside_one_of_almost_1e8(alpha, seed):
    """Its absolute error was 1e-8, the rounding of the large one."""
    h, y = gaussian_batch(60, 8, 5, seed=seed)
    means = np.stack([h[y == c].mean(0) for c in range(5)])
    h = 0.03 * means[y] + (h - means[y])
    h[:, 0] = y + 4e-4 * h[:, 0]
    true = exact_oracle(h, y, alpha=alpha, lam=0.0, statistic="smallest", epsilon=1e-9)
    assert 1e6 < true.eigenvalues[-1] < 1e8
    value, gradient = loss_and_gradient(h, y, alpha=alpha, lam=0.0, statistic="smallest", epsilon=1e-9)
    assert value == pytest.approx(true.value, rel=0, abs=1e-11)
    units = h.std(0)
    assert relative_error(gradient * units, true.gradient * units) < 1e-8
    found = discriminant_eigenvalues(*constants(h, y), alpha=alpha, lam=0.0)
    np.testing.assert_allclose(found[:-1], true.eigenvalues[:-1], rtol=0, atol=1e-11)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("factor", [1e-3, 1e-5, 3e-8])
@pytest.mark.parametrize("d", [2, 5])
def test_large_eigenvalues_are_those_without_a_ridge(factor, alpha, d):
    """A ridge from the variance between the classes once left four digits of an eigenvalue of 1e15."""
    h, y = collapsed(factor, d=d)
    true = exact_oracle(h, y, alpha=alpha, lam=0.0, least_ridge=False).eigenvalues
    assert true[1] > 0.1 / factor**2
    found = discriminant_eigenvalues(*constants(h, y), alpha=alpha, lam=0.0)
    np.testing.assert_allclose(found, true, rtol=1e-8)


@pytest.mark.parametrize(("factor", "error"), [(1e-3, 1e-7), (1e-4, 1e-5), (1e-5, 1e-3)])
def test_a_large_eigenvalue_along_correlated_dimensions(factor, error):
    """There, the rounding of S_W counts, so the error grows with the eigenvalue. Small eigenvalues do not feel it."""
    h, y = collapsed(factor, d=5)
    h = h @ np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
    true = exact_oracle(h, y, lam=0.0, least_ridge=False).eigenvalues
    found = discriminant_eigenvalues(*constants(h, y), lam=0.0)
    assert found[0].item() == pytest.approx(true[0], rel=1e-9)
    assert found[1].item() == pytest.approx(true[1], rel=error)


@pytest.mark.parametrize("scale", [1e-307, 1e-250, 1e-155, 1e155, 1e307])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("statistic", STATISTICS)
def test_features_near_the_limits_of_float64(statistic, alpha, scale):
    """Below 1e-170, the squares of the features once underflowed, and the loss was 0 even without a ridge."""
    h, y = gaussian_batch(24, 4, 3)
    assert_is_exact(h * scale, y, statistic=statistic, alpha=alpha, lam=0.0)


@pytest.mark.parametrize("scale", [1e-300, 1e-160])
@pytest.mark.parametrize("statistic", STATISTICS)
def test_a_ridge_decides_about_tiny_features(statistic, scale):
    h, y = gaussian_batch(24, 4, 3)
    value, gradient = loss_and_gradient(h * scale, y, statistic=statistic, lam=1e-3)
    assert -1e-300 < value <= 0
    assert np.abs(gradient).max() < 1e-140


@pytest.mark.parametrize("n", [7, 12, 20])
@pytest.mark.parametrize("d", [8, 30])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_pillai_is_never_below_minus_one(n, d, scale):
    for seed in range(5):
        h, y = gaussian_batch(n, d, 3, seed=seed)
        for lam in (0.0, 1e-12):
            assert loss_and_gradient(h * scale, y, statistic="pillai", lam=lam)[0] >= -1.0


def test_a_function_of_large_eigenvalues_is_the_named_statistic():
    h, y = collapsed(1e-5, d=3)
    by_name, by_function = (
        loss_and_gradient(h, y, statistic=statistic, lam=0.0) for statistic in ("wilks", lambda v: v.log1p().mean())
    )
    assert by_function[0] == pytest.approx(by_name[0], rel=1e-12)
    assert relative_error(by_function[1], by_name[1]) < 1e-12


def test_diagnostics_of_large_eigenvalues():
    h, y = collapsed(1e-7, d=2)
    criterion = DeepLDALoss("smallest", lam=0.0)
    loss = criterion(*tensors(h, y))
    true = exact_oracle(h, y, statistic="smallest", lam=0.0).eigenvalues
    np.testing.assert_allclose(criterion.diagnostics.eigenvalues, true, rtol=1e-6)
    assert criterion.diagnostics.selected == 1
    assert loss.item() == pytest.approx(-true[0], rel=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("span", [72, 76, 150])
def test_scales_of_dimensions_in_a_large_float32_batch(statistic, alpha, span):
    """Squares of the small dimensions once underflowed, and so did the features themselves when they were scaled."""
    h, y = gaussian_batch(1280, 64, 10)
    h = h.astype(np.float32).astype(np.float64)
    # Powers of two change no digit, so the float64 batch without them is an exact reference.
    scales = 2.0 ** np.linspace(-span / 2, span / 2, 64).round()
    options = {"statistic": statistic, "alpha": alpha, "lam": 0.0}
    before, gradient = loss_and_gradient(h, y, **options)
    features, labels = tensors(h * scales, y, torch.float32)
    loss = DeepLDALoss(**options)(features, labels)
    loss.backward()
    assert loss.item() == pytest.approx(before, rel=1e-6)
    assert relative_error(features.grad.double().numpy() * scales, gradient) < 1e-6
