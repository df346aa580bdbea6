"""Inspect a network: its size (before any memory is allocated), its output width, and its layers and their cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from deeplda.errors import InputError
from deeplda.memory import TooLargeError, require_memory
from deeplda.networks.whitened_output import WhitenedOutput

M = TypeVar("M", bound=nn.Module)

# The activations that inference may hold at once, in bytes, and the samples, however small they are.
_MOST_ACTIVATIONS, _MOST_SAMPLES = 2**29, 500
_FLOAT_BYTES = 4
_SMALLER = "use smaller samples"
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
# In eval mode, these layers only pass on or reshape their input.
_FREE = (*_DROPOUTS, nn.Flatten, nn.Unflatten, nn.Identity)


class LayerRow(NamedTuple):
    """One layer of a network, as returned by `describe`.

    Attributes:
        layer: a description such as "3x3 convolution, 64 to 128 channels, padding 1".
        output_shape: shape of the output for one sample, without the batch dimension.
        parameters: number of parameters; shared parameters are counted only in the first row that has them.
        flops: number of floating-point operations in the forward pass for one sample.
    """

    layer: str
    output_shape: tuple[int, ...]
    parameters: int
    flops: int


def describe(network: nn.Module, sample_shape: Sequence[int]) -> list[LayerRow]:
    """List the layers of a network in the order in which they run on one sample of shape `sample_shape`.

    The network processes a sample of zeros in eval mode, without gradients, on its own device. Training modes and
    buffers are restored afterwards.

    FLOPs are counted as follows: a convolution or linear layer counts 2 for each multiply-add and nothing for its bias;
    dropout and reshaping count nothing; and every other layer, such as batch normalisation, ReLU or pooling, counts 1
    for each output value. Operations that are not modules, such as `torch.relu(x)` in a `forward` method, are not
    counted.

    Errors that the network raises for such a sample are passed on.
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
        # A module that has both children and parameters of its own also gets a row, so that no parameter is missed.
        layers = [m for m in network.modules() if _is_leaf(m) or any(True for _ in m.parameters(recurse=False))]
        hooks = [layer.register_forward_hook(record) for layer in layers]
        try:
            network(zero_sample(network, sample_shape))
        finally:
            for hook in hooks:
                hook.remove()
    return rows


def training_flops(network: nn.Module, sample_shape: Sequence[int]) -> int:
    """Count the floating-point operations in the forward and backward passes for one sample, with torch's counter.

    Only matrix products and convolutions are counted, with 2 for each multiply-add. The result is about three times the
    count for the forward pass, minus gradients that are not needed, such as the gradients for the image or for filters
    that are not trained. Gradients are cleared afterwards.
    """
    # Imported here because the import takes long, and only training runs need it.
    from torch.utils.flop_counter import FlopCounterMode

    with untouched(network), torch.enable_grad(), FlopCounterMode(display=False) as counter:
        outputs = network(zero_sample(network, sample_shape)).sum()
        # A network without parameters has no gradient.
        if outputs.requires_grad:
            outputs.backward()
    network.zero_grad()
    return int(counter.get_total_flops())


def output_width(network: nn.Module, sample_shape: tuple[int, ...]) -> int:
    """Return the width of the network's output for one sample of zeros.

    Raises InputError if the output is not a single vector, or if one sample does not fit in the available memory.
    """
    with untouched(network), torch.no_grad():
        output = network(zero_sample(network, sample_shape))
    if not isinstance(output, Tensor) or output.ndim != 2:
        is_tensor = isinstance(output, Tensor)
        shape = tuple(output.shape) if is_tensor else f"an object of type {type(output).__name__}"
        what = f"the network turns one sample of shape {sample_shape} into {shape}"
        do = "flatten its output" if is_tensor else "return a tensor from its forward"
        # Models of Hugging Face return an object with several outputs.
        for name, call in {"pooler_output": ".pooler_output", "last_hidden_state": ".last_hidden_state[:, 0]"}.items():
            if getattr(output, name, None) is not None:
                do = f"return its {call} from the network's forward"
                break
        raise InputError(what, need="a tensor of shape (1, embedding_dim)", do=do)
    return output.shape[1]


class SampleMemory(NamedTuple):
    """Bytes that a network needs for one sample in float32, besides its parameters.

    Attributes:
        peak: in a forward pass without gradients: the input and the output of the largest layer.
        kept: for a backward pass: at least the outputs of all layers that have parameters.
    """

    peak: int
    kept: int


