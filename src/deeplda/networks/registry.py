"""Networks by name. To add one, write a class or function with the signature of `NetworkBuilder` and enter it below."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from deeplda.errors import InputError, got
from deeplda.networks.checks import check_embedding_dim
from deeplda.networks.convnet_small import ConvNetSmall
from deeplda.networks.dorfernet import DorferNet
from deeplda.networks.fastnet import FastNet
from deeplda.networks.mlp import MLP
from deeplda.networks.user_network import build_user_network


class NetworkBuilder(Protocol):
    """What makes a network for samples of `sample_shape`, with output (n, embedding_dim)."""

    def __call__(self, sample_shape: Sequence[int], embedding_dim: int, *, width: float = ...) -> nn.Module: ...


@runtime_checkable
class StartsFromData(Protocol):
    """A network that takes something from the training part before it is trained, whoever wrote it."""

    def start_from(self, inputs: Tensor) -> None:
        """`inputs` are some samples of the training part, (n, *sample_shape), prepared as `forward` gets them."""


NETWORKS: dict[str, NetworkBuilder] = {
    "dorfernet": DorferNet,
    "fastnet": FastNet,
    "convnet-small": ConvNetSmall,
    "mlp": MLP,
}


def build_network(name: str, sample_shape: Sequence[int], embedding_dim: int, *, width: float = 1.0) -> nn.Module:
    """The network called `name`, with fresh weights from torch's random generator.

    Args:
        name: a name in NETWORKS, or "module.path:callable" of the user's own, called as
            `callable(sample_shape, embedding_dim)`, with `width=` where it has such a parameter. The module is looked
            for in the current directory first, then where Python looks.
        sample_shape: (features,) or (channels, height, width) of one sample.
        embedding_dim: the width of the output.
        width: factor on the hidden channels, 1 for the network as published.

    Raises InputError for a name that leads to no network, or arguments that do not suit it. What the user's own
    callable raises is passed on as it is.
    """
    check_embedding_dim(embedding_dim)
    shape = tuple(sample_shape)
    if ":" in name:
        return build_user_network(name, shape, embedding_dim, width=width)
    if name not in NETWORKS:
        raise InputError(_unknown(name))
    return NETWORKS[name](shape, embedding_dim, width=width)


def default_network(sample_shape: Sequence[int]) -> str:
    """The name of the network to use when none was chosen: by the kind and the size of the samples.

    Raises InputError for a shape that is neither (features,) nor (channels, height, width).
    """
    if len(sample_shape) == 1:
        return "mlp"
    if len(sample_shape) == 3:
        return "convnet-small" if min(sample_shape[1:]) < DorferNet.least_side else "dorfernet"
    raise InputError(
        got(
            f"samples of shape {tuple(sample_shape)}",
            need="(features,) or (channels, height, width)",
            do="name a network of your own as module.path:callable",
        )
    )


def _unknown(name: str) -> str:
    nearest = get_close_matches(name.lower(), NETWORKS, n=1)
    return got(
        f"network {name!r} is not known",
        need=f"one of {', '.join(NETWORKS)}, or module.path:callable of your own",
        do=f"did you mean {nearest[0]!r}?" if nearest else "choose one of these",
    )
