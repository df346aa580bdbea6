"""large_batch_backward: the gradient of one large batch, chunk by chunk."""

import copy

import numpy as np
import pytest
import torch
from batches import STATISTICS, gaussian_batch, relative_error
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_jobs import network
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from deeplda import DeepLDALoss
from deeplda.core.large_batch import large_batch_backward

H, Y = gaussian_batch(50, 6, 4)
INPUTS, LABELS = torch.from_numpy(H), torch.from_numpy(Y)


def gradients(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()]).numpy()


def plain_step(model, criterion, inputs=INPUTS, labels=LABELS):
    loss = criterion(model(inputs), labels)
    loss.backward()
    return loss.detach()


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("chunk_size", [1, 7, np.int64(25), 49, 50, 1000])
def test_the_gradient_of_the_whole_batch(statistic, chunk_size):
    model, criterion = network(), DeepLDALoss(statistic=statistic)
    twin = copy.deepcopy(model)
    loss = large_batch_backward(model, criterion, INPUTS, LABELS, chunk_size=chunk_size)
    true = plain_step(twin, criterion)
    assert loss.ndim == 0
    assert not loss.requires_grad
    assert loss.item() == pytest.approx(true.item(), rel=1e-12)
    assert relative_error(gradients(model), gradients(twin)) < 1e-12


@pytest.mark.filterwarnings("ignore::deeplda.batch_rule.SmallBatchWarning")
@settings(max_examples=40, deadline=None)
@given(n=st.integers(8, 60), chunk_size=st.integers(1, 70), seed=st.integers(0, 99))
def test_any_batch_in_any_chunks(n, chunk_size, seed):
    h, y = gaussian_batch(n, 6, 3, seed=seed)
    inputs, labels = torch.from_numpy(h), torch.from_numpy(y)
    model, twin = network(seed), network(seed)
    large_batch_backward(model, DeepLDALoss(statistic="wilks"), inputs, labels, chunk_size=chunk_size)
    plain_step(twin, DeepLDALoss(statistic="wilks"), inputs, labels)
    assert relative_error(gradients(model), gradients(twin)) < 1e-12


def test_adding_up_gradients_of_small_batches_is_not_the_same():
    model, twin, criterion = network(), network(), DeepLDALoss(alpha=0.6, statistic="smallest")
    plain_step(twin, criterion)
    for part in torch.arange(50).split(25):
        (criterion(model(INPUTS[part]), LABELS[part]) / 2).backward()
    assert relative_error(gradients(model), gradients(twin)) > 0.1


def test_gradients_are_added_to_those_there():
    model, twin = network(), network()
    for _ in range(2):
        large_batch_backward(model, DeepLDALoss(), INPUTS, LABELS, chunk_size=20)
        plain_step(twin, DeepLDALoss())
    assert relative_error(gradients(model), gradients(twin)) < 1e-12


def test_other_losses_and_their_own_parameters():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))

        def forward(self, features, labels):
            return nn.functional.cross_entropy(self.factor * features, labels)

    model, twin = network(), network()
    criterion, true = Scaled(), Scaled()
    loss = large_batch_backward(model, criterion, INPUTS, LABELS, chunk_size=8)
    assert loss.item() == pytest.approx(plain_step(twin, true).item(), rel=1e-12)
    assert relative_error(gradients(model), gradients(twin)) < 1e-12
    assert criterion.factor.grad.item() == pytest.approx(true.factor.grad.item(), rel=1e-12)


def test_a_frozen_network_with_a_criterion_that_learns():
    model, criterion = network().requires_grad_(False), nn.Linear(4, 4).double()
    loss = large_batch_backward(model, lambda h, y: DeepLDALoss()(criterion(h), y), INPUTS, LABELS, chunk_size=8)
    found = gradients(criterion)
    criterion.zero_grad()
    assert loss.item() == pytest.approx(plain_step(nn.Sequential(model, criterion), DeepLDALoss()).item(), rel=1e-12)
    assert relative_error(found, gradients(criterion)) < 1e-12


def test_buffers_that_come_and_change_shape_on_the_way():
    class Caching(nn.Linear):
        def __init__(self):
            super().__init__(6, 4, dtype=torch.float64)
            self.register_buffer("last", torch.zeros(1, dtype=torch.float64))

        def forward(self, inputs):
            self.register_buffer("cache", inputs.mean(0))
            self.last = inputs.detach()
            return super().forward(inputs)

    torch.manual_seed(0)
    model = Caching()
    twin = copy.deepcopy(model)
    large_batch_backward(model, DeepLDALoss(), INPUTS, LABELS, chunk_size=20)
    plain_step(twin, DeepLDALoss())
    assert relative_error(gradients(model), gradients(twin)) < 1e-12