def sample_memory(network: nn.Module, sample_shape: Sequence[int]) -> SampleMemory:
    """Compute the memory that one sample of shape `sample_shape` needs, without allocating it.

    The network processes an empty batch, whose layers still have the shapes of samples. Use this only for our own
    networks: others may not support empty batches. An outline is also supported; it gets unset values on the CPU.

    Raises InputError if the sizes exceed 64 bits.
    """
    if _like(network).is_meta:
        # Computing on the meta device would import a large part of torch. Memory that is never written takes no space.
        network.to_empty(device="cpu")
    peaks, kept = [_FLOAT_BYTES * math.prod(sample_shape)], [0]

    def record(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        taken, given = (_FLOAT_BYTES * math.prod(values.shape[1:]) for values in (inputs[0], output))
        peaks.append(taken + given)
        if next(module.parameters(recurse=False), None) is not None:
            kept.append(given)

    hooks = [module.register_forward_hook(record) for module in network.modules() if _is_leaf(module)]
    try:
        with _within_64_bits(_sample(sample_shape), _SMALLER), untouched(network), torch.no_grad():
            network(_like(network).new_empty((0, *sample_shape)))
    finally:
        for hook in hooks:
            hook.remove()
    return SampleMemory(max(peaks), sum(kept))


def samples_at_once(network: nn.Module, sample_shape: Sequence[int]) -> int:
    """Return the number of samples for a forward pass without gradients: at most 500, and 512 MiB of activations.

    It depends only on the network and the shape, not on the free memory, so results can be reproduced.
    """
    return max(1, min(_MOST_SAMPLES, _MOST_ACTIVATIONS // sample_memory(network, sample_shape).peak))


def require_sample_memory(network: nn.Module, sample_shape: Sequence[int]) -> None:
    """Raise InputError if one sample does not fit in memory while the network processes it; see `sample_memory`."""
    require_memory(sample_memory(network, sample_shape).peak, _sample(sample_shape), copies=1, do=_SMALLER)


def outline(build: Callable[[], M]) -> M:
    """Call `build` on torch's meta device: the module has shapes and dtypes but no values, and takes no memory.

    Use this only for our own modules: other constructors may compute with values, which tensors on the meta device
    lack.

    Raises InputError if the module would not fit in the available memory, or if its sizes exceed 64 bits.
    """
    do = "lower its width or embedding_dim"
    with _within_64_bits("the network", do), torch.device("meta"):
        module = build()
    size = sum(tensor.nbytes for tensor in module.state_dict().values())
    require_memory(size, "the network", copies=1, do=do)
    return module


def first_mismatch(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str | None:
    """Describe the first mismatch, by tensor name, between a stored and an expected state; return None if all match.

    Tensors match if they have the same name and shape and either the same dtype or any two floating-point dtypes.
    `expected` may be on the meta device.
    """
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            return f"{name!r} is missing"
        if name not in expected:
            return f"{name!r} is unexpected"
        ours, theirs = expected[name], found[name]
        if ours.shape != theirs.shape:
            return f"{name!r} has shape {tuple(theirs.shape)} instead of {tuple(ours.shape)}"
        if theirs.dtype not in (_FLOATS if ours.is_floating_point() else (ours.dtype,)):
            return f"{name!r} has dtype {theirs.dtype} instead of {ours.dtype}"
    return None


@contextmanager
def untouched(network: nn.Module) -> Iterator[None]:
    """Switch to eval mode in this block; restore each module's training mode and all buffers afterwards."""
    modes = [(module, module.training) for module in network.modules()]
    # Lazy buffers have no value to restore: they get their shape in the block.
    buffers = [(buffer, buffer.clone()) for buffer in network.buffers() if not is_lazy(buffer)]
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for buffer, before in buffers:
            buffer.detach().copy_(before)


def zero_sample(network: nn.Module, sample_shape: Sequence[int]) -> Tensor:
    """Return a batch of one sample of zeros, with the network's dtype and on its device.

    Raises InputError if the sample does not fit in the available memory, because a broken file may declare any shape.
    """
    require_memory(_FLOAT_BYTES * math.prod(sample_shape), _sample(sample_shape), copies=1, do=_SMALLER)
    like = _like(network)
    return torch.zeros((1, *sample_shape), dtype=like.dtype, device=like.device)


def _like(network: nn.Module) -> Tensor:
    """Return a tensor with the network's dtype and device."""
    tensors = chain(network.parameters(), network.buffers())
    return next((tensor for tensor in tensors if tensor.is_floating_point()), torch.empty(0))


def _sample(shape: Sequence[int]) -> str:
    return f"a sample of shape {tuple(shape)}"


@contextmanager
def _within_64_bits(what: str, do: str) -> Iterator[None]:
    """Raise InputError if a size, or a product of sizes, in this block exceeds 64 bits."""
    try:
        yield
    # torch has no dedicated error for this.
    except (RuntimeError, TypeError, OverflowError) as error:
        if "verflow" not in str(error):
            raise
        raise TooLargeError(f"{what} does not fit in memory: {do}") from None


def _is_leaf(module: nn.Module) -> bool:
    return next(module.children(), None) is None


def _tensor(value: Any) -> Tensor:
    """Return the value itself or the first tensor in nested tuples (as from recurrent layers), or an empty tensor."""
    while isinstance(value, tuple | list) and value:
        value = value[0]
    return value if isinstance(value, Tensor) else torch.empty(0)


def _flops(module: nn.Module, inputs: Tensor, output: Tensor) -> int:
    # Each weight takes part in one multiply-add per position of the output or, if transposed, of the input.
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
    """Describe a layer in words, or by its class name if its kind is unknown."""
    if isinstance(module, _CONVOLUTIONS + _TRANSPOSED):
        return _convolution_words(module)
    if isinstance(module, nn.Linear):
        scale = getattr(module, "scale", 1)
        return f"linear, {module.in_features} to {module.out_features}" + (f", times {scale:.3g}" if scale != 1 else "")
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
    if isinstance(module, WhitenedOutput):
        return "whitening"
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
