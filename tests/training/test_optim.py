"""Muon: SGD where it says so, orthogonal steps for filters; rates of their own for the output layer and biases."""

import copy

import pytest
import torch
from torch import nn

from deeplda.networks import build_network
from deeplda.training.config import FitConfig, RunConfig
from deeplda.training.optim import Muon, build_optimizer, epochs_to_half_rate, learning_rate, orthogonalised


def test_all_but_filters_take_the_steps_of_sgd():
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3)).double()
    torchs = copy.deepcopy(ours)
    muon = Muon(ours, lr=0.1, filter_lr=1.0, momentum=0.8, weight_decay=0.01)
    sgd = torch.optim.SGD(torchs.parameters(), lr=0.1, momentum=0.8, weight_decay=0.01, nesterov=True)
    for _ in range(5):
        inputs = torch.randn(20, 5, dtype=torch.double)
        for network, optimizer in ((ours, muon), (torchs, sgd)):
            optimizer.zero_grad()
            network(inputs).square().mean().backward()
            optimizer.step()
    for found, expected in zip(ours.parameters(), torchs.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_steps_do_not_depend_on_memory_formats(layout):
    torch.manual_seed(0)
    ours = nn.Conv2d(3, 4, 3)
    plain = copy.deepcopy(ours)
    ours.to(memory_format=torch.channels_last)
    optimizer = build_optimizer(FitConfig(learning_rate=0.1, momentum=0.8, weight_decay=0.01), ours)
    sgd = torch.optim.SGD(plain.parameters(), 0.1, 0.8, weight_decay=0.01, nesterov=True)
    for _ in range(3):
        gradient = torch.randn(4, 3, 3, 3)
        for network, taken in ((ours, optimizer), (plain, sgd)):
            network.weight.grad = gradient.to(memory_format=layout)
            taken.step()
    torch.testing.assert_close(ours.weight, plain.weight, rtol=1e-6, atol=1e-6)


def test_updating_all_parameters_at_once_takes_the_steps_of_sgd():
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3)).double()
    plain = copy.deepcopy(ours)
    config = FitConfig(learning_rate=0.1, momentum=0.8, weight_decay=0.01)
    sgd = torch.optim.SGD(plain.parameters(), 0.1, 0.8, weight_decay=0.01, nesterov=True, fused=False, foreach=False)
    fused = build_optimizer(config, ours)
    assert fused.param_groups[0]["fused"]
    for _ in range(5):
        inputs = torch.randn(20, 5, dtype=torch.double)
        for network, optimizer in ((ours, fused), (plain, sgd)):
            optimizer.zero_grad()
            network(inputs).square().mean().backward()
            optimizer.step()
    for found, expected in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(8, 30), (30, 8), (12, 12)])
def test_singular_values_come_near_1_and_singular_vectors_stay(shape):
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.double)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    # What the polynomial does to each singular value of the matrix over its Frobenius norm.
    wanted = values / values.norm()
    for _ in range(3):
        wanted = 3.4445 * wanted - 4.7750 * wanted**3 + 2.0315 * wanted**5
    torch.testing.assert_close(orthogonalised(matrix), left * wanted @ right, rtol=1e-6, atol=1e-6)
    large = wanted[values > 0.3 * values[0]]
    assert 0.5 < large.min() <= large.max() < 1.3


def test_filters_are_kept_at_norm_1_and_step_against_the_gradient():
    torch.manual_seed(0)
    network = nn.Conv2d(4, 6, 3, bias=False)
    filters = network.weight
    optimizer = Muon(network, lr=9.0, filter_lr=1e-3, momentum=0.9, weight_decay=0.0)
    before = filters.detach().clone()
    filters.grad = torch.randn_like(filters)
    optimizer.step()
    normed = before * 6**0.5 / before.norm()
    step = filters.detach() - normed
    expected = -1e-3 * orthogonalised((1.6 * filters.grad).flatten(1)).view_as(filters)
    torch.testing.assert_close(step, expected, rtol=1e-3, atol=1e-6)
    assert (step * filters.grad).sum() < 0


def test_its_state_can_be_saved_and_restored():
    def trained(steps, *, pause):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(16, 2))
        optimizer = Muon(network, 0.1, 0.05, 0.9, 0.01)
        for step in range(steps):
            if step == pause:
                state = copy.deepcopy(optimizer.state_dict())
                optimizer = Muon(network, 0.1, 0.05, 0.9, 0.01)
                optimizer.load_state_dict(state)
            optimizer.zero_grad()
            network(torch.randn(8, 1, 4, 4)).square().mean().backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in network.parameters()])

    assert torch.equal(trained(6, pause=3), trained(6, pause=None))


def test_what_is_not_trained_is_left_alone():
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 1))
    network[0].weight.requires_grad_(False)
    before = network[0].weight.clone()
    optimizer = Muon(network, 0.1, 0.05, 0.9, 0.01)
    network(torch.randn(2, 1, 5, 5)).sum().backward()
    optimizer.step()
    assert torch.equal(network[0].weight, before)


