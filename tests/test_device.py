"""Devices and their precision, and the caller's random numbers."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import torch

from deeplda.device import autocast_for, pick_device, seeded
from deeplda.errors import InputError

CPU = torch.device("cpu")


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


def test_draws_are_those_of_the_seed_and_the_caller_does_not_notice():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with suppress(KeyError), seeded(3, CPU):
        assert torch.equal(torch.rand(4), expected)
        with seeded(4, CPU):
            torch.rand(7)
        raise KeyError
    assert torch.equal(torch.get_rng_state(), before)


def test_one_thread_at_a_time_is_in_a_seeded_block():
    """Each thread draws in many pieces, so that without the lock another one would seed in between."""

    def draw(seed):
        with seeded(seed, CPU):
            return torch.cat([torch.rand(3) for _ in range(200)])

    before = torch.get_rng_state()
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(draw, range(24)))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(found, draw(seed)) for seed, found in enumerate(together))


def test_devices_that_are_not_in_use_are_left_alone(monkeypatch):
    """torch's own functions would ask all four for their state, or prepare to seed them later."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", None)
    with seeded(0, CPU):
        torch.rand(1)