def test_gradient_at_the_inputs():
    inputs, twin = INPUTS.clone().requires_grad_(), INPUTS.clone().requires_grad_()
    large_batch_backward(network(), DeepLDALoss(), inputs, LABELS, chunk_size=20)
    plain_step(network(), DeepLDALoss(), twin)
    assert relative_error(inputs.grad, twin.grad.numpy()) < 1e-12


class TestRandomNumbers:
    def test_dropout_masks_are_those_of_the_features(self):
        """The gradient is that of one graph over all chunks."""
        model, twin = network(dropout=0.5), network(dropout=0.5)
        torch.manual_seed(3)
        loss = large_batch_backward(model, DeepLDALoss(), INPUTS, LABELS, chunk_size=16)
        after = torch.get_rng_state()
        torch.manual_seed(3)
        true = DeepLDALoss()(torch.cat([twin(part) for part in INPUTS.tensor_split([12, 25, 37])]), LABELS)
        true.backward()
        assert loss.item() == true.item()
        assert relative_error(gradients(model), gradients(twin)) < 1e-12
        assert torch.equal(after, torch.get_rng_state())

    def test_masks_differ_between_chunks_and_calls(self):
        seen = []

        class Seeing(nn.Dropout):
            def forward(self, inputs):
                seen.append(super().forward(torch.ones_like(inputs)))
                return inputs * seen[-1]

        model = nn.Sequential(nn.Linear(6, 32), Seeing(0.5), nn.Linear(32, 4)).double()
        for _ in range(2):
            large_batch_backward(model, DeepLDALoss(), INPUTS, LABELS, chunk_size=25)
        first, second, first_again, second_again, later, *_ = seen
        assert torch.equal(first, first_again)
        assert torch.equal(second, second_again)
        assert not torch.equal(first, second)
        assert not torch.equal(first, later)

    def test_the_generator_is_given_back_after_an_error(self):
        class FailsWithGraph(nn.Linear):
            def forward(self, inputs):
                if torch.is_grad_enabled():
                    raise RuntimeError("no")
                torch.rand(1)
                return super().forward(inputs)

        model = FailsWithGraph(6, 4).double()
        torch.manual_seed(0)
        for _ in range(5):
            torch.rand(1)
        after = torch.get_rng_state()
        torch.manual_seed(0)
        with pytest.raises(RuntimeError, match="no"):
            large_batch_backward(model, DeepLDALoss(), INPUTS, LABELS, chunk_size=10)
        assert torch.equal(after, torch.get_rng_state())


class TestBatchNormalisation:
    def test_statistics_are_of_the_chunk(self):
        model, twin = network(normalised=True), network(normalised=True)
        loss = large_batch_backward(model, DeepLDALoss(), INPUTS, LABELS, chunk_size=25)
        ghost = DeepLDALoss()(torch.cat([twin(INPUTS[:25]), twin(INPUTS[25:])]), LABELS)
        ghost.backward()
        assert loss.item() == ghost.item()
        assert relative_error(gradients(model), gradients(twin)) < 1e-11
        assert loss.item() != pytest.approx(DeepLDALoss()(network(normalised=True)(INPUTS), LABELS).item(), rel=1e-3)

    @pytest.mark.parametrize("momentum", [0.1, None])
    def test_running_statistics_are_updated_by_one_run(self, momentum):
        model = network(normalised=True)
        model[1].momentum = momentum
        twin = copy.deepcopy(model)
        large_batch_backward(model, DeepLDALoss(), INPUTS, LABELS, chunk_size=25)
        twin(INPUTS[:25]), twin(INPUTS[25:])
        assert model[1].num_batches_tracked == 2
        for name, buffer in twin.named_buffers():
            assert torch.equal(model.get_buffer(name), buffer)

    def test_in_eval_mode_it_is_the_whole_batch(self):
        model = network(normalised=True)
        model(INPUTS)
        model.eval()
        twin, before = copy.deepcopy(model), copy.deepcopy(model)
        large_batch_backward(model, DeepLDALoss(), INPUTS, LABELS, chunk_size=25)
        plain_step(twin, DeepLDALoss())
        assert relative_error(gradients(model), gradients(twin)) < 1e-12
        assert all(torch.equal(a, b) for a, b in zip(model.buffers(), before.buffers(), strict=True))

    def test_no_chunk_is_much_smaller_than_the_others(self):
        """51 samples in chunks of at most 25 give 17 each: batch normalisation fails on a chunk of one sample."""
        inputs, labels = torch.cat([INPUTS, INPUTS[:1]]), torch.cat([LABELS, LABELS[:1]])
        large_batch_backward(network(normalised=True), DeepLDALoss(), inputs, labels, chunk_size=25)

    def test_buffers_that_the_network_reads_are_the_same_in_both_runs(self):
        model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 4))).double()
        twin = copy.deepcopy(model)
        large_batch_backward(model, DeepLDALoss(), INPUTS, LABELS, chunk_size=25)
        true = DeepLDALoss()(torch.cat([twin(INPUTS[:25]), twin(INPUTS[25:])]), LABELS)
        true.backward()
        assert relative_error(gradients(model), gradients(twin)) < 1e-11
        assert all(torch.equal(a, b) for a, b in zip(model.buffers(), twin.buffers(), strict=True))


