"""Batches that break other implementations: the loss is finite, and equal to the oracle if that can be trusted."""

import numpy as np
import pytest
import torch
from batches import STATISTICS, gaussian_batch, relative_error, simplex_batch, tensors
from oracle import oracle

from deeplda import DeepLDALoss
from deeplda.core import moments
from deeplda.core.moments import class_moments

pytestmark = pytest.mark.filterwarnings("ignore::deeplda.batch_rule.SmallBatchWarning")
every_statistic = pytest.mark.parametrize("statistic", STATISTICS)


def assert_is_oracle(h, y, *, value_error=1e-9, gradient_error=1e-8, dtype=torch.float64, **options):
    features, labels = tensors(h, y, dtype)
    loss = DeepLDALoss(**options)(features, labels)
    loss.backward()
    true = oracle(features.detach().double().numpy(), y, **options)
    assert loss.item() == pytest.approx(true.value, rel=value_error, abs=1e-15)
    assert relative_error(features.grad, true.gradient) < gradient_error


@every_statistic
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize(("classes", "d"), [(4, 4), (4, 7)])
def test_equal_eigenvalues(statistic, alpha, classes, d):
    h, y = simplex_batch(classes, d)
    criterion = DeepLDALoss(statistic=statistic, alpha=alpha)
    criterion(*tensors(h, y))
    eigenvalues = criterion.diagnostics.eigenvalues
    assert eigenvalues.max() - eigenvalues.min() < 1e-12 * eigenvalues.max()
    assert_is_oracle(h, y, statistic=statistic, alpha=alpha)


@every_statistic
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_dead_dimensions(statistic, alpha):
    h, y = gaussian_batch(60, 8, 3)
    h[:, [1, 4, 5]] = 0.0
    assert_is_oracle(h, y, statistic=statistic, alpha=alpha)
    features, labels = tensors(h, y)
    DeepLDALoss(statistic=statistic, alpha=alpha)(features, labels).backward()
    assert (features.grad[:, [1, 4, 5]] == 0).all()


@every_statistic
def test_classes_with_one_sample(statistic):
    h, y = gaussian_batch(40, 4, 3)
    h = np.concatenate([h, [[9.0, 1, 2, 3], [-5, 0, 1, 1]]])
    y = np.concatenate([y, [7, 11]])
    assert_is_oracle(h, y, statistic=statistic)


@pytest.mark.parametrize("statistic", ["smallest", "hotelling"])
def test_classes_with_one_sample_in_the_reading_of_dorfer(statistic):
    h, y = gaussian_batch(40, 4, 3)
    h, y = np.concatenate([h, [[9.0, 1, 2, 3]]]), np.concatenate([y, [7]])
    assert_is_oracle(h, y, statistic=statistic, scatter="dorfer")


@pytest.mark.parametrize("scatter", ["pooled", "sum", "dorfer"])
def test_every_class_has_one_sample(scatter):
    h, _ = gaussian_batch(6, 4, 3)
    assert_is_oracle(h, np.arange(6), scatter=scatter, statistic="smallest")


@every_statistic
def test_missing_classes_and_ids_far_apart(statistic):
    h, y = gaussian_batch(60, 4, 3)
    far = np.array([3, 10**6, 2**62])[y]
    features, labels = tensors(h, y)
    criterion = DeepLDALoss(statistic=statistic)
    assert torch.equal(criterion(features, torch.tensor(far)), criterion(features, labels))


@every_statistic
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_more_dimensions_than_samples(statistic, alpha):
    h, y = gaussian_batch(20, 50, 3)
    assert_is_oracle(h, y, statistic=statistic, alpha=alpha)


@every_statistic
@pytest.mark.parametrize("alpha", [0.6, 1.0])
def test_more_dimensions_than_samples_in_float32(statistic, alpha):
    """With eigenvalues up to 1e4, the rounding of the features themselves matters."""
    h, y = gaussian_batch(20, 50, 3)
    options = {"statistic": statistic, "alpha": alpha, "dtype": torch.float32}
    assert_is_oracle(h, y, value_error=1e-5, gradient_error=1e-3, **options)


