"""Compute the exact gradient of a large batch in the memory of a small one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain, pairwise
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from deeplda.errors import got

Criterion = Callable[[Tensor, Any], Tensor]


def large_batch_backward(
    network: nn.Module, criterion: Criterion, inputs: Tensor, labels: Any, *, chunk_size: int
) -> Tensor:
    """Run `loss = criterion(network(inputs), labels); loss.backward()` with the graph of one chunk at a time.

    Gradients are added to `.grad`, as `backward` does; the loss is returned as a detached 0-d tensor. The cost is a
    second forward pass through the network. Without DistributedDataParallel, a batch that fits in one chunk makes this
    an ordinary step.

    - If the network treats samples independently, the gradient is exactly the gradient of the whole batch. Batch
      normalisation instead takes its statistics from each chunk (ghost batch normalisation), as if the network were
      trained with batches of that size.
    - Dropout masks and other draws from PyTorch's default random number generators are the same in both passes, and the
      generators end in the same state as after one pass. Draws from other generators are not replayed.
    - Buffers, such as running means, end in the same state as after one pass over the chunks, and each chunk sees the
      same buffers in both passes. A buffer that the network creates or reshapes during a pass is not restored before
      the second.
    - Under DistributedDataParallel, gradients are exchanged once, with the last chunk. Ranks may have different
      numbers of chunks, unless their network has SyncBatchNorm, which communicates in every pass.
    - If the caller uses autocast, the network and the loss run under it but the backward passes do not, as PyTorch
      recommends.

    Args:
        network: called with some rows of `inputs`; returns a tensor with the same number of rows.
        criterion: any loss that returns one number; it is called once, as `criterion(features, labels)`, with all
            features.
        inputs: (n, ...), one row per sample.
        labels: passed to the criterion unchanged.
        chunk_size: the largest number of samples per chunk; chunk sizes differ by at most one.

    Raises ValueError or TypeError if an argument is invalid, and any error that the network or the criterion raises.
    """
    _check(network, inputs, chunk_size)
    chunks = _chunks(len(inputs), chunk_size)
    without_exchange = getattr(network, "no_sync", None)
    # Other ranks may have more chunks, and all ranks must communicate in the same order.
    if len(chunks) == 1 and without_exchange is None:
        return _backward_of_loss(criterion, _run(network, inputs), labels)
    buffers, random = _Buffers(network), _Random(network, inputs)
    states, parts = [], []
    with torch.no_grad(), buffers.remembered():
        for chunk in chunks:
            states.append(random.state())
            parts.append(_run(network, inputs[chunk]))
    features = torch.cat(parts).requires_grad_()
    loss = _backward_of_loss(criterion, features, labels)
    gradient = torch.zeros_like(features) if features.grad is None else features.grad
    buffers.restore()
    with random.kept():
        for chunk, state in zip(chunks, states, strict=True):
            random.set(state)
            with nullcontext() if without_exchange is None or chunk is chunks[-1] else without_exchange():
                part = _run(network, inputs[chunk])
                # The features of a frozen network have no gradient, although its criterion may have parameters.
                if part.requires_grad:
                    _backward(part, gradient[chunk])
    return loss


def _check(network: nn.Module, inputs: Tensor, chunk_size: object) -> None:
    if not isinstance(network, nn.Module):
        raise TypeError(
            got(
                f"network is of type {type(network).__name__}",
                need="an nn.Module",
                do="wrap it in a module, or apply it to `inputs` beforehand",
            )
        )
    if not isinstance(inputs, Tensor):
        raise TypeError(
            got(f"inputs is of type {type(inputs).__name__}", need="a tensor", do="pass one row per sample")
        )
    if inputs.ndim == 0:
        raise ValueError(got("inputs has shape ()", need="(n, ...)", do="pass one row per sample"))
    if not isinstance(chunk_size, Integral) or chunk_size < 1:
        raise ValueError(
            got(f"chunk_size is {chunk_size}", need="an integer >= 1", do="use as many samples as fit in memory")
        )


def _chunks(n: int, chunk_size: int) -> list[slice]:
    """Split n rows into chunks of nearly equal size, at most `chunk_size`.

    With unequal sizes, the last chunk could be a single row, on which batch normalisation fails.
    """
    count = max(1, -(-n // chunk_size))
    return [slice(start, stop) for start, stop in pairwise(n * i // count for i in range(count + 1))]


def _run(network: nn.Module, inputs: Tensor) -> Tensor:
    features = network(inputs)
    # Older PyTorch versions cache the weights that autocast rounds without a graph, and reuse them even where a graph
    # is needed (pytorch#158232).
    torch.clear_autocast_cache()
    if not isinstance(features, Tensor):
        raise TypeError(
            got(
                f"the network returned an object of type {type(features).__name__}",
                need="a tensor",
                do="pass a network that returns features",
            )
        )
    if features.ndim == 0 or len(features) != len(inputs):
        raise ValueError(
            got(
                f"the network returned shape {tuple(features.shape)} for {len(inputs)} samples",
                need="one row per sample",
                do="pass a network that returns one row per sample",
            )
        )
    return features


def _backward_of_loss(criterion: Criterion, features: Tensor, labels: Any) -> Tensor:
    """Compute and return the loss, after propagating its gradient to the features and the criterion's parameters."""
    loss = criterion(features, labels)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        shape = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else None
        raise ValueError(
            got(
                f"the criterion returned {shape or f'an object of type {type(loss).__name__}'}",
                need="a tensor with one element",
                do='use reduction="mean", for example',
            )
        )
    if not loss.requires_grad:
        raise ValueError(
            got(
                "the loss does not require a gradient",
                need="a differentiable loss",
                do="call this outside torch.no_grad(), with a criterion that uses the features",
            )
        )
    _backward(loss, None)
    return loss.detach()


