"""The losses: value and gradient against the oracle, their options, and use inside a training loop."""

import copy
import pickle
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from batches import COMBINATIONS, STATISTICS, gaussian_batch, relative_error, tensors
from oracle import oracle
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from deeplda import DeepLDALoss, DLDALoss, RDLDALoss, StratifiedBatchSampler, deep_lda_loss
from deeplda.batch_rule import SmallBatchWarning, is_too_small, remedies
from deeplda.core import moments
from deeplda.core.scatter import discriminant_eigenvalues

ALPHAS = (0.0, 0.3, 1.0)
SHAPES = {"d > C": (80, 9, 4), "d < C - 1": (80, 3, 7), "d = C": (60, 5, 5), "two classes": (40, 4, 2)}
every_combination = pytest.mark.parametrize(("statistic", "scatter", "class_weight"), COMBINATIONS)
every_alpha = pytest.mark.parametrize("alpha", ALPHAS)


@pytest.fixture(autouse=True)
def narrow_features_are_meant():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "a batch of 80 samples in 7 classes does not suit 3 dim", SmallBatchWarning)
        yield


def loss_and_gradient(features, labels, **options):
    loss = DeepLDALoss(**options)(features, labels)
    loss.backward()
    return loss.item(), features.grad


@every_combination
@every_alpha
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_float64_is_the_oracle(statistic, scatter, class_weight, alpha, shape):
    options = {"alpha": alpha, "statistic": statistic, "scatter": scatter, "class_weight": class_weight}
    h, y = gaussian_batch(*shape)
    value, gradient = loss_and_gradient(*tensors(h, y), **options)
    true = oracle(h, y, **options)
    assert value == pytest.approx(true.value, rel=1e-11)
    assert relative_error(gradient, true.gradient) < 1e-9


@every_combination
@every_alpha
@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize(("products", "error"), [("float32", 1e-5), ("float64", 2e-6)])
def test_float32_is_the_oracle(statistic, scatter, class_weight, alpha, offset, products, error, monkeypatch):
    """Products are in float32, as for large batches, or in float64, as for small ones."""
    if products == "float32":
        monkeypatch.setattr(moments, "_SMALL_PRODUCT", 0)
    options = {"alpha": alpha, "statistic": statistic, "scatter": scatter, "class_weight": class_weight}
    h, y = gaussian_batch(400, 9, 4, offset=offset)
    features, labels = tensors(h, y, torch.float32)
    value, gradient = loss_and_gradient(features, labels, **options)
    true = oracle(features.detach().double().numpy(), y, **options)
    assert value == pytest.approx(true.value, rel=1e-6)
    assert gradient.dtype == torch.float32
    assert relative_error(gradient, true.gradient) < error


@every_combination
@every_alpha
def test_gradient_is_that_of_central_differences(statistic, scatter, class_weight, alpha):
    options = {"alpha": alpha, "statistic": statistic, "scatter": scatter, "class_weight": class_weight}
    h, y = gaussian_batch(25, 4, 3)
    step = 1e-5
    differences = np.zeros_like(h)
    for at in np.ndindex(h.shape):
        up, down = h.copy(), h.copy()
        up[at] += step
        down[at] -= step
        differences[at] = (oracle(up, y, **options).value - oracle(down, y, **options).value) / (2 * step)
    _, gradient = loss_and_gradient(*tensors(h, y), **options)
    assert relative_error(gradient, differences) < 1e-6


@every_combination
def test_gradcheck(statistic, scatter, class_weight):
    features, labels = tensors(*gaussian_batch(20, 4, 3))
    loss = DeepLDALoss(statistic=statistic, scatter=scatter, class_weight=class_weight)
    assert torch.autograd.gradcheck(lambda h: loss(h, labels), (features,))


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 100.0])
def test_epsilon_chooses_the_eigenvalues(epsilon):
    h, y = gaussian_batch(100, 6, 6)
    value, gradient = loss_and_gradient(*tensors(h, y), epsilon=epsilon, statistic="smallest")
    true = oracle(h, y, epsilon=epsilon, statistic="smallest")
    assert value == pytest.approx(true.value, rel=1e-11)
    assert relative_error(gradient, true.gradient) < 1e-9


