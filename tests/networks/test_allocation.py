"""A network is refused before it fills the memory."""

import pytest
import torch
from torch import nn

from deeplda.errors import InputError
from deeplda.networks import NETWORKS, build_network
from deeplda.networks.allocation import AllocationLimit


def shape_for(name):
    return (16,) if name == "mlp" else (3, 24, 24)


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_the_limit_is_what_the_weights_take(name):
    network = build_network(name, shape_for(name), 4, width=0.25)
    size = sum(tensor.nbytes for tensor in network.state_dict().values())
    with AllocationLimit(2 * size, "too large"):
        build_network(name, shape_for(name), 4, width=0.25)
    with pytest.raises(InputError, match="too large"), AllocationLimit(size // 2, "too large"):
        build_network(name, shape_for(name), 4, width=0.25)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("name", sorted(NETWORKS))
@pytest.mark.parametrize(("outputs", "width"), [(10**9, 1), (10**30, 1), (4, 1e9), (4, 1e300), (4, 1e308)])
def test_sizes_that_no_memory_holds(name, outputs, width):
    with pytest.raises(InputError, match=r"too large|a finite number"), AllocationLimit(2**24, "too large"):
        build_network(name, shape_for(name), outputs, width=width)


def test_it_ends_with_its_block_and_leaves_the_weights_as_they_are():
    torch.manual_seed(0)
    with AllocationLimit(2**20, "too large"):
        limited = nn.Linear(3, 4)
    torch.manual_seed(0)
    assert torch.equal(nn.Linear(3, 4).weight, limited.weight)
    assert torch.zeros(size=(2**19,)).numel() == 2**19