def test_under_autocast():
    """The network runs in bfloat16, as without chunks; weights rounded in the first pass keep their gradient."""
    model, twin = network().float(), network().float()
    inputs = INPUTS.float()
    with torch.autocast("cpu", torch.bfloat16):
        loss = large_batch_backward(model, DeepLDALoss(), inputs, LABELS, chunk_size=20)
        true = DeepLDALoss()(twin(inputs), LABELS)
    true.backward()
    assert twin(inputs[:2]).dtype == torch.float32
    assert loss.item() == pytest.approx(true.item(), rel=1e-2)
    assert relative_error(gradients(model), gradients(twin)) < 0.05
    exact = network().float()
    plain_step(exact, DeepLDALoss(), inputs)
    assert relative_error(gradients(twin), gradients(exact)) > 1e-4


def test_the_graph_is_of_one_chunk():
    class Largest(TorchDispatchMode):
        rows = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # the signature is torch's
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.shape[1:] == (16,):
                self.rows = max(self.rows, len(result))
            return result

    with Largest() as largest:
        large_batch_backward(network(), DeepLDALoss(), INPUTS.repeat(20, 1), LABELS.repeat(20), chunk_size=40)
    assert largest.rows == 40


class TestMistakes:
    def call(self, model=None, criterion=None, inputs=INPUTS, chunk_size=20):
        return large_batch_backward(
            model or network(), criterion or DeepLDALoss(), inputs, LABELS, chunk_size=chunk_size
        )

    @pytest.mark.parametrize("chunk_size", [0, -3, 2.5, None])
    def test_chunk_size(self, chunk_size):
        with pytest.raises(ValueError, match=f"chunk_size is {chunk_size}, need an integer >= 1"):
            self.call(chunk_size=chunk_size)

    def test_a_function_is_no_network(self):
        with pytest.raises(TypeError, match=r"type function, need an nn\.Module"):
            self.call(lambda x: x)

    def test_inputs(self):
        with pytest.raises(TypeError, match="inputs is of type ndarray"):
            self.call(inputs=H)
        with pytest.raises(ValueError, match=r"inputs has shape \(\)"):
            self.call(inputs=torch.tensor(1.0))

    @pytest.mark.parametrize("chunk_size", [20, 100])
    def test_network(self, chunk_size):
        with pytest.raises(TypeError, match="of type tuple, need a tensor"):
            self.call(Twice(), chunk_size=chunk_size)

    @pytest.mark.parametrize("chunk_size", [20, 100])
    def test_criterion(self, chunk_size):
        with pytest.raises(ValueError, match=r"criterion returned a tensor of shape \(50,\)"):
            self.call(criterion=nn.CrossEntropyLoss(reduction="none"), chunk_size=chunk_size)
        with pytest.raises(ValueError, match="criterion returned an object of type float"):
            self.call(criterion=lambda h, y: DeepLDALoss()(h, y).item(), chunk_size=chunk_size)
        with pytest.raises(ValueError, match="the loss does not require a gradient"):
            self.call(criterion=lambda h, y: DeepLDALoss()(h, y).detach(), chunk_size=chunk_size)
        with pytest.raises(ValueError, match=r"outside torch\.no_grad"), torch.no_grad():
            self.call(chunk_size=chunk_size)

    def test_rows(self):
        with pytest.raises(ValueError, match=r"returned shape \(4,\) for 16 samples"):
            self.call(nn.Sequential(network(), Mean()))

    def test_a_bad_batch_leaves_everything_usable(self):
        model, inputs = network(), INPUTS.clone()
        inputs[7, 1] = float("nan")
        with pytest.raises(ValueError, match="4 NaN"):
            self.call(model, inputs=inputs)
        assert all(p.grad is None for p in model.parameters())
        assert np.isfinite(self.call(model).item())

    def test_an_empty_batch_is_the_criterions_to_judge(self):
        with pytest.raises(ValueError, match=r"features has shape \(0, 4\)"):
            large_batch_backward(network(), DeepLDALoss(), INPUTS[:0], LABELS[:0], chunk_size=20)


class Mean(nn.Module):
    def forward(self, features):
        return features.mean(0)


class Twice(nn.Module):
    def forward(self, inputs):
        return inputs, inputs