def test_statistics_differ():
    features, labels = tensors(*gaussian_batch())
    assert len({DeepLDALoss(statistic=s)(features, labels).item() for s in STATISTICS}) == len(STATISTICS)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 2e-3), (torch.bfloat16, 1e-2)])
def test_half_precision(dtype, tolerance, monkeypatch):
    monkeypatch.setattr(moments, "_SMALL_PRODUCT", 0)
    h, y = gaussian_batch(200, 6, 4)
    features, labels = tensors(h, y, dtype)
    loss = DeepLDALoss()(features, labels)
    assert loss.dtype == torch.float32
    loss.backward()
    true = oracle(features.detach().double().numpy(), y)
    assert loss.item() == pytest.approx(true.value, rel=1e-5)
    assert features.grad.dtype == dtype
    assert relative_error(features.grad, true.gradient) < tolerance


def test_upstream_gradient_scales_ours():
    h, y = gaussian_batch()
    features, labels = tensors(h, y, torch.float16)
    (DeepLDALoss()(features, labels) * 2.0**12).backward()
    assert relative_error(features.grad / 2**12, oracle(features.detach().double().numpy(), y).gradient) < 2e-3


def test_autocast_does_not_round_the_loss(monkeypatch):
    # Products in float32, as for large batches: autocast does not round float64 products.
    monkeypatch.setattr(moments, "_SMALL_PRODUCT", 0)
    torch.manual_seed(0)
    network = nn.Linear(12, 6)
    inputs, labels = torch.randn(100, 12), torch.arange(100) % 4
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = network(inputs)
        features.retain_grad()
        assert features.dtype == torch.bfloat16
        loss = DeepLDALoss()(features, labels)
        loss.backward()
    true = oracle(features.detach().double().numpy(), labels.numpy())
    assert loss.item() == pytest.approx(true.value, rel=1e-5)
    assert relative_error(features.grad, true.gradient) < 1e-2


@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0:RuntimeWarning")
@pytest.mark.parametrize("whole_step", [False, True], ids=["network", "network and loss"])
def test_torch_compile(whole_step):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 5))
    inputs, labels = torch.randn(60, 8), torch.arange(60) % 4
    criterion = DeepLDALoss()

    def step(model):
        network.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        return loss.item(), network[0].weight.grad.clone()

    value, gradient = step(network)
    if whole_step:
        loss = torch.compile(lambda x: criterion(network(x), labels), backend="aot_eager")
        network.zero_grad()
        compiled = loss(inputs)
        compiled.backward()
        compiled_value, compiled_gradient = compiled.item(), network[0].weight.grad
    else:
        compiled_value, compiled_gradient = step(torch.compile(network, backend="aot_eager"))
    assert compiled_value == pytest.approx(value, rel=1e-6)
    torch.testing.assert_close(compiled_gradient, gradient)


@pytest.mark.parametrize("criterion", [DeepLDALoss(), deep_lda_loss], ids=["module", "function"])
def test_torch_compile_breaks_around_the_loss(criterion):
    graphs = []

    def backend(graph, _):
        graphs.append([node.name for node in graph.graph.nodes if node.op == "call_function"])
        return graph

    features, labels = torch.randn(60, 5, generator=torch.manual_seed(0)), torch.arange(60) % 4
    step = torch.compile(lambda h: criterion(h * 2, labels) + 1, backend=backend)
    torch._dynamo.reset()
    for _ in range(3):
        assert step(features).item() == pytest.approx(criterion(features * 2, labels).item() + 1)
    assert graphs == [["mul"], ["add"]]


