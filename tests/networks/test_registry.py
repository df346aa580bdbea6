"""Networks by name."""

import pytest
import torch
from torch import nn

from deeplda.errors import InputError
from deeplda.networks import MLP, NETWORKS, ConvNetSmall, DorferNet, FastNet, build_network, default_network

SAMPLES = {"dorfernet": (3, 32, 32), "fastnet": (3, 32, 32), "convnet-small": (1, 8, 8), "mlp": (20,)}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_embeds_its_samples(name: str) -> None:
    network = build_network(name, SAMPLES[name], 9, width=0.125)
    assert network(torch.randn(2, *SAMPLES[name])).shape == (2, 9)


@pytest.mark.parametrize(
    ("name", "kind"), [("dorfernet", DorferNet), ("fastnet", FastNet), ("convnet-small", ConvNetSmall), ("mlp", MLP)]
)
def test_names(name: str, kind: type[nn.Module]) -> None:
    assert isinstance(build_network(name, SAMPLES[name], 2, width=0.125), kind)


@pytest.mark.parametrize("name", NETWORKS)
def test_same_seed_same_network_and_another_seed_another(name: str) -> None:
    def build(seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        return build_network(name, SAMPLES[name], 4, width=0.125).state_dict()

    torch.testing.assert_close(build(0), build(0), rtol=0, atol=0)
    one, other = build(0), build(1)
    drawn = [key for key in one if one[key].dim() > 1 and one[key].any() and not _is_identity(one[key])]
    assert len(drawn) > 2
    assert all(not torch.equal(one[key], other[key]) for key in drawn)


def _is_identity(weight: torch.Tensor) -> bool:
    """As FastNet's convolutions with as many outputs as inputs start."""
    return weight.dim() == 4 and torch.equal(weight, torch.nn.init.dirac_(torch.empty_like(weight)))


@pytest.mark.parametrize("name", NETWORKS)
def test_state_goes_into_a_fresh_network(name: str) -> None:
    trained, fresh = (build_network(name, SAMPLES[name], 4, width=0.125) for _ in range(2))
    trained(torch.randn(4, *SAMPLES[name]))  # moves the running statistics
    fresh.load_state_dict(trained.state_dict())
    batch = torch.randn(2, *SAMPLES[name])
    torch.testing.assert_close(fresh.eval()(batch), trained.eval()(batch), rtol=0, atol=0)


def test_sample_shape_may_be_a_list_as_json_gives_it() -> None:
    assert isinstance(build_network("mlp", [20], 2), MLP)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dorferent", r"network 'dorferent' is not known, .* did you mean 'dorfernet'\?"),
        ("MLP", r"did you mean 'mlp'\?"),
        ("convnet", r"did you mean 'convnet-small'\?"),
        ("resnet152", r"one of dorfernet, fastnet, convnet-small, mlp, or module\.path:callable"),
        ("", r"network '' is not known"),
    ],
)
def test_unknown_names_are_refused(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_network(name, (3, 32, 32), 10)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("width", [0.0, -1.0, 0.005, float("nan"), float("inf")])
def test_a_width_without_a_channel_is_refused(name: str, width: float) -> None:
    with pytest.raises(InputError, match=rf"width={width} .* so that one channel is left"):
        build_network(name, SAMPLES[name], 10, width=width)


@pytest.mark.parametrize("name", [*NETWORKS, "my_networks:build"])
@pytest.mark.parametrize("embedding_dim", [0, -3])
def test_no_output_is_refused(name: str, embedding_dim: int) -> None:
    with pytest.raises(InputError, match=f"embedding_dim={embedding_dim}, need at least 1"):
        build_network(name, SAMPLES.get(name, (20,)), embedding_dim)


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ((13,), "mlp"),
        ((1, 8, 8), "convnet-small"),
        ((1, 23, 96), "convnet-small"),
        ((1, 96, 23), "convnet-small"),
        ((1, 24, 24), "dorfernet"),
        ((3, 96, 96), "dorfernet"),
    ],
)
def test_default_network_can_be_built(shape: tuple[int, ...], name: str) -> None:
    assert default_network(shape) == name
    assert isinstance(build_network(name, shape, 2, width=0.125), nn.Module)


@pytest.mark.parametrize("shape", [(), (8, 8), (3, 8, 8, 8)])
def test_no_default_for_other_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="need \\(features,\\) or \\(channels, height, width\\)"):
        default_network(shape)
