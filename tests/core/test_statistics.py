"""Statistics given as callables: value and gradient against the oracle, finite differences and the named statistics."""

import copy
import functools
import pickle

import numpy as np
import pytest
import torch
from batches import SCATTERS, gaussian_batch, relative_error, simplex_batch, tensors
from oracle import oracle
from torch import nn

from deeplda import DeepLDALoss, deep_lda_loss
from deeplda.core import large_batch_backward, moments
from deeplda.core.statistics import evaluate, user_defined

pytestmark = pytest.mark.filterwarnings("ignore::deeplda.batch_rule.SmallBatchWarning")


def mean_log(v):
    return torch.log1p(v).mean()


def mixed(v):
    """Increases in the small eigenvalues and decreases in those above 1."""
    return (v - 0.5 * v.square()).sum()


def falling(v):
    return -v.square().mean()


def weighted(v):
    """Not symmetric: the smallest eigenvalue counts most, the largest negatively."""
    return (v * torch.linspace(1, -0.5, len(v)).to(v)).sum()


# Each callable for PyTorch with its value and derivatives written out for NumPy.
CALLABLES = {
    "mean log": (mean_log, lambda v: (np.log1p(v).mean(), 1 / (1 + v) / len(v))),
    "mixed signs": (mixed, lambda v: ((v - 0.5 * v**2).sum(), 1 - v)),
    "falling": (falling, lambda v: (-(v**2).mean(), -2 * v / len(v))),
    "weighted": (weighted, lambda v: ((v * np.linspace(1, -0.5, len(v))).sum(), np.linspace(1, -0.5, len(v)))),
    "smallest alone": (lambda v: v[0], lambda v: (v[0], np.eye(len(v))[0])),
}
every_callable = pytest.mark.parametrize("pair", CALLABLES.values(), ids=CALLABLES.keys())
SHAPES = {"d > C": (80, 9, 4), "d < C - 1": (80, 3, 7), "d = C": (60, 5, 5), "two classes": (40, 4, 2)}
NAMED = {
    "wilks": mean_log,
    "pillai": lambda v: (v / (1 + v)).mean(),
    "hotelling": lambda v: v.mean(),
    "smallest": lambda v: v[v <= v[0] + 1].mean(),
}


def loss_and_gradient(features, labels, statistic, **options):
    loss = deep_lda_loss(features, labels, statistic, **options)
    loss.backward()
    return loss.item(), features.grad


@every_callable
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("scatter", "class_weight"), [*((s, None) for s in SCATTERS), ("pooled", "balanced")])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_float64_is_the_oracle(pair, alpha, scatter, class_weight, shape):
    ours, written_out = pair
    options = {"alpha": alpha, "scatter": scatter, "class_weight": class_weight}
    # The callable that takes a logarithm is not defined for the indefinite S_B that "dorfer" can have.
    h, y = gaussian_batch(*shape)
    if scatter == "dorfer" and ours is mean_log:
        ours, written_out = CALLABLES["mixed signs"]
    value, gradient = loss_and_gradient(*tensors(h, y), ours, **options)
    true = oracle(h, y, statistic=written_out, **options)
    assert value == pytest.approx(true.value, rel=1e-10)
    assert relative_error(gradient, true.gradient) < 1e-8


@every_callable
@pytest.mark.parametrize("products", ["float32", "float64"])
def test_float32_is_the_oracle(pair, products, monkeypatch):
    if products == "float32":
        monkeypatch.setattr(moments, "_SMALL_PRODUCT", 0)
    ours, written_out = pair
    h, y = gaussian_batch(400, 9, 4)
    features, labels = tensors(h, y, torch.float32)
    value, gradient = loss_and_gradient(features, labels, ours, alpha=0.6)
    true = oracle(features.detach().double().numpy(), y, statistic=written_out, alpha=0.6)
    assert value == pytest.approx(true.value, rel=1e-5)
    assert gradient.dtype == torch.float32
    assert relative_error(gradient, true.gradient) < 1e-4