def test_import_costs_no_compiler():
    code = "import sys, deeplda.losses; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_training_separates_classes():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))
    h, y = gaussian_batch(200, 6, 4)
    inputs, labels = torch.tensor(h, dtype=torch.float32), torch.tensor(y)
    criterion, optimizer = DeepLDALoss(), torch.optim.Adam(network.parameters(), 1e-2)
    before = discriminant_eigenvalues(network(inputs).detach(), labels).min()
    for _ in range(60):
        optimizer.zero_grad()
        criterion(network(inputs), labels).backward()
        optimizer.step()
    assert discriminant_eigenvalues(network(inputs).detach(), labels).min() > 10 * before


def test_a_second_derivative_is_refused():
    features, labels = tensors(*gaussian_batch())
    loss = DeepLDALoss()(features, labels)
    with pytest.raises(RuntimeError, match="differentiated only once"):
        torch.autograd.grad(loss, features, create_graph=True)


def test_features_are_not_changed():
    features, labels = tensors(*gaussian_batch())
    before = features.detach().clone()
    loss_and_gradient(features, labels)
    assert torch.equal(features, before)


def test_without_gradient_none_is_prepared():
    features, labels = tensors(*gaussian_batch())
    with torch.no_grad():
        assert not DeepLDALoss()(features, labels).requires_grad
    assert not DeepLDALoss()(features.detach(), labels).requires_grad


def test_non_contiguous_features():
    h, y = gaussian_batch(80, 6, 4)
    features, labels = tensors(np.ascontiguousarray(h.T), y)
    DeepLDALoss()(features.T, labels).backward()
    assert relative_error(features.grad.T, oracle(h, y).gradient) < 1e-9


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_integer_labels_of_any_kind(dtype):
    features, labels = tensors(*gaussian_batch())
    assert torch.equal(DeepLDALoss()(features, labels.to(dtype)), DeepLDALoss()(features, labels))


