"""Networks by name: the built-in ones, and your own as module:callable from the current directory."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from deeplda.errors import InputError
from deeplda.networks import (
    MLP,
    NETWORKS,
    ConvNetSmall,
    DorferNet,
    FastNet,
    build_network,
    check_network,
    default_network,
)
from deeplda.networks.registry import outline_network

# The networks that can be trained.
LAYERED = tuple(name for name in NETWORKS if name != "identity")
SAMPLES = {"dorfernet": (3, 32, 32), "fastnet": (3, 32, 32), "convnet-small": (1, 8, 8), "mlp": (20,)}


@pytest.mark.parametrize("name", LAYERED)
def test_every_network_embeds_its_samples(name: str) -> None:
    network = build_network(name, SAMPLES[name], 9, width=0.125)
    assert network(torch.randn(2, *SAMPLES[name])).shape == (2, 9)


@pytest.mark.parametrize(
    ("name", "kind"), [("dorfernet", DorferNet), ("fastnet", FastNet), ("convnet-small", ConvNetSmall), ("mlp", MLP)]
)
def test_names(name: str, kind: type[nn.Module]) -> None:
    assert isinstance(build_network(name, SAMPLES[name], 2, width=0.125), kind)


@pytest.mark.parametrize("name", LAYERED)
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


@pytest.mark.parametrize("name", LAYERED)
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
        ("resnet152", r"one of dorfernet, fastnet, convnet-small, mlp, .*module\.path:callable"),
        ("", r"network '' is not known"),
    ],
)
def test_unknown_names_are_rejected(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_network(name, (3, 32, 32), 10)


@pytest.mark.parametrize("name", LAYERED)
@pytest.mark.parametrize("width", [0.0, -1.0, 0.005, float("nan"), float("inf")])
def test_a_width_without_a_channel_is_rejected(name: str, width: float) -> None:
    with pytest.raises(InputError, match=rf"width={width} .* one channel"):
        build_network(name, SAMPLES[name], 10, width=width)


@pytest.mark.parametrize("name", [*LAYERED, "my_networks:build"])
@pytest.mark.parametrize("embedding_dim", [0, -3])
def test_an_embedding_without_dimensions_is_rejected(name: str, embedding_dim: int) -> None:
    with pytest.raises(InputError, match=f"embedding_dim is {embedding_dim}, need at least 1"):
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


SOURCE = """
import torch
from torch import nn

class Net(nn.Sequential):
    def __init__(self, sample_shape, embedding_dim):
        super().__init__(nn.Linear(sample_shape[0], embedding_dim))

    @classmethod
    def with_width(cls, sample_shape, embedding_dim, width=1.0):
        network = cls(sample_shape, embedding_dim)
        network.width_given = width
        return network

def takes_anything(*args, **kwargs):
    assert not kwargs
    return nn.Linear(5, 3)

def two_outputs(sample_shape, embedding_dim): return nn.Linear(5, 2)
def an_image(sample_shape, embedding_dim): return nn.Unflatten(1, (1, 5))

def three(sample_shape, embedding_dim, depth): ...
def no_network(sample_shape, embedding_dim): return "network"
def fails(sample_shape, embedding_dim): raise KeyError("inside the user's own code")
def late(sample_shape, embedding_dim):
    import my_late_neighbour
    return nn.Linear(5, 3)

def doubles(sample_shape, embedding_dim): return nn.Linear(5, 3).double()
def partly_frozen(sample_shape, embedding_dim):
    network = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3))
    network[0].eval()
    return network