@every_callable
@pytest.mark.parametrize("scatter", SCATTERS)
@pytest.mark.parametrize(("d", "classes"), [(4, 3), (3, 5)], ids=["by class", "by dimension"])
def test_gradient_is_that_of_finite_differences(pair, scatter, d, classes):
    if scatter == "dorfer" and pair[0] is mean_log:
        pair = CALLABLES["mixed signs"]
    features, labels = tensors(*gaussian_batch(30, d, classes))
    options = {"alpha": 0.4, "scatter": scatter, "lam": 0.1}
    assert torch.autograd.gradcheck(lambda h: deep_lda_loss(h, labels, pair[0], **options), (features,))


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_a_callable_equals_the_named_statistic(name, alpha, shape):
    h, y = gaussian_batch(*shape)
    value, gradient = loss_and_gradient(*tensors(h, y), NAMED[name], alpha=alpha)
    true_value, true_gradient = loss_and_gradient(*tensors(h, y), name, alpha=alpha)
    assert value == pytest.approx(true_value, rel=1e-11)
    assert relative_error(gradient, true_gradient.numpy()) < 1e-9


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("d", [4, 6])
def test_symmetric_callables_are_exact_at_repeated_eigenvalues(name, d):
    h, y = simplex_batch(4, d)
    eigenvalues = oracle(h, y).eigenvalues
    assert np.ptp(eigenvalues) < 1e-12 * eigenvalues.max()
    value, gradient = loss_and_gradient(*tensors(h, y), NAMED[name])
    true_value, true_gradient = loss_and_gradient(*tensors(h, y), name)
    assert value == pytest.approx(true_value, rel=1e-11)
    assert relative_error(gradient, true_gradient.numpy()) < 1e-9


def test_a_falling_symmetric_callable_at_repeated_eigenvalues_is_the_oracle():
    h, y = simplex_batch(4, 6)
    value, gradient = loss_and_gradient(*tensors(h, y), falling)
    true = oracle(h, y, statistic=CALLABLES["falling"][1])
    assert value == pytest.approx(true.value, rel=1e-11)
    assert relative_error(gradient, true.gradient) < 1e-9


def test_the_derivative_is_the_factor_with_its_signs():
    rng = np.random.default_rng(0)
    root = torch.tensor(rng.normal(size=(5, 5)))
    matrix = (root @ root.T).requires_grad_()
    (true,) = torch.autograd.grad(mixed(torch.linalg.eigvalsh(matrix)[-4:]), matrix)
    found = user_defined(mixed, matrix.detach(), 4)
    assert set(found.signs.tolist()) == {-1.0, 1.0}
    torch.testing.assert_close(found.factor.T * found.signs @ found.factor, (true + true.T) / 2)


def test_named_statistics_have_no_signs():
    assert all(evaluate(name, torch.eye(3).double(), 2, 1.0).signs is None for name in NAMED)


def test_the_callable_sees_ascending_float64_eigenvalues():
    seen = []

    def statistic(v):
        seen.append(v)
        return v.mean()

    h, y = gaussian_batch()
    deep_lda_loss(*tensors(h, y, torch.float32), statistic)
    assert seen[0].dtype == torch.float64
    assert seen[0].requires_grad
    assert relative_error(seen[0], oracle(h, y).eigenvalues) < 1e-5


def test_negative_eigenvalues_of_dorfers_scatter_reach_the_callable():
    rng = np.random.default_rng(1)
    h, y = rng.normal(size=(40, 3)), np.arange(40) % 4
    written_out = CALLABLES["mixed signs"][1]
    true = oracle(h, y, statistic=written_out, scatter="dorfer")
    assert true.eigenvalues[0] < 0
    value, gradient = loss_and_gradient(*tensors(h, y), mixed, scatter="dorfer")
    assert value == pytest.approx(true.value, rel=1e-10)
    assert relative_error(gradient, true.gradient) < 1e-8


