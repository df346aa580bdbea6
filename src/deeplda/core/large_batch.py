"""The gradient of a large batch in the memory of a small one."""

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
    """What `loss = criterion(network(inputs), labels); loss.backward()` does, with the graph of one chunk at a time.

    Gradients are added to `.grad` as backward does; the loss is returned as a detached 0-d tensor. The price is a
    second forward run of the network. Without ranks, a chunk that holds the whole batch is a plain step.

    - Samples that the network treats one by one get exactly the gradient of the whole batch. Batch normalisation
      takes its statistics from each chunk instead (ghost batch normalisation), as a network trained with batches of
      the size of a chunk does.
    - Dropout masks and other draws from PyTorch's default generators are the same in both runs, and the generators
      end where one run leaves them. Draws from other generators are not replayed.
    - Buffers, such as running means, end as after one run over the chunks, and each chunk meets the same in both runs;
      but one that the network makes or reshapes on the way is met by the second run as the first left it.
    - Under DistributedDataParallel gradients are exchanged once, with the last chunk; ranks may have different
      numbers of chunks, unless their network has SyncBatchNorm, which exchanges in every run.
    - Under the caller's autocast the network and the loss run with it and the backward passes without, as PyTorch
      advises.

    Args:
        network: called with a part of `inputs`, gives a tensor with as many rows.
        criterion: `criterion(features, labels)`, any loss that is one number; called once, with all features.
        inputs: (n, ...), one row a sample.
        labels: passed on to the criterion.
        chunk_size: most samples of a chunk; the chunks are of equal size, but for one sample.

    Raises ValueError or TypeError for arguments that make no sense, and whatever network and criterion raise.
    """
    _check(network, inputs, chunk_size)
    chunks = _chunks(len(inputs), chunk_size)
    without_exchange = getattr(network, "no_sync", None)
    # Other ranks may have more chunks, and all must exchange in the same order.
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
                # A frozen network has none, though its criterion may.
                if part.requires_grad:
                    _backward(part, gradient[chunk])
    return loss


def _check(network: nn.Module, inputs: Tensor, chunk_size: object) -> None:
    if not isinstance(network, nn.Module):
        raise TypeError(
            got(
                f"network is a {type(network).__name__}",
                need="an nn.Module",
                do="put what comes before the network into `inputs`, or into a module of its own",
            )
        )
    if not isinstance(inputs, Tensor):
        raise TypeError(got(f"inputs is a {type(inputs).__name__}", need="a tensor", do="pass one row a sample"))
    if inputs.ndim == 0:
        raise ValueError(got("inputs has shape ()", need="(n, ...)", do="pass one row a sample"))
    if not isinstance(chunk_size, Integral) or chunk_size < 1:
        raise ValueError(
            got(f"chunk_size is {chunk_size}", need="a whole number of 1 or more", do="take what fits into memory")
        )


def _chunks(n: int, chunk_size: int) -> list[slice]:
    """The rows in parts of at most `chunk_size`, as equal as can be: a last part of one row would be no batch."""
    count = max(1, -(-n // chunk_size))
    return [slice(start, stop) for start, stop in pairwise(n * i // count for i in range(count + 1))]


def _run(network: nn.Module, inputs: Tensor) -> Tensor:
    features = network(inputs)
    # Older PyTorch keeps weights that autocast has rounded without a graph and uses them with one (pytorch#158232).
    torch.clear_autocast_cache()
    if not isinstance(features, Tensor):
        raise TypeError(
            got(
                f"the network gave a {type(features).__name__}",
                need="a tensor",
                do="pass a network that gives features",
            )
        )
    if features.ndim == 0 or len(features) != len(inputs):
        raise ValueError(
            got(
                f"the network gave shape {tuple(features.shape)} for {len(inputs)} samples",
                need="one row a sample",
                do="pass a network that treats its samples one by one",
            )
        )
    return features


def _backward_of_loss(criterion: Criterion, features: Tensor, labels: Any) -> Tensor:
    """Value of the loss, whose gradient has gone back to the features and beyond."""
    loss = criterion(features, labels)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        raise ValueError(
            got(f"the criterion gave {what}", need="one number", do='use its reduction="mean" or its like')
        )
    if not loss.requires_grad:
        raise ValueError(
            got(
                "the loss has no gradient",
                need="one that can be differentiated",
                do="call this outside torch.no_grad(), with a criterion that uses the features",
            )
        )
    _backward(loss, None)
    return loss.detach()


def _backward(output: Tensor, gradient: Tensor | None) -> None:
    with torch.autocast(output.device.type, enabled=False):
        torch.autograd.backward(output, gradient)


class _Buffers:
    """The buffers of a network, to be set back to what the first run found."""

    def __init__(self, network: nn.Module) -> None:
        self._network: nn.Module = network.module if isinstance(network, DistributedDataParallel) else network
        self._found: dict[str, Tensor] | None = None

    @contextmanager
    def remembered(self) -> Iterator[None]:
        """Note them when the network is first called. DistributedDataParallel makes them alike on all ranks before."""
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
    """PyTorch's default generators of the CPU and of every device that the network or its input is on."""

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
        """Afterwards they are as before."""
        state = self.state()
        try:
            yield
        finally:
            self.set(state)


def _index(device: torch.device) -> tuple[torch.device, ...]:
    """The device as an argument of its generator's functions, which those of MPS do not have."""
    return () if device.type == "mps" else (device,)