@pytest.mark.parametrize("statistic", ["wilks", "pillai", "hotelling"])
def test_smooth_statistics_solve_no_eigenproblem(statistic, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise AssertionError("an eigenproblem was solved")

    monkeypatch.setattr(torch.linalg, "eigh", refuse)
    monkeypatch.setattr(torch.linalg, "eigvalsh", refuse)
    loss_and_gradient(*tensors(*gaussian_batch()), statistic=statistic)


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_no_array_is_larger_than_the_features(statistic, alpha):
    class Largest(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # the signature is torch's
            result = func(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, tuple) else (result,):
                if isinstance(tensor, torch.Tensor):
                    self.elements = max(self.elements, tensor.numel())
            return result

    n, d = 500, 40
    features, labels = tensors(*gaussian_batch(n, d, 20))
    with Largest() as largest:
        loss_and_gradient(features, labels, statistic=statistic, alpha=alpha)
    assert largest.elements == n * d


class TestDiagnostics:
    def test_figures(self):
        h, y = gaussian_batch(100, 6, 6)
        h[:, 2] = 3.3
        features, labels = tensors(h, y)
        criterion = DeepLDALoss(alpha=0.3, statistic="smallest")
        criterion(features, labels)
        eigenvalues = oracle(h, y, alpha=0.3).eigenvalues
        found = criterion.diagnostics
        # A dead dimension leaves d - 1 = 5 live ones, as many as there are valid eigenvalues.
        assert relative_error(found.eigenvalues, eigenvalues) < 1e-9
        assert found.selected == (eigenvalues <= eigenvalues[0] + 1).sum()
        assert found.classes == 6
        assert found.smallest_class == np.bincount(y).min()
        assert found.dead_dims == 1

    def test_selected_counts_all_for_smooth_statistics(self):
        criterion = DeepLDALoss(statistic="wilks")
        criterion(*tensors(*gaussian_batch(100, 6, 6)))
        assert criterion.diagnostics.selected == 5

    def test_nothing_is_solved_before_it_is_read(self, monkeypatch):
        criterion = DeepLDALoss(statistic="pillai")
        solved = []
        monkeypatch.setattr(torch.linalg, "eigvalsh", lambda m: solved.append(1) or torch.linalg.eigh(m)[0])
        criterion(*tensors(*gaussian_batch()))
        assert not solved
        assert len(criterion.diagnostics.eigenvalues) == 3
        assert solved

    def test_detached(self):
        criterion = DeepLDALoss()
        criterion(*tensors(*gaussian_batch()))
        assert not criterion.diagnostics.eigenvalues.requires_grad

    def test_before_the_first_batch(self):
        with pytest.raises(RuntimeError, match="call the loss first"):
            _ = DeepLDALoss().diagnostics


class TestWarnings:
    def test_a_small_batch_is_worth_one_warning_where_the_loss_was_called(self):
        features, labels = tensors(*gaussian_batch(20, 30, 3))
        criterion = DeepLDALoss()
        with pytest.warns(SmallBatchWarning, match="20 samples in 3 classes does not suit 30 dimensions") as caught:
            criterion(features, labels)
        assert len(caught) == 1
        assert caught[0].filename == __file__
        criterion(features, labels)
        criterion(*tensors(*gaussian_batch(80, 2, 6)))

    def test_code_without_a_name_is_warned_too(self):
        features, labels = tensors(*gaussian_batch(20, 30, 3))
        with pytest.warns(SmallBatchWarning):
            exec("loss(features, labels)", {"loss": DeepLDALoss(), "features": features, "labels": labels})

    @pytest.mark.parametrize("statistic", ["wilks", "pillai", "smallest"])
    @pytest.mark.parametrize("dims", [4, 8, 9, 10, 30, 60, 61, 62, 200])
    def test_the_rule_decides(self, statistic, dims):
        features, labels = torch.randn(100, dims), torch.arange(100) % 10
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            DeepLDALoss(statistic)(features, labels)
        assert len(caught) == is_too_small([10] * 10, dims)

    def test_a_small_last_batch_is_no_reason_to_warn(self):
        criterion = DeepLDALoss()
        criterion(torch.randn(100, 10), torch.arange(100) % 10)
        criterion(torch.randn(7, 10), torch.arange(7))

    def test_the_advice_has_the_numbers_of_the_remedies(self):
        """1,000 classes in batches of 256, on 1,000 outputs: fewer classes in a batch and fewer outputs."""
        with pytest.warns(SmallBatchWarning) as caught:
            DeepLDALoss()(torch.randn(256, 1000), torch.arange(256))
        found = remedies([1] * 256, 1000)
        samples, width = found.narrow_subset
        message = str(caught[0].message)
        assert f"at most {width} dimensions with batches of fewer classes" in message
        assert f"StratifiedBatchSampler(labels, 256, samples_per_class={samples})" in message
        assert f"batches of at least {found.batch_size[0]} samples of these classes" in message

    def test_the_advised_batches_do_not_warn(self):
        """The call in the message is a sampler whose batches suit the loss."""
        labels = np.repeat(np.arange(1000), 40)
        with pytest.warns(SmallBatchWarning) as caught:
            DeepLDALoss()(torch.randn(256, 128), torch.arange(256))
        call = re.search(r"StratifiedBatchSampler\(.*?\)", str(caught[0].message))[0]
        sampler = eval(call, {"StratifiedBatchSampler": StratifiedBatchSampler, "labels": labels})
        for batch in sampler:
            DeepLDALoss()(torch.randn(len(batch), 128), torch.from_numpy(labels[batch]))


class TestPublicLosses:
    def test_the_default_is_wilks_without_regularisation(self):
        h, y = gaussian_batch()
        true = oracle(h, y, statistic="wilks", alpha=1.0, lam=1e-3).value
        assert DeepLDALoss()(*tensors(h, y)).item() == pytest.approx(true, rel=1e-11)

    @pytest.mark.parametrize(("loss", "alpha"), [(RDLDALoss, 0.6), (DLDALoss, 1.0)])
    def test_the_papers_losses_have_the_papers_defaults(self, loss, alpha):
        h, y = gaussian_batch()
        true = oracle(h, y, statistic="smallest", alpha=alpha, lam=1e-3, epsilon=1.0).value
        assert loss()(*tensors(h, y)).item() == pytest.approx(true, rel=1e-11)
        assert isinstance(loss(), DeepLDALoss)

    @pytest.mark.parametrize("loss", [DeepLDALoss, RDLDALoss, DLDALoss])
    def test_they_accept_the_same_options(self, loss):
        h, y = gaussian_batch(100, 6, 6)
        options = {"statistic": "smallest", "lam": 0.1, "epsilon": 0.3, "scatter": "sum", "class_weight": "balanced"}
        criterion = loss(**options, process_group=None)
        true = oracle(h, y, alpha=criterion.alpha, **options).value
        assert criterion(*tensors(h, y)).item() == pytest.approx(true, rel=1e-11)

    def test_options_are_keyword_only(self):
        for call in (lambda: RDLDALoss(0.5), lambda: DLDALoss("wilks"), lambda: DeepLDALoss("wilks", 0.5)):
            with pytest.raises(TypeError, match="positional"):
                call()
        with pytest.raises(TypeError, match="alpha"):
            DLDALoss(alpha=0.5)

    @every_combination
    @every_alpha
    def test_the_function_is_the_module(self, statistic, scatter, class_weight, alpha):
        options = {"alpha": alpha, "scatter": scatter, "class_weight": class_weight, "epsilon": 0.5, "lam": 0.01}
        h, y = gaussian_batch()
        value, gradient = loss_and_gradient(*tensors(h, y), statistic=statistic, **options)
        features, labels = tensors(h, y)
        loss = deep_lda_loss(features, labels, statistic, **options)
        loss.backward()
        assert loss.item() == value
        assert torch.equal(features.grad, gradient)

    def test_the_function_checks_its_options_and_warns(self):
        features, labels = tensors(*gaussian_batch(20, 30, 3))
        with pytest.raises(ValueError, match="alpha is 2"):
            deep_lda_loss(features, labels, alpha=2)
        with pytest.warns(SmallBatchWarning) as caught:
            deep_lda_loss(features, labels)
        assert caught[0].filename == __file__

    def test_the_former_import_path(self):
        import deeplda.objective

        assert deeplda.objective.RDLDALoss is RDLDALoss
        assert all(hasattr(deeplda.objective, name) for name in deeplda.objective.__all__)


def test_results_are_ordinary_tensors():
    """The loss computes in inference mode, whose tensors can be neither changed nor used in autograd afterwards."""
    features, labels = tensors(*gaussian_batch())
    criterion = DeepLDALoss()
    with torch.no_grad():
        total = criterion(features, labels)
        total += 1
    weight = torch.ones(3, dtype=torch.float64, requires_grad=True)
    (criterion.diagnostics.eigenvalues * weight).sum().backward()
    assert torch.equal(weight.grad, criterion.diagnostics.eigenvalues)
    (gradient,) = torch.autograd.grad(criterion(features, labels), features)
    gradient += 1


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20])
def test_float32_gradients_of_features_of_any_size(scale):
    h, y = gaussian_batch()
    narrow = torch.tensor(h * scale, dtype=torch.float32, requires_grad=True)
    wide = narrow.detach().double().requires_grad_()
    for features in (narrow, wide):
        DeepLDALoss()(features, torch.tensor(y)).backward()
    torch.testing.assert_close(narrow.grad.double(), wide.grad, rtol=1e-5, atol=0)


def test_repr_copy_and_pickle():
    criterion = DeepLDALoss(alpha=0.2, statistic="wilks")
    assert "alpha=0.2" in repr(criterion)
    assert "statistic='wilks'" in repr(criterion)
    features, labels = tensors(*gaussian_batch())
    value = criterion(features, labels)
    for twin in (copy.deepcopy(criterion), pickle.loads(pickle.dumps(criterion))):
        assert torch.equal(twin(features, labels), value)
    assert not list(criterion.state_dict())