class TestInsideTheLoss:
    def test_diagnostics(self):
        h, y = gaussian_batch(100, 6, 6)
        criterion = DeepLDALoss(mean_log)
        criterion(*tensors(h, y))
        assert relative_error(criterion.diagnostics.eigenvalues, oracle(h, y).eigenvalues) < 1e-9
        assert criterion.diagnostics.selected == 5

    def test_name_in_repr(self):
        assert "mean_log, alpha=1.0" in repr(DeepLDALoss(mean_log))
        assert "functools.partial" in repr(DeepLDALoss(functools.partial(torch.quantile, q=0.2)))
        assert "0x" not in repr(DeepLDALoss(functools.partial(torch.quantile, q=0.2)))

    def test_copy_and_pickle(self):
        features, labels = tensors(*gaussian_batch())
        # A function of a module that can be imported, as pickle requires.
        criterion = DeepLDALoss(torch.mean)
        value = criterion(features, labels)
        for twin in (copy.deepcopy(criterion), pickle.loads(pickle.dumps(criterion))):
            assert torch.equal(twin(features, labels), value)

    def test_large_batch_backward(self):
        h, y = gaussian_batch(50, 6, 4)
        torch.manual_seed(0)
        network = nn.Linear(6, 5).double()
        twin = copy.deepcopy(network)
        inputs, labels = torch.from_numpy(h), torch.from_numpy(y)
        large_batch_backward(network, DeepLDALoss(mixed), inputs, labels, chunk_size=20)
        DeepLDALoss(mixed)(twin(inputs), labels).backward()
        assert relative_error(network.weight.grad, twin.weight.grad.numpy()) < 1e-10

    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
    def test_without_a_graph(self, mode):
        h, y = gaussian_batch()
        with mode():
            features, labels = torch.tensor(h), torch.tensor(y)
            assert deep_lda_loss(features, labels, mixed).item() == pytest.approx(
                oracle(h, y, statistic=CALLABLES["mixed signs"][1]).value
            )

    def test_a_module_can_be_the_statistic(self):
        class Power(nn.Module):
            def forward(self, v):
                return v.sqrt().mean()

        h, y = gaussian_batch()
        true = oracle(h, y, statistic=lambda v: (np.sqrt(v).mean(), 0.5 / np.sqrt(v) / len(v)))
        value, gradient = loss_and_gradient(*tensors(h, y), Power())
        assert value == pytest.approx(true.value)
        assert relative_error(gradient, true.gradient) < 1e-9
        assert "Power" in repr(DeepLDALoss(Power()))


MISTAKES = {
    "a float": (lambda v: v.mean().item(), TypeError, "of type float, need a 0-d tensor"),
    "a vector": (lambda v: v * 2, ValueError, r"shape \(3,\) .* need a 0-d"),
    "an integer": (lambda v: (v > 1).sum(), ValueError, "dtype torch.int64"),
    "NaN": (lambda v: (v - 1e6).log().mean(), ValueError, "returned nan for the eigenvalues"),
    "infinite": (lambda v: (v / 0).mean(), ValueError, "returned inf"),
    "detached": (lambda v: v.detach().mean(), ValueError, "without a gradient"),
    "of something else": (lambda v: torch.ones((), requires_grad=True) * 2, ValueError, "without a gradient"),  # noqa: ARG005
    "infinite derivative": (lambda v: (v - v.detach()).sqrt().sum(), ValueError, "finite derivatives"),
}


@pytest.mark.parametrize(("statistic", "error", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_of_a_callable(statistic, error, message):
    with pytest.raises(error, match=message):
        deep_lda_loss(*tensors(*gaussian_batch()), statistic)


def test_errors_of_a_callable_are_passed_on():
    def broken(_):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        deep_lda_loss(*tensors(*gaussian_batch()), broken)
