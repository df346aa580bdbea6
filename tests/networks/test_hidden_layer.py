"""The last hidden layer: what a network's output layers take, from the same pass as its outputs."""

import pytest
import torch
from torch import nn

from deeplda.errors import InputError
from deeplda.networks import build_network
from deeplda.networks.hidden_layer import outputs_and_features

SHAPES = {"mlp": (6,), "convnet-small": (1, 8, 8), "dorfernet": (3, 24, 24), "fastnet": (3, 24, 24)}
WIDTHS = {"mlp": 6 + 32, "convnet-small": 32, "dorfernet": 256, "fastnet": 64}


class Calls(nn.Module):
    """A network of the user's own that counts how often each part runs."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.ran = nn.Linear(4, 3), nn.Linear(3, 2), []

    def forward(self, inputs):
        self.ran.append("forward")
        return self.second(self.first(inputs).relu())


class WithFeatures(Calls):
    def features(self, inputs):
        self.ran.append("features")
        return self.first(inputs).relu()


class WithBoth(WithFeatures):
    def outputs(self, features):
        return self.second(features)


class OwnForward(WithBoth):
    def forward(self, inputs):
        return -super().forward(inputs)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("head", [None, "plain"])
def test_built_in_networks(name, head):
    torch.manual_seed(0)
    network = build_network(name, SHAPES[name], 5, width=0.25, head=head).eval()
    inputs = torch.randn(3, *SHAPES[name])
    with torch.no_grad():
        outputs, features = outputs_and_features(network, inputs)
        torch.testing.assert_close(outputs, network(inputs), rtol=0, atol=0)
    assert features.shape == (3, WIDTHS[name])


def test_the_features_of_a_linear_mlp_are_its_inputs():
    network = build_network("mlp", (6,), 5, hidden_layer_sizes=()).eval()
    inputs = torch.randn(3, 6)
    outputs, features = outputs_and_features(network, inputs)
    torch.testing.assert_close(features, inputs)
    torch.testing.assert_close(outputs, network.linear(inputs))


@pytest.mark.parametrize("name", ["convnet-small", "fastnet", "dorfernet"])
def test_a_plain_output_layer_is_linear_in_the_features(name):
    """Two outputs that agree on the features agree: the layer applied to the features gives the outputs."""
    torch.manual_seed(0)
    network = build_network(name, SHAPES[name], 5, width=0.25, head="plain").eval()
    layer = [module for module in network.modules() if isinstance(module, nn.Linear)][-1]
    outputs, features = outputs_and_features(network, torch.randn(3, *SHAPES[name]))
    torch.testing.assert_close(layer(features), outputs)


@pytest.mark.parametrize(
    ("kind", "ran"), [(Calls, ["forward"]), (WithFeatures, ["features", "forward"]), (WithBoth, ["features"])]
)
def test_own_networks_have_the_same_features_with_and_without_a_method(kind, ran):
    torch.manual_seed(0)
    network, inputs = kind(), torch.randn(5, 4)
    outputs, features = outputs_and_features(network, inputs)
    torch.testing.assert_close(features, network.first(inputs).relu())
    torch.testing.assert_close(outputs, network.second(features))
    assert network.ran == ran
    assert not network.first._forward_pre_hooks


def test_a_subclass_that_overrides_forward_alone_keeps_its_outputs():
    network, inputs = OwnForward(), torch.randn(5, 4)
    outputs, features = outputs_and_features(network, inputs)
    torch.testing.assert_close(outputs, network(inputs))
    torch.testing.assert_close(features, network.features(inputs))
    network = WithBoth()
    network.forward = lambda inputs: inputs[:, :2]
    torch.testing.assert_close(outputs_and_features(network, inputs)[0], inputs[:, :2])


def test_the_linear_layer_that_runs_last_counts_not_the_one_that_is_defined_last():
    network = nn.Module()
    network.last, network.first = nn.Linear(3, 2), nn.Linear(4, 3)
    network.forward = lambda inputs: network.last(network.first(inputs))
    inputs = torch.randn(5, 4)
    torch.testing.assert_close(outputs_and_features(network, inputs)[1], network.first(inputs))


def test_a_network_without_linear_layers_or_with_one_per_position_has_none():
    convolution = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert outputs_and_features(convolution, torch.randn(3, 1, 8, 8))[1] is None
    per_position = nn.Sequential(nn.Linear(8, 4), nn.Flatten())
    assert outputs_and_features(per_position, torch.randn(3, 2, 8))[1] is None


def test_maps_are_averaged_over_their_positions():
    network = nn.Sequential()
    network.features = nn.Conv2d(1, 2, 3)
    network.append(nn.Flatten())
    inputs = torch.randn(3, 1, 8, 8)
    torch.testing.assert_close(outputs_and_features(network, inputs)[1], network.features(inputs).mean((2, 3)))


def test_features_that_are_not_one_vector_per_sample_are_an_error():
    network = Calls()
    network.features = lambda inputs: inputs.sum()
    with pytest.raises(InputError, match=r"returned shape \(\) for 3 samples"):
        outputs_and_features(network, torch.randn(3, 4))
