"""Networks by name: the built-in networks, and your own as "module.path:callable".

To add a built-in network, write a builder with the signature of `NetworkBuilder` and add it to NETWORKS.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, Protocol, TypedDict, Unpack, runtime_checkable

from torch import Tensor, nn

from deeplda.errors import InputError
from deeplda.networks.dorfernet import DorferNet
from deeplda.networks.fastnet import FastNet
from deeplda.networks.identity import IdentityNetwork
from deeplda.networks.inspection import outline, output_width
from deeplda.networks.layers import Head, check_embedding_dim
from deeplda.networks.small import MLP, ConvNetSmall
from deeplda.networks.whitened_output import Outputs
from deeplda.user_code import find_code, importable_here, is_code, own_code


class NetworkBuilder(Protocol):
    """A callable that builds a network for samples of shape `sample_shape`, with outputs (n, embedding_dim)."""

    def __call__(
        self,
        sample_shape: Sequence[int],
        embedding_dim: int,
        *,
        width: float = ...,
        head: Head | None = ...,
        logit_scale: float = ...,
        outputs: Outputs | None = ...,
    ) -> nn.Module: ...


@runtime_checkable
class StartsFromData(Protocol):
    """A network that is initialised from training samples before it is trained; your own networks can do this too."""

    def start_from(self, inputs: Tensor) -> None:
        """Initialise from some training samples (n, *sample_shape), normalised as the inputs of `forward` are."""


class NetworkOptions(TypedDict, total=False):
    """The options of `build_network`, which describes them."""

    width: float
    head: Head | None
    logit_scale: float
    outputs: Outputs | None
    hidden_layer_sizes: Sequence[int] | None
    dropout: float | None


class Architecture(NetworkOptions):
    """The arguments of `build_network`."""

    name: str
    sample_shape: Sequence[int]
    embedding_dim: int


NETWORKS: dict[str, NetworkBuilder] = {
    "dorfernet": DorferNet,
    "fastnet": FastNet,
    "convnet-small": ConvNetSmall,
    "mlp": MLP,
    "identity": IdentityNetwork,
}


def build_network(
    name: str, sample_shape: Sequence[int], embedding_dim: int, **options: Unpack[NetworkOptions]
) -> nn.Module:
    """Build a network by name, with fresh weights from torch's random number generator.

    Args:
        name: a name in NETWORKS, or "module.path:callable" for a network of your own. The callable is called as
            `callable(sample_shape, embedding_dim)`, with `width=` if it has such a parameter. The module is looked up
            first in the current directory, then on Python's path.
        sample_shape: (features,) or (channels, height, width) of one sample.
        embedding_dim: width of the output.
        width: multiplier for the number of hidden channels; 1 gives the network as published.
        head: "normalised" or "plain", the output layer of a built-in network; None is the network's own default. A
            network of your own has its own output layer.
        logit_scale: factor for the outputs of a plain head.
        outputs: "whitened" ends a built-in network in a `WhitenedOutput`; None leaves the outputs of the head.
        hidden_layer_sizes: number of units in each hidden layer of "mlp" at width 1, by default (128, 128).
        dropout: fraction of the hidden values of "mlp" dropped during training, by default 0.2.

    Raises InputError if the name is unknown, if the arguments are unsuitable, or if a built-in network does not fit in
    memory; nothing is allocated in that case. The size of your own network is not checked in advance, because only its
    code knows it. If your own callable fails, the message has its file and line, and the error is the cause.
    """
    if is_code(name):
        for option in ("head", "logit_scale", "outputs", "hidden_layer_sizes", "dropout"):
            default = 1 if option == "logit_scale" else None
            if (given := options.get(option, default)) != default:
                raise InputError(f"{option} is {given}, but {name!r} has its own layers: omit {option}")
        return build_user_network(name, tuple(sample_shape), embedding_dim, width=options.get("width", 1.0))
    outline_network(name, sample_shape, embedding_dim, **options)
    return NETWORKS[name](tuple(sample_shape), embedding_dim, **_arguments(name, options))


def check_network(
    name: str, sample_shape: Sequence[int], embedding_dim: int, **options: Unpack[NetworkOptions]
) -> None:
    """Raise InputError if `build_network` would.

    A built-in network is built on the meta device only, without allocating memory. A network of your own is built and
    discarded.
    """
    build = build_network if is_code(name) else outline_network
    build(name, sample_shape, embedding_dim, **options)


def outline_network(
    name: str, sample_shape: Sequence[int], embedding_dim: int, **options: Unpack[NetworkOptions]
) -> nn.Module:
    """Build a built-in network on the meta device, without values and without allocating memory.

    Raises the same errors as `build_network`.
    """
    if name not in NETWORKS:
        nearest = get_close_matches(name.lower(), NETWORKS, n=1)
        raise InputError(
            f"network {name!r} is not known",
            need=f"one of {', '.join(NETWORKS)}, or your own as module.path:callable",
            do=f"did you mean {nearest[0]!r}?" if nearest else "choose one of these",
        )
    build, shape, arguments = NETWORKS[name], tuple(sample_shape), _arguments(name, options)
    return outline(lambda: build(shape, embedding_dim, **arguments))


def _arguments(name: str, options: NetworkOptions) -> dict[str, Any]:
    """Return the keyword arguments of a built-in network. Raises InputError for an option that only mlp has."""
    arguments: dict[str, Any] = {option: value for option, value in options.items() if value is not None}
    for option, argument in (("hidden_layer_sizes", "hidden"), ("dropout", "dropout")):
        if option in arguments:
            if name != "mlp":
                what = f"{option} is {arguments[option]}, but {name} has fixed hidden layers"
                raise InputError(f"{what}: omit {option}, or use network mlp")
            arguments[argument] = arguments.pop(option)
    return arguments


def default_network(sample_shape: Sequence[int]) -> str:
    """Return the name of the default network for samples of this shape, chosen by their kind and size.

    Raises InputError if the shape is neither (features,) nor (channels, height, width).
    """
    if len(sample_shape) == 1:
        return "mlp"
    if len(sample_shape) == 3:
        return "convnet-small" if min(sample_shape[1:]) < DorferNet.least_side else "dorfernet"
    raise InputError(
        f"there is no default network for samples of shape {tuple(sample_shape)}",
        need="(features,) or (channels, height, width)",
        do="pass a network of your own as module.path:callable",
    )


def build_user_network(name: str, sample_shape: tuple[int, ...], embedding_dim: int, *, width: float) -> nn.Module:
    """Call "module.path:callable" as `callable(sample_shape, embedding_dim)` and return its network, in float32.

    `width` is passed as a keyword argument if the callable has a parameter of that name. Otherwise, a width other than
    1 is rejected, because it would silently have no effect.

    Importing runs the module's code, so pass only a name that the user wrote, never one from an untrusted file.

    Raises InputError if the module cannot be imported, if it has no such callable, if the callable does not accept
    these arguments, if it fails, or if it does not return an nn.Module with `embedding_dim` outputs.
    """
    check_embedding_dim(embedding_dim)
    with importable_here():
        builder = _find(name)
        option = _width_option(builder, name, width)
        with own_code("network", name):
            network = builder(sample_shape, embedding_dim, **option)
    if not isinstance(network, nn.Module):
        raise InputError(
            f"network {name!r} returned an object of type {type(network).__name__}, need a torch.nn.Module"
        )
    if (outputs := output_width(network, sample_shape)) != embedding_dim:
        raise InputError(
            f"network {name!r} has {outputs} outputs",
            need=f"{embedding_dim}",
            do=f"give its last layer embedding_dim outputs, or pass --embedding-dim {outputs}",
        )
    return network.float()


def _find(name: str) -> Callable[..., Any]:
    found = find_code(name, "network")
    # A network is also callable, but calling it would compute embeddings.
    if isinstance(found, nn.Module) or not callable(found):
        raise InputError(
            f"{name!r} is of type {type(found).__name__}",
            need="a function or class that builds the network",
            do="wrap it in a function such as def build(sample_shape, embedding_dim)",
        )
    return found  # type: ignore[no-any-return]  # the user's code is untyped


def _width_option(builder: Callable[..., Any], name: str, width: float) -> dict[str, float]:
    """Return `width` as keyword arguments for the builder, after checking that the builder accepts its arguments."""
    try:
        signature = inspect.signature(builder)
    except (TypeError, ValueError):  # some callables written in C have no signature
        return {}
    parameter = signature.parameters.get("width")
    takes_width = parameter is not None and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    if not takes_width and width != 1:
        raise InputError(f"width is {width}, but {name!r} has no width parameter: add the parameter or omit --width")
    option = {"width": width} if takes_width else {}
    try:
        signature.bind((), 0, **option)
    except TypeError:
        raise InputError(
            f"{name!r} takes {signature}",
            need="(sample_shape, embedding_dim)",
            do="accept these two parameters and give all others a default",
        ) from None
    return option
