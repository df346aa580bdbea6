"""Run a network on one sample to find its output width, its layers and their cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

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


_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
# These compute nothing in eval mode: they hand on or reshape what they get.
_FREE = (*_DROPOUTS, nn.Flatten, nn.Unflatten, nn.Identity)


class LayerRow(NamedTuple):
    """One layer as `describe` saw it run on one sample."""

    layer: str
    """In words, such as "3x3 convolution, 64 to 128 channels, padding 1"."""
    output_shape: tuple[int, ...]
    """Without the batch."""
    parameters: int
    """Parameters of the layer; those shared with an earlier row count there."""
    flops: int
    """Floating-point operations of the forward pass for one sample."""


def describe(network: nn.Module, sample_shape: Sequence[int]) -> list[LayerRow]:
    """The layers of a network in the order they run on one sample of `sample_shape`.

    A zero sample goes through the network in eval mode, without gradients, on the network's device. Training modes
    and buffers are as before afterwards.

    FLOPs: a convolution or linear layer counts 2 for each multiply-add (its bias nothing); dropout and reshaping
    nothing; every other layer, such as batch normalisation, ReLU and pooling, 1 for each element of its output.
    Operations that are not modules, such as `torch.relu(x)` in a `forward`, are not seen.

    Raises what the network raises when the sample does not suit it.
    """
    rows: list[LayerRow] = []
    counted: set[Tensor] = set()

    def record(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        new = set(module.parameters(recurse=False)) - counted
        counted.update(new)
        result = _tensor(output)
        flops = _flops(module, _tensor(inputs), result)
        rows.append(LayerRow(_words(module), tuple(result.shape[1:]), sum(p.numel() for p in new), flops))

    with untouched(network), torch.no_grad():
        # A module with both children and parameters of its own is a row as well, so that no parameter is missed.
        layers = [m for m in network.modules() if _is_leaf(m) or any(True for _ in m.parameters(recurse=False))]
        hooks = [layer.register_forward_hook(record) for layer in layers]
        try:
            network(zero_sample(network, sample_shape))
        finally:
            for hook in hooks:
                hook.remove()
    return rows


def training_flops(network: nn.Module, sample_shape: Sequence[int]) -> int:
    """Floating-point operations of forward and backward pass for one sample, as torch counts them when they run.

    Matrix products and convolutions alone, 2 for each multiply-add: about three times the forward pass, less what is
    not needed, such as the gradient at the image or at filters that are not trained. Gradients are gone afterwards.
    """
    from torch.utils.flop_counter import FlopCounterMode

    with untouched(network), torch.enable_grad(), FlopCounterMode(display=False) as counter:
        network(zero_sample(network, sample_shape)).sum().backward()
    network.zero_grad()
    return int(counter.get_total_flops())


def _is_leaf(module: nn.Module) -> bool:
    return next(module.children(), None) is None


def _tensor(value: Any) -> Tensor:
    """The tensor itself, or the first one of a tuple, as recurrent layers give; an empty one where there is none."""
    while isinstance(value, tuple | list) and value:
        value = value[0]
    return value if isinstance(value, Tensor) else torch.empty(0)


def _flops(module: nn.Module, inputs: Tensor, output: Tensor) -> int:
    # At every position (of the output; of the input if transposed) each weight takes part in one multiply-add.
    if isinstance(module, _CONVOLUTIONS):
        return 2 * module.weight.numel() * (output.numel() // module.out_channels)
    if isinstance(module, _TRANSPOSED):
        return 2 * module.weight.numel() * (inputs.numel() // module.in_channels)
    if isinstance(module, nn.Linear):
        return 2 * module.weight.numel() * (output.numel() // module.out_features)
    if isinstance(module, _FREE) or not _is_leaf(module):
        return 0
    return output.numel()


def _words(module: nn.Module) -> str:
    """The layer in words; its class name if it is of a kind not foreseen here."""
    if isinstance(module, _CONVOLUTIONS + _TRANSPOSED):
        return _convolution_words(module)
    if isinstance(module, nn.Linear):
        return f"linear, {module.in_features} to {module.out_features}"
    if isinstance(module, _BATCH_NORMS):
        return "batch normalisation"
    if isinstance(module, _DROPOUTS):
        return f"dropout {module.p:g}"
    if isinstance(module, nn.MaxPool2d):
        return f"{_kernel(module.kernel_size)} max-pooling"
    if isinstance(module, nn.AdaptiveAvgPool2d) and module.output_size in (1, (1, 1)):
        return "global average pooling"
    if isinstance(module, nn.Flatten):
        return "flatten"
    return type(module).__name__


def _convolution_words(layer: Any) -> str:
    kind = "transposed convolution" if isinstance(layer, _TRANSPOSED) else "convolution"
    words = f"{_kernel(layer.kernel_size)} {kind}, {layer.in_channels} to {layer.out_channels} channels"
    for setting, usual in (("stride", 1), ("padding", 0), ("dilation", 1), ("groups", 1)):
        value = getattr(layer, setting)
        if isinstance(value, tuple) and len(set(value)) == 1:
            value = value[0]
        if value != usual:
            words += f", {setting} {value}"
    return words


def _kernel(sizes: int | tuple[int, ...]) -> str:
    return "x".join(str(size) for size in (sizes if isinstance(sizes, tuple) else (sizes, sizes)))