@every_statistic
def test_fewer_dimensions_than_classes_can_differ_in(statistic):
    h, y = gaussian_batch(100, 2, 9)
    assert_is_oracle(h, y, statistic=statistic)


@every_statistic
def test_one_dimension_and_two_classes(statistic):
    h, y = gaussian_batch(30, 1, 2)
    assert_is_oracle(h, y, statistic=statistic)


@every_statistic
@pytest.mark.parametrize("d", [40, 1200])
def test_a_thousand_classes(statistic, d):
    h, y = gaussian_batch(2500, d, 1000)
    features, labels = tensors(h, y, torch.float32)
    loss = DeepLDALoss(statistic=statistic)(features, labels)
    loss.backward()
    assert torch.isfinite(features.grad).all()
    if d == 40:
        true = oracle(features.detach().double().numpy(), y, statistic=statistic)
        assert loss.item() == pytest.approx(true.value, rel=1e-5)
        assert relative_error(features.grad, true.gradient) < 1e-5


@every_statistic
@pytest.mark.parametrize("scale", [1e-15, 1e15])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_features_of_extreme_size(statistic, scale, dtype, alpha):
    h, y = gaussian_batch(60, 5, 3)
    error = 1e-5 if dtype == torch.float32 else 1e-8
    assert_is_oracle(
        h * scale, y, statistic=statistic, dtype=dtype, alpha=alpha, value_error=error, gradient_error=error
    )


@pytest.mark.parametrize("scale", [1e-38, 1e-40, 1e-44])
@pytest.mark.parametrize("lam", [1e-80, 1e-3])
def test_features_that_float32_hardly_has(scale, lam, monkeypatch):
    """The power of two that brings them near 1 is itself too large for float32."""
    monkeypatch.setattr(moments, "_SMALL_PRODUCT", 0)
    h, y = gaussian_batch(60, 5, 3)
    features, labels = tensors(h * scale, y, torch.float32)
    loss = DeepLDALoss(lam=lam)(features, labels)
    true = oracle(features.detach().double().numpy(), y, lam=lam)
    assert loss.item() == pytest.approx(true.value, rel=1e-5, abs=1e-15)
    found = class_moments(features.detach(), labels)
    exact = class_moments(features.detach().double(), labels)
    torch.testing.assert_close(found.means / scale, exact.means / scale, rtol=1e-6, atol=1e-6)


@every_statistic
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("lam", [0.0, 1e-3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
class TestCollapse:
    def test_all_features_equal(self, statistic, alpha, lam, dtype):
        features = torch.full((20, 4), 7.7, dtype=dtype, requires_grad=True)
        loss = DeepLDALoss(statistic=statistic, alpha=alpha, lam=lam)(features, torch.arange(20) % 3)
        loss.backward()
        # Without a ridge, only the rounding of the means is left.
        assert abs(loss.item()) < (1e-9 if lam else 1e-3)
        assert torch.isfinite(features.grad).all()

    @pytest.mark.parametrize("scale", [1e-12, 1.0, 1e9])
    def test_every_class_is_a_point(self, statistic, alpha, lam, dtype, scale):
        labels = torch.arange(20) % 3
        features = (torch.eye(3, 4, dtype=dtype)[labels] * scale).requires_grad_()
        loss = DeepLDALoss(statistic=statistic, alpha=alpha, lam=lam)(features, labels)
        loss.backward()
        assert torch.isfinite(loss)
        assert loss <= 0
        assert torch.isfinite(features.grad).all()

    def test_class_means_on_a_line(self, statistic, alpha, lam, dtype):
        """With S_B of rank one for three classes, the smallest valid eigenvalue is 0."""
        h, y = gaussian_batch(200, 4, 3)
        means = np.stack([h[y == c].mean(0) for c in range(3)])
        h = h - means[y] + np.arange(3)[y][:, None] * np.ones(4)
        features, labels = tensors(h, y, dtype)
        loss = DeepLDALoss(statistic=statistic, alpha=alpha, lam=lam)(features, labels)
        loss.backward()
        assert torch.isfinite(features.grad).all()
        true = oracle(features.detach().double().numpy(), y, statistic=statistic, alpha=alpha, lam=lam)
        assert loss.item() == pytest.approx(true.value, rel=1e-4, abs=1e-5)