ready = nn.Linear(2, 2)
number = 3
"""


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_networks.py").write_text(SOURCE)
    (tmp_path / "my_late_neighbour.py").write_text("")
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "nets.py").write_text(SOURCE)
    (tmp_path / "my_broken.py").write_text("import nothing_of_that_name")
    (tmp_path / "my_typo.py").write_text("def (:")
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("my_")]:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["my_networks:Net", "my_package.nets:Net"])
def test_own_class(name: str) -> None:
    network = build_network(name, (5,), 3)
    assert network(torch.randn(2, 5)).shape == (2, 3)


def test_current_directory_is_importable_only_meanwhile(own_directory: Path) -> None:
    before = list(sys.path)
    assert str(own_directory) not in before
    build_network("my_networks:late", (5,), 3)
    assert sys.path == before


def test_an_installed_module_works_too() -> None:
    assert build_network("deeplda.networks.small:MLP", (5,), 3, width=0.5)(torch.randn(2, 5)).shape == (2, 3)


def test_a_network_of_another_precision_is_brought_to_float32() -> None:
    assert build_network("my_networks:doubles", (5,), 3)(torch.randn(2, 5)).dtype == torch.float32


def test_modes_are_left_as_they_were() -> None:
    network = build_network("my_networks:partly_frozen", (5,), 3)
    assert (network.training, network[0].training, network[1].training) == (True, False, True)


def test_width_is_passed_only_to_callables_that_accept_it() -> None:
    assert build_network("my_networks:Net.with_width", (5,), 3, width=0.5).width_given == 0.5
    build_network("my_networks:Net", (5,), 3, width=1.0)
    build_network("my_networks:takes_anything", (5,), 3)
    with pytest.raises(InputError, match=r"width is 0\.5, but 'my_networks:Net' has no width parameter"):
        build_network("my_networks:Net", (5,), 3, width=0.5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_netwroks:Net", "module 'my_netwroks' cannot be imported .*current directory"),
        (
            "my_broken:Net",
            r"'my_broken' failed in .*my_broken\.py, line 1: ModuleNotFoundError: .*nothing_of_that_name",
        ),
        ("my_typo:Net", "'my_typo' cannot be imported .*SyntaxError"),
        ("my_networks:Nett", r"module my_networks \(.*my_networks\.py\) has no 'Nett'"),
        ("my_networks:number", "'my_networks:number' is of type int, need a function or class"),
        ("my_networks:ready", "'my_networks:ready' is of type Linear, need a function or class"),
        ("my_networks:no_network", r"an object of type str, need a torch\.nn\.Module"),
        ("my_networks:three", r"takes \(sample_shape, embedding_dim, depth\), need \(sample_shape, embedding_dim\)"),
        ("my_networks:two_outputs", "2 outputs, need 3: .*--embedding-dim 2"),
        ("my_networks:an_image", r"turns one sample of shape \(5,\) into \(1, 1, 5\)"),
        ("my_networks:", r"need module\.path:name"),
        (":Net", r"need module\.path:name"),
        (".my_networks:Net", r"need module\.path:name"),
    ],
)
def test_unsuitable_callables_are_rejected(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_network(name, (5,), 3)


def test_an_error_in_the_users_own_code_is_the_cause() -> None:
    with pytest.raises(InputError, match=r"'my_networks:fails' failed in .*line \d+: KeyError") as raised:
        build_network("my_networks:fails", (5,), 3)
    assert isinstance(raised.value.__cause__, KeyError)


def test_hidden_layers_of_the_mlp() -> None:
    network = build_network("mlp", (20,), 2, hidden_layer_sizes=(30, 7), dropout=0.25)
    assert [(m.in_features, m.out_features) for m in network.hidden if isinstance(m, nn.Linear)] == [(20, 30), (30, 7)]
    assert {m.p for m in network.hidden if isinstance(m, nn.Dropout)} == {0.25}


@pytest.mark.parametrize("name", sorted(set(LAYERED) - {"mlp"}))
@pytest.mark.parametrize("options", [{"hidden_layer_sizes": (30,)}, {"dropout": 0.0}])
def test_other_networks_have_fixed_hidden_layers(name: str, options: dict[str, Any]) -> None:
    for build in (build_network, check_network, outline_network):
        with pytest.raises(InputError, match=f"but {name} has fixed hidden layers: omit"):
            build(name, SAMPLES[name], 2, **options)
