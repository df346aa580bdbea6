"""The network without layers."""

import pytest
import torch

from deeplda.errors import InputError
from deeplda.networks import build_network, describe
from deeplda.networks.inspection import training_flops


def test_the_embedding_is_the_feature_vector():
    network, rows = build_network("identity", (5,), 5), torch.randn(3, 5)
    assert torch.equal(network(rows), rows)
    assert torch.equal(network.outputs(network.features(rows)), rows)
    assert not list(network.parameters())
    assert training_flops(network, (5,)) == 0
    assert sum(row.parameters for row in describe(network, (5,))) == 0


@pytest.mark.parametrize(
    ("shape", "width", "options", "message"),
    [
        ((3, 8, 8), 5, {}, r"identity cannot process samples of shape \(3, 8, 8\), need feature vectors"),
        ((5,), 4, {}, "embedding_dim is 4, but network identity has an output for each feature, need 5"),
        ((5,), 5, {"width": 0.5}, "width is 0.5, but network identity has no layers: omit width"),
        ((5,), 5, {"logit_scale": 2.0}, "logit_scale is 2, but network identity has no layers"),
        ((5,), 5, {"head": "normalised"}, "identity has only a plain head"),
        ((5,), 5, {"dropout": 0.5}, "identity has fixed hidden layers"),
    ],
)
def test_options_that_it_does_not_have_are_rejected(shape, width, options, message):
    with pytest.raises(InputError, match=message):
        build_network("identity", shape, width, **options)