def _backward(output: Tensor, gradient: Tensor | None) -> None:
    with torch.autocast(output.device.type, enabled=False):
        torch.autograd.backward(output, gradient)


class _Buffers:
    """The buffers of a network, which are reset between the two passes to their values before the first pass."""

    def __init__(self, network: nn.Module) -> None:
        self._network: nn.Module = network.module if isinstance(network, DistributedDataParallel) else network
        self._found: dict[str, Tensor] | None = None

    @contextmanager
    def remembered(self) -> Iterator[None]:
        """Copy the buffers when the network is first called, after DistributedDataParallel has synchronised them."""
        handle = self._network.register_forward_pre_hook(self._remember)
        try:
            yield
        finally:
            handle.remove()

    def _remember(self, *_: Any) -> None:
        if self._found is None:
            self._found = {name: buffer.clone() for name, buffer in self._network.named_buffers()}

    @torch.no_grad()
    def restore(self) -> None:
        for name, buffer in self._network.named_buffers():
            found = (self._found or {}).get(name)
            if found is not None and found.shape == buffer.shape:
                buffer.copy_(found)


class _Random:
    """PyTorch's default random number generators for the CPU and every device that holds the network or its inputs."""

    def __init__(self, network: nn.Module, inputs: Tensor) -> None:
        tensors = chain([inputs], network.parameters(), network.buffers())
        self._devices = sorted({t.device for t in tensors if t.device.type != "cpu"}, key=str)

    def state(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.get_device_module(d).get_rng_state(*_index(d)) for d in self._devices)]

    def set(self, state: Sequence[Tensor]) -> None:
        torch.set_rng_state(state[0])
        for device, own in zip(self._devices, state[1:], strict=True):
            torch.get_device_module(device).set_rng_state(own, *_index(device))

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Restore the random number generators when the block ends."""
        state = self.state()
        try:
            yield
        finally:
            self.set(state)


def _index(device: torch.device) -> tuple[torch.device, ...]:
    """Return the arguments that select the device in its generator functions; the functions for MPS take none."""
    return () if device.type == "mps" else (device,)
