"""The caller's random numbers, and devices that nobody uses."""

import torch

from deeplda.device import kept_generators


def test_generators_are_as_before():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    with kept_generators():
        torch.manual_seed(4)
        torch.rand(7)
    assert torch.equal(torch.get_rng_state(), before)


def test_devices_that_are_not_in_use_are_left_alone(monkeypatch):
    """torch alone would ask all four for their state, and warn that it does."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with kept_generators():
        torch.rand(1)
