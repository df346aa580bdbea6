"""Muon: SGD where it says so, orthogonal steps for filters."""

import copy

import pytest
import torch
from torch import nn

from deeplda.training.optim import Muon, orthogonalised


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
