"""Networks by name. To add one, write a builder with the signature of `NetworkBuilder` and list it in NETWORKS."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from deeplda.errors import InputError, got
from deeplda.networks.dorfernet import DorferNet
from deeplda.networks.fastnet import FastNet
from deeplda.networks.inspection import output_width
from deeplda.networks.layers import check_embedding_dim
from deeplda.networks.small import MLP, ConvNetSmall


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


def build_user_network(name: str, sample_shape: tuple[int, ...], embedding_dim: int, *, width: float) -> nn.Module:
    """Call "module.path:callable" as `callable(sample_shape, embedding_dim)` and return its network, in float32.

    `width` is handed on as a keyword if the callable has a parameter of that name. If it has none, a width other
    than 1 is refused: it would change nothing and nobody would notice.

    Importing runs the module's code: only pass a name that the user wrote, never one from a file of unknown origin.

    Raises InputError if the module cannot be imported, has no such callable, or the callable does not take these
    arguments or gives no nn.Module with so many outputs. What the callable itself raises is passed on as it is.
    """
    with _current_directory_importable():
        builder = _find(name)
        network = builder(sample_shape, embedding_dim, **_width_option(builder, name, width))
    if not isinstance(network, nn.Module):
        raise InputError(
            got(
                f"network {name!r} gave an object of type {type(network).__name__}",
                need="a torch.nn.Module",
                do="return the network",
            )
        )
    if (outputs := output_width(network, sample_shape)) != embedding_dim:
        raise InputError(
            got(
                f"network {name!r} gives {outputs} numbers for a sample",
                need=f"{embedding_dim}",
                do=f"give its last layer embedding_dim outputs, or pass --embedding-dim {outputs}",
            )
        )
    return network.float()


@contextmanager
def _current_directory_importable() -> Iterator[None]:
    """Put the current directory first on the import path, as `python -m` does and an installed command does not."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    # A file written a moment ago, as in a notebook, would not be seen otherwise.
    importlib.invalidate_caches()
    try:
        yield
    finally:
        # Only ours: the user's module may have added to the path itself.
        with suppress(ValueError):
            sys.path.remove(here)


def _find(name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    if not (module_name and attribute) or module_name.startswith("."):
        raise InputError(got(f"network {name!r}", need="module.path:callable", do="write it like my_networks:build"))
    module = _import(module_name)
    try:
        found = attrgetter(attribute)(module)
    except AttributeError:
        where = f"module {module_name} ({getattr(module, '__file__', None) or 'built in'})"
        raise InputError(
            got(f"{where} has no {attribute!r}", need="a function or class of that name", do="check the spelling")
        ) from None
    # A network is callable as well, but calling it would compute embeddings.
    if isinstance(found, nn.Module) or not callable(found):
        raise InputError(
            got(
                f"{name!r} is of type {type(found).__name__}",
                need="a function or class that makes the network",
                do="wrap it: def build(sample_shape, embedding_dim): ...",
            )
        )
    return found  # type: ignore[no-any-return]  # what the user's code holds has no type


def _import(module_name: str) -> ModuleType:
    # Importing runs the user's file, which can raise anything; the cause stays attached for whoever wants it.
    try:
        return importlib.import_module(module_name)
    except Exception as error:
        raise InputError(
            got(
                f"module {module_name!r} cannot be imported ({type(error).__name__}: {error})",
                need=f"a module in the current directory ({Path.cwd()}) or an installed one",
                do="check the name, and that the module imports in Python",
            )
        ) from error


def _width_option(builder: Callable[..., Any], name: str, width: float) -> dict[str, float]:
    """The keyword arguments that carry `width` to the builder, having checked that it takes the arguments at all."""
    try:
        signature = inspect.signature(builder)
    except (TypeError, ValueError):  # some callables written in C do not tell
        return {}
    parameter = signature.parameters.get("width")
    takes_width = parameter is not None and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    if not takes_width and width != 1:
        raise InputError(
            got(f"width={width}, but {name!r} has no parameter width", need="1", do="add the parameter or leave it out")
        )
    option = {"width": width} if takes_width else {}
    try:
        signature.bind((), 0, **option)
    except TypeError:
        raise InputError(
            got(
                f"{name!r} takes {signature}",
                need="(sample_shape, embedding_dim)",
                do="take these two and give every other parameter a default",
            )
        ) from None
    return option
