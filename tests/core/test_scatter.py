"""Eigenvalues compared with SciPy's generalised solver."""

import numpy as np
import pytest
import torch
from batches import SCATTERS, constants, gaussian_batch, relative_error, tensors
from oracle import oracle

from deeplda.core.moments import CentredBatch
from deeplda.core.scatter import DiscriminantProblem, discriminant_eigenvalues


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("scatter", SCATTERS)
@pytest.mark.parametrize(("n", "d", "classes"), [(80, 3, 6), (80, 12, 4), (90, 5, 2)])
def test_eigenvalues_are_scipys(alpha, scatter, n, d, classes):
    h, y = gaussian_batch(n, d, classes)
    found = discriminant_eigenvalues(*constants(h, y), alpha=alpha, scatter=scatter)
    assert found.dtype == torch.float64
    assert len(found) == min(d, classes - 1)
    assert relative_error(found, oracle(h, y, alpha=alpha, scatter=scatter).eigenvalues) < 1e-11


def test_balanced_weights_make_repeated_samples_count_once():
    h, y = gaussian_batch(60, 4, 3)
    repeated = np.concatenate([h, h[y == 1], h[y == 1]]), np.concatenate([y, y[y == 1], y[y == 1]])
    once = discriminant_eigenvalues(*constants(h, y), class_weight="balanced")
    thrice = discriminant_eigenvalues(*constants(*repeated), class_weight="balanced")
    torch.testing.assert_close(once, thrice, rtol=1e-12, atol=0)


def test_the_default_is_dlda():
    h, y = gaussian_batch()
    assert relative_error(discriminant_eigenvalues(*constants(h, y)), oracle(h, y, alpha=1.0).eigenvalues) < 1e-11


def test_alpha_zero_factorises_nothing(monkeypatch):
    def refuse(*_args, **_kwargs):
        raise AssertionError("a matrix was factorised")

    monkeypatch.setattr(torch.linalg, "cholesky_ex", refuse)
    monkeypatch.setattr(torch.linalg, "solve_triangular", refuse)
    h, y = gaussian_batch()
    found = discriminant_eigenvalues(*constants(h, y), alpha=0.0)
    assert relative_error(found, oracle(h, y, alpha=0.0).eigenvalues) < 1e-11


@pytest.mark.parametrize(("d", "classes", "size"), [(12, 4, 4), (4, 12, 4), (5, 5, 5)])
def test_the_smaller_problem_is_solved(d, classes, size):
    batch = CentredBatch.of(*(t.detach() for t in tensors(*gaussian_batch(80, d, classes))))
    problem = DiscriminantProblem.of(batch, 0.6, 1e-3, "pooled", None)
    assert problem.matrix.shape == (size, size)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(("factor", "own"), [(100.0, 0.3), (1.0, 1e-3), (1e3, 1.0)])
def test_a_float32_product_too_coarse_for_the_factorisation_is_made_again_in_float64(factor, own, order):
    """Only the small difference between two nearly equal dimensions separates the classes. Pivots depend on the order
    of the dimensions, so both orders are tested."""
    rng, y = np.random.default_rng(0), np.arange(2000) % 3
    h = rng.normal(size=(2000, 64))
    h[:, 1] = factor * h[:, 0] + own * (h[:, 1] + y)
    h = h[:, ::order].astype(np.float32)
    assert h.size * h.shape[1] > 2**22  # else the product is made in float64 at once
    true = oracle(h, y, alpha=1.0, lam=0.0).eigenvalues
    found = discriminant_eigenvalues(torch.tensor(h), torch.tensor(y), alpha=1.0, lam=0.0)
    assert relative_error(found, true) < 1e-5


def test_so_is_the_residual_of_dorfers_reading():
    rng, y = np.random.default_rng(0), np.repeat([0, 1, 2], [1500, 400, 100])
    h = rng.normal(size=(2000, 64))
    h[:, 1] = h[:, 0] + 1e-3 * (h[:, 1] + y)
    h = h.astype(np.float32)
    true = oracle(h, y, alpha=1.0, lam=0.0, scatter="dorfer").eigenvalues
    found = discriminant_eigenvalues(torch.tensor(h), torch.tensor(y), alpha=1.0, lam=0.0, scatter="dorfer")
    assert relative_error(found, true) < 1e-5


@pytest.fixture(params=["high", "medium", "backend"])
def rounded_products(request):
    """Let PyTorch round float32 products, by its general setting or by that of a backend."""
    if request.param == "backend":
        if not hasattr(torch.backends.mkldnn, "matmul"):
            pytest.skip("torch 2.6 has no such settings of backends")
        backend = torch.backends.mkldnn.matmul
        before, backend.fp32_precision = backend.fp32_precision, "bf16"
        yield
        backend.fp32_precision = before
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(request.param)
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("rounded_products")
def test_no_product_of_ours_is_rounded():
    rng, y = np.random.default_rng(0), np.arange(2000) % 3
    h = (rng.normal(size=(2000, 64)) + y[:, None]).astype(np.float32)
    found = discriminant_eigenvalues(torch.tensor(h), torch.tensor(y))
    assert relative_error(found, oracle(h, y).eigenvalues) < 1e-9


def test_without_a_ridge_a_repeated_dimension_is_survived():
    h, y = gaussian_batch(60, 4, 3)
    alone = discriminant_eigenvalues(*constants(h, y), alpha=1.0, lam=0.0)
    repeated = discriminant_eigenvalues(*constants(np.concatenate([h, h[:, :1]], axis=1), y), alpha=1.0, lam=0.0)
    torch.testing.assert_close(repeated, alone, rtol=1e-3, atol=0)


def test_features_that_require_a_gradient_are_rejected():
    features, labels = tensors(*gaussian_batch())
    expected = discriminant_eigenvalues(features.detach(), labels)
    with pytest.raises(ValueError, match=r"pass features.detach\(\); to train on f\(eigenvalues\), use DeepLDALoss"):
        discriminant_eigenvalues(features, labels)
    with torch.no_grad():
        assert torch.equal(discriminant_eigenvalues(features, labels), expected)
