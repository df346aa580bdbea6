"""The last hidden layer of a network: the values that enter its output layers.

The built-in networks have two methods, with forward(x) = outputs(features(x)); your own networks can have them too:

- `features` maps samples (n, *sample_shape) to vectors (n, d), or to maps (n, d, ...), which are then averaged.
- `outputs` maps these to the embeddings (n, embedding_dim), so that one pass computes both.
"""

from __future__ import annotations

import threading
from typing import Any

from torch import Tensor, nn

from deeplda.errors import InputError

# The widest hidden layer whose statistics are kept: its covariance takes 32 MB.
MOST_FEATURES = 2048


def outputs_and_features(network: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the outputs (n, embedding_dim) of a network and its last hidden layer (n, d), from one pass if possible.

    The hidden layer is the result of the network's method `features`. If it has no such method, it is the input of the
    linear layer that runs last, or None if there is no such layer or its input is not one vector per sample. A network
    that has `features` but not `outputs`, or whose `forward` was overridden without `outputs`, is run twice.

    Raises InputError if `features` returns anything else than one vector or one stack of maps per sample.
    """
    features: Any = getattr(network, "features", None)
    if not callable(features):
        return _with_input_of_last_linear(network, inputs)
    hidden = features(inputs)
    outputs: Any = getattr(network, "outputs", None)
    embeddings: Tensor = outputs(hidden) if _is_split(network) else network(inputs)
    return embeddings, _vectors(hidden, inputs.shape[0])


def _is_split(network: nn.Module) -> bool:
    """Return whether `outputs` is a method of the class that defines `forward`, or of a subclass of it.

    A subclass that overrides `forward` alone inherits an `outputs` that may not belong to it.
    """
    if "forward" in vars(network):
        return False
    lowest = next(kind for kind in type(network).__mro__ if {"outputs", "forward"} & vars(kind).keys())
    return "outputs" in vars(lowest)


def _vectors(hidden: Any, samples: int) -> Tensor:
    """Return the hidden layer as vectors (n, d); maps (n, d, ...) are averaged over their positions."""
    # Not len(), which would fix the number of samples in an exported graph.
    if not isinstance(hidden, Tensor) or hidden.ndim < 2 or hidden.shape[0] != samples:
        found = f"shape {tuple(hidden.shape)}" if isinstance(hidden, Tensor) else f"type {type(hidden).__name__}"
        what = f"the network's features method returned {found} for {samples} samples"
        raise InputError(what, need="(n, d) or (n, d, ...)", do="return one vector for each sample")
    return hidden if hidden.ndim == 2 else hidden.flatten(2).mean(2)


def _with_input_of_last_linear(network: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
    found: list[Tensor] = []
    thread = threading.get_ident()

    def record(_layer: nn.Module, arguments: tuple[Any, ...]) -> None:
        # Other threads may be using the same network.
        if threading.get_ident() == thread and arguments:
            found[:] = [arguments[0]]

    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    hooks = [layer.register_forward_pre_hook(record) for layer in layers]
    try:
        outputs: Tensor = network(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    usable = bool(found) and found[0].ndim == 2 and found[0].shape[0] == inputs.shape[0]
    return outputs, found[0] if usable else None
