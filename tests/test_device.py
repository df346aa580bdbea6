"""Devices and their precision, and the caller's random numbers."""

import pytest
import torch

from deeplda.device import autocast_for, pick_device, preserved_generators
from deeplda.errors import InputError


def test_devices_of_this_machine():
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["abacus", "meta", "", "cpu:x"])
def test_other_devices_are_rejected_in_one_sentence(name):
    with pytest.raises(InputError, match="float64: use cpu") as caught:
        pick_device(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("precision", "expected"), [("bfloat16", torch.bfloat16), (None, torch.float32)])
def test_precision_on_the_cpu(precision, expected):
    with autocast_for(precision, torch.device("cpu")):
        assert torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3)).dtype == expected


def test_generators_are_as_before():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    with preserved_generators():
        torch.manual_seed(4)
        torch.rand(7)
    assert torch.equal(torch.get_rng_state(), before)


def test_devices_that_are_not_in_use_are_left_alone(monkeypatch):
    """torch alone would ask all four for their state, and warn that it does."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with preserved_generators():
        torch.rand(1)
