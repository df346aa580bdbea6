"""A network tried on one sample of zeros, and left as it was."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from deeplda.errors import InputError, got


def output_width(network: nn.Module, sample_shape: tuple[int, ...]) -> int:
    """The width of the network's output, from one sample of zeros. InputError if that is no row of numbers."""
    with untouched(network), torch.no_grad():
        output = network(zero_sample(network, sample_shape))
    if not isinstance(output, Tensor) or output.ndim != 2:
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise InputError(
            got(
                f"the network turns one sample of shape {sample_shape} into {shape}",
                need="a tensor of one row, (1, embedding_dim)",
                do="flatten its output",
            )
        )
    return output.shape[1]


@contextmanager
def untouched(network: nn.Module) -> Iterator[None]:
    """Eval mode inside; training modes (each module's own) and buffers as they were afterwards."""
    modes = [(module, module.training) for module in network.modules()]
    # Lazy ones take on their shape in the block.
    buffers = [(buffer, buffer.clone()) for buffer in network.buffers() if not is_lazy(buffer)]
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def zero_sample(network: nn.Module, sample_shape: Sequence[int]) -> Tensor:
    """A batch of one, of the precision and on the device of the network."""
    floating = (t for t in chain(network.parameters(), network.buffers()) if t.is_floating_point())
    like = next(floating, torch.empty(0))
    return torch.zeros((1, *sample_shape), dtype=like.dtype, device=like.device)