class _Scaled(nn.Module):
    """A convolution that starts at zero, and a scale for each channel that is stored like filters."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(2, 3, 3, bias=False)
        self.scale = nn.Parameter(torch.ones(1, 3, 1, 1))
        nn.init.zeros_(self.convolution.weight)

    def forward(self, images):
        return (self.convolution(images) + 1) * self.scale


def test_filters_may_be_zero_and_are_those_of_convolutions_alone():
    torch.manual_seed(0)
    network = _Scaled()
    optimizer = Muon(network, lr=0.1, filter_lr=0.05, momentum=0.9, weight_decay=0.0)
    network(torch.randn(5, 2, 4, 4)).square().mean().backward()
    expected = 1 - 0.1 * 1.9 * network.scale.grad
    optimizer.step()
    torch.testing.assert_close(network.scale.detach(), expected)
    assert network.convolution.weight.isfinite().all()
    assert (network.convolution.weight != 0).any()


def network_and_output():
    """A network with a bias in each place, and the parameters of its output layer."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3)).double()
    return network, list(network[3].parameters())


@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
def test_without_rates_of_their_own_the_groups_are_those_of_earlier_versions(optimizer):
    """Checkpoints number the parameters in this order."""
    network = build_network("fastnet", (3, 24, 24), 5, width=0.125)
    groups = build_optimizer(FitConfig(optimizer=optimizer), network, network.output.parameters()).param_groups
    everything = list(network.parameters())
    if optimizer == "sgd":
        expected = [everything]
    else:
        trained = [parameter for parameter in everything if parameter.requires_grad]
        expected = [[p for p in trained if p.ndim == 4], [p for p in trained if p.ndim != 4]]
    assert [list(map(id, group["params"])) for group in groups] == [list(map(id, group)) for group in expected]


@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
@pytest.mark.parametrize("rates", [{"head": 0.2}, {"bias": 0.4}, {"head": 0.2, "bias": 0.4}])
def test_the_output_layer_and_biases_step_at_their_own_rates(optimizer, rates):
    """Each parameter moves as in a training in which all have its rate, and shrinks by rate x decay = 0.1 x 0.01."""
    settings = {"optimizer": optimizer, "learning_rate": 0.1, "filter_learning_rate": 0.05, "weight_decay": 0.01}
    own = {f"{name}_learning_rate": rate for name, rate in rates.items()}

    def gradient_is_constant(config):
        """With the same gradients in both trainings, the steps of a parameter do not depend on the others."""
        network, output = network_and_output()
        built = build_optimizer(config, network, output)
        torch.manual_seed(2)
        gradients = [torch.randn_like(parameter) for parameter in network.parameters()]
        for _ in range(3):
            for parameter, gradient in zip(network.parameters(), gradients, strict=True):
                parameter.grad = gradient.clone()
            built.step()
        return dict(network.named_parameters())

    found = gradient_is_constant(FitConfig(**settings, **own))
    for name, parameter in found.items():
        kind = "head" if name.startswith("3.") else "bias" if name.endswith("bias") else None
        rate = rates.get(kind, 0.1)
        alone = FitConfig(**settings | {"learning_rate": rate, "weight_decay": 0.001 / rate})
        torch.testing.assert_close(parameter, gradient_is_constant(alone)[name], rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize("schedule", ["one-cycle", "linear"])
@pytest.mark.parametrize("epochs", [8, 30, 100])
def test_patience_waits_until_the_rate_has_fallen_to_half_its_peak(schedule, epochs):
    config = FitConfig(schedule=schedule, epochs=epochs, learning_rate=1.0)
    starts = [learning_rate(config, epoch * 1000, 1000) for epoch in range(epochs)]
    waited = epochs_to_half_rate(config)
    assert max(starts[waited:]) <= 0.501
    assert starts[waited - 1] > 0.5


@pytest.mark.parametrize("schedule", ["one-cycle", "linear", "halving"])
def test_each_stretch_of_an_extended_run_has_the_rates_of_a_run_of_its_length(schedule):
    settings = {"schedule": schedule, "learning_rate": 1.0, "halve_every": 7}
    extended = RunConfig(**settings, epochs=20, extended_to=(30, 100))
    for epochs, steps in ((20, range(20 * 9)), (30, range(20 * 9, 30 * 9)), (100, range(30 * 9, 100 * 9))):
        alone = RunConfig(**settings, epochs=epochs)
        assert [learning_rate(extended, step, 9) for step in steps] == [learning_rate(alone, step, 9) for step in steps]


def test_patience_counts_epochs_of_the_last_stretch():
    for schedule, expected in (("one-cycle", 63), ("linear", 50), ("halving", 30)):
        assert epochs_to_half_rate(RunConfig(schedule=schedule, epochs=20, extended_to=(30, 100))) == expected
    assert epochs_to_half_rate(RunConfig(schedule="linear", epochs=20, extended_to=(22,))) == 20


def test_patience_does_not_wait_for_a_schedule_without_an_end():
    assert epochs_to_half_rate(FitConfig(schedule="halving")) == 0
