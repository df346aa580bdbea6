"""The size of a network is known, and rejected if necessary, before memory is allocated for it."""

import pytest
import torch
from torch import nn

from deeplda.errors import InputError
from deeplda.networks import NETWORKS, build_autoencoder, build_network, check_network
from deeplda.networks.fastnet import _convolution
from deeplda.networks.inspection import first_mismatch, outline
from deeplda.networks.registry import outline_network

# The networks that can be trained.
LAYERED = tuple(name for name in NETWORKS if name != "identity")
AUTOENCODERS = {"rows": (12,), "small images": (1, 8, 8), "images": (3, 25, 24)}


def shape_for(name):
    return (16,) if name == "mlp" else (3, 24, 24)


@pytest.mark.parametrize("name", LAYERED)
def test_an_outline_has_the_shapes_of_the_network_and_no_memory(name):
    before = torch.get_rng_state()
    outlined = outline_network(name, shape_for(name), 4, width=0.25)
    assert all(tensor.is_meta for tensor in outlined.state_dict().values())
    assert torch.equal(torch.get_rng_state(), before)
    built = build_network(name, shape_for(name), 4, width=0.25)
    assert first_mismatch(outlined.state_dict(), built.state_dict()) is None


@pytest.mark.parametrize("shape", AUTOENCODERS.values(), ids=AUTOENCODERS)
def test_an_outline_of_an_autoencoder(shape):
    outlined = outline(lambda: build_autoencoder(shape, width=0.25))
    built = build_autoencoder(shape, width=0.25)
    assert first_mismatch(outlined.state_dict(), built.state_dict()) is None


@pytest.mark.parametrize("name", LAYERED)
def test_the_limit_is_the_size_of_parameters_and_buffers(name, monkeypatch):
    network = build_network(name, shape_for(name), 4, width=0.25)
    size = sum(tensor.nbytes for tensor in network.state_dict().values())
    monkeypatch.setattr("deeplda.memory.available_memory", lambda: size)
    build_network(name, shape_for(name), 4, width=0.25)
    monkeypatch.setattr("deeplda.memory.available_memory", lambda: size - 1)
    for build in (build_network, check_network):
        with pytest.raises(InputError, match="does not fit in memory"):
            build(name, shape_for(name), 4, width=0.25)
    monkeypatch.setattr("deeplda.memory.available_memory", lambda: None)
    check_network(name, shape_for(name), 4, width=0.25)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("name", LAYERED)
@pytest.mark.parametrize(
    ("outputs", "width"), [(10**9, 1), (10**30, 1), (4, 1e4), (4, 1e7), (4, 1e9), (4, 1e300), (4, 1e308)]
)
def test_sizes_that_no_memory_holds(name, outputs, width):
    for build in (check_network, build_network):
        with pytest.raises(InputError, match=r"does not fit in memory|a finite number"):
            build(name, shape_for(name), outputs, width=width)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("channels", [10**6, 10**9, 10**30])
@pytest.mark.parametrize("name", ["dorfernet", "fastnet", "convnet-small"])
def test_channels_that_no_memory_holds(name, channels, monkeypatch):
    monkeypatch.setattr("deeplda.memory.available_memory", lambda: 2**28)
    with pytest.raises(InputError, match="does not fit in memory"):
        build_network(name, (channels, 32, 32), 4)


def test_other_errors_are_passed_on():
    def broken():
        raise TypeError("a mistake in the code")

    with pytest.raises(TypeError, match="a mistake"):
        outline(broken)


def test_the_first_mismatch_is_described():
    expected = nn.Linear(2, 3).state_dict()
    assert first_mismatch(expected, expected) is None
    assert first_mismatch(expected, {**expected, "weight": torch.zeros(3, 2).half()}) is None
    assert "'bias' is missing" in first_mismatch(expected, {"weight": expected["weight"]})
    assert "'scale' is unexpected" in first_mismatch(expected, {**expected, "scale": torch.ones(1)})
    assert "shape (2, 2) instead of (3, 2)" in first_mismatch(expected, {**expected, "weight": torch.ones(2, 2)})
    assert "torch.int64 instead of" in first_mismatch(expected, {**expected, "bias": torch.ones(3).long()})
    assert "torch.int32 instead of" in first_mismatch({"n": torch.ones(1).long()}, {"n": torch.ones(1).int()})


def test_the_identity_start_of_fastnet_is_that_of_torch():
    for inputs, outputs in ((5, 8), (8, 5), (4, 4)):
        torch.manual_seed(0)
        expected = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        nn.init.dirac_(expected.weight[:inputs])
        torch.manual_seed(0)
        assert torch.equal(_convolution(inputs, outputs).weight, expected.weight)
