"""The output layer of the built-in networks: normalised as ever, or plain and scaled."""

import pytest
import torch
from torch import nn

from deeplda.errors import InputError
from deeplda.networks import NETWORKS, build_network, check_network, describe
from deeplda.networks.registry import outline_network

# The networks that can be trained.
LAYERED = tuple(name for name in NETWORKS if name != "identity")
SAMPLES = {"dorfernet": (3, 24, 24), "fastnet": (3, 24, 24), "convnet-small": (1, 8, 8), "mlp": (20,)}
NORMALISED = ("dorfernet", "fastnet")


def build(name, **options):
    torch.manual_seed(0)
    return build_network(name, SAMPLES[name], 5, width=0.125, **options).eval()


@pytest.mark.parametrize("name", LAYERED)
def test_the_default_is_the_head_that_the_network_always_had(name):
    own = "normalised" if name in NORMALISED else "plain"
    default, chosen = build(name), build(name, head=own)
    assert list(default.state_dict()) == list(chosen.state_dict())
    images = torch.randn(3, *SAMPLES[name])
    assert torch.equal(default(images), chosen(images))
    last = [module for module in default.modules() if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)][-1]
    assert (last.num_features == 5) == (name in NORMALISED)


def test_a_plain_fastnet_is_linear_in_its_pooled_features():
    network = build("fastnet", head="plain", logit_scale=0.25)
    images = torch.randn(4, *SAMPLES["fastnet"])
    features = network.groups(network.whitening(images)).amax((2, 3))
    (weight,) = (module.weight for module in network.output.modules() if isinstance(module, nn.Linear))
    torch.testing.assert_close(network(images), 0.25 * features @ weight.T)


def test_a_plain_dorfernet_is_the_mean_of_a_1x1_convolution():
    network = build("dorfernet", head="plain", logit_scale=3.0)
    images = torch.randn(4, *SAMPLES["dorfernet"])
    features = network.block5(network.block4(network.block3(network.block2(network.block1(images)))))
    layer = network.block6[-1]
    nn.init.normal_(layer.bias)
    maps = nn.functional.conv2d(features, layer.weight[:, :, None, None], layer.bias)
    torch.testing.assert_close(network(images), 3 * maps.mean((2, 3)))
    assert (network(images) < 0).any()


@pytest.mark.parametrize("name", LAYERED)
def test_the_scale_multiplies_plain_outputs(name):
    images = torch.randn(3, *SAMPLES[name])
    one, other = build(name, head="plain"), build(name, head="plain", logit_scale=1 / 9)
    torch.testing.assert_close(other(images), one(images) / 9)
    assert one.state_dict().keys() == other.state_dict().keys()
    assert describe(other, SAMPLES[name])[-1].layer.endswith("to 5, times 0.111")
    assert "times" not in describe(one, SAMPLES[name])[-1].layer


@pytest.mark.parametrize("name", sorted(set(LAYERED) - set(NORMALISED)))
def test_networks_without_a_normalised_head_reject_it(name):
    with pytest.raises(InputError, match=f"head is 'normalised', but {name} has only a plain head"):
        build(name, head="normalised")


@pytest.mark.parametrize("function", [build_network, check_network, outline_network])
def test_a_scale_that_normalisation_would_undo_is_rejected(function):
    for head in (None, "normalised"):
        with pytest.raises(InputError, match=r"logit_scale is 0.5, but the head is normalised: use head plain"):
            function("fastnet", SAMPLES["fastnet"], 5, head=head, logit_scale=0.5)


@pytest.mark.parametrize(
    "options", [{"head": "plain"}, {"logit_scale": 0.5}, {"hidden_layer_sizes": ()}, {"dropout": 0.0}]
)
def test_your_own_network_has_its_own_layers(options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "network_with_a_head.py").write_text(
        "from torch import nn\nmake = lambda shape, d: nn.Linear(*shape, d)\n"
    )
    (name,) = options
    for function in (build_network, check_network):
        with pytest.raises(InputError, match=f"{name} is .*, but 'network_with_a_head:make' has its own layers: omit"):
            function("network_with_a_head:make", (20,), 5, **options)


@pytest.mark.parametrize("name", LAYERED)
def test_output_layers_are_what_the_output_depends_on_last(name):
    """Without them, the output is constant."""
    network = build(name)
    for layer in network.output_layers:
        for parameter in getattr(network, layer).parameters():
            nn.init.zeros_(parameter)
    outputs = network(torch.randn(3, *SAMPLES[name]))
    assert torch.equal(outputs, outputs[:1].expand_as(outputs))
