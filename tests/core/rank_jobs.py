"""The jobs that tests run on each rank, all at the same time. Arguments and results are NumPy arrays."""

from __future__ import annotations

import warnings
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from deeplda import DeepLDALoss
from deeplda.core.large_batch import large_batch_backward
from deeplda.networks import WhitenedOutput
from deeplda.training.config import FitConfig, RunConfig
from deeplda.training.criteria import build_criterion
from deeplda.training.parallel import World
from deeplda.training.pipeline import run_to_end
from deeplda.training.progress import Progress

Array = NDArray[Any]
EXCHANGES = ("all_gather", "all_reduce", "broadcast")


def mixed(v: torch.Tensor) -> torch.Tensor:
    """A statistic that increases in small eigenvalues and decreases in those above 1."""
    return (v - 0.5 * v.square()).sum()


def loss(h: Array, y: Array, options: dict[str, Any], weights: Array | None = None) -> tuple[float, Array, Array]:
    """Return the value, the gradient at the rank's features, and the eigenvalues in the diagnostics."""
    criterion = DeepLDALoss(**options)
    features = torch.from_numpy(h).requires_grad_()
    value = criterion(features, torch.from_numpy(y), None if weights is None else torch.from_numpy(weights))
    value.backward()
    return value.item(), features.grad.numpy(), criterion.diagnostics.eigenvalues.numpy()


def figures(h: Array, y: Array) -> dict[str, int]:
    criterion = DeepLDALoss()
    criterion(torch.from_numpy(h), torch.from_numpy(y))
    found = criterion.diagnostics
    return {name: getattr(found, name) for name in ("selected", "classes", "smallest_class", "dead_dims")}


def loss_of_anything(features: Any, labels: Any, options: dict[str, Any]) -> float:
    """Return the value for arguments that need not be arrays."""
    as_given = [torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in (features, labels)]
    return DeepLDALoss(**options)(*as_given).item()


def warnings_of_loss(h: Array, y: Array) -> list[str]:
    criterion = DeepLDALoss()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            criterion(torch.from_numpy(h), torch.from_numpy(y))
    return [str(warning.message) for warning in caught]


def loss_in_eval_mode(h: Array, y: Array) -> float:
    return DeepLDALoss().eval()(torch.from_numpy(h), torch.from_numpy(y)).item()


def loss_of_a_subgroup(members: list[int], h: Array, y: Array) -> tuple[float, Array]:
    """Return value and gradient in a group of `members`; on other ranks this is an error."""
    group = dist.new_group(members)
    features = torch.from_numpy(h).requires_grad_()
    value = DeepLDALoss(process_group=group)(features, torch.from_numpy(y))
    value.backward()
    return value.item(), features.grad.numpy()


def error_in_a_subgroup(members: list[int], h: Array, y: Array) -> None:
    group = dist.new_group(members)
    if dist.get_rank() in members:
        DeepLDALoss(process_group=group)(torch.from_numpy(h), torch.from_numpy(y))


def numbers_exchanged(h: Array, y: Array, options: dict[str, Any]) -> list[int]:
    """Count the numbers that the rank sends in each exchange of a forward and backward pass."""
    sent, originals = [], {name: getattr(dist, name) for name in EXCHANGES}

    def counting(name):
        def exchange(*tensors, **kwargs):
            sent.append(tensors[-1].numel())
            return originals[name](*tensors, **kwargs)

        return exchange

    for name in EXCHANGES:
        setattr(dist, name, counting(name))
    try:
        loss(h, y, options)
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)
    return sent


def network(seed: int = 0, *, dropout: float = 0.0, normalised: bool = False) -> nn.Module:
    """Build a small MLP in float64; with `normalised` it has batch normalisation."""
    torch.manual_seed(seed)
    layers = [nn.Linear(6, 16), nn.BatchNorm1d(16) if normalised else nn.Identity(), nn.Tanh()]
    return nn.Sequential(*layers, nn.Dropout(dropout), nn.Linear(16, 4)).double()


def plain_and_chunked(batches: list[tuple[Array, Array]]) -> list[Array]:
    """Return the state after a step on each batch, with plain DDP and with `large_batch_backward` in one chunk.

    Buffers are a rank's own between the steps, and rank 0's during them.
    """
    states = []
    for chunked in (False, True):
        model = DistributedDataParallel(network(normalised=True, dropout=0.2))
        torch.manual_seed(dist.get_rank())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for h, y in batches:
            inputs, labels = torch.from_numpy(h), torch.from_numpy(y)
            optimizer.zero_grad()
            if chunked:
                large_batch_backward(model, DeepLDALoss(), inputs, labels, chunk_size=len(h))
            else:
                DeepLDALoss()(model(inputs), labels).backward()
            optimizer.step()
        states.append(np.concatenate([value.double().flatten().numpy() for value in model.state_dict().values()]))
    return states


def train(batches: list[tuple[Array, Array]], chunk_size: int | None, options: dict[str, Any]) -> tuple[Array, float]:
    """Return the parameters as one vector after a step on each batch, and the last loss; with DDP if ranks exist."""
    model = network()
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    criterion = DeepLDALoss(**options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    for h, y in batches:
        inputs, labels = torch.from_numpy(h), torch.from_numpy(y)
        optimizer.zero_grad()
        if chunk_size is None:
            value = criterion(model(inputs), labels)
            value.backward()
        else:
            value = large_batch_backward(model, criterion, inputs, labels, chunk_size=chunk_size)
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach().numpy(), value.item()


def gradient_exchanges(h: Array, y: Array, chunk_size: int) -> int:
    """Count how often DDP exchanges gradients in one `large_batch_backward`."""
    model, exchanged = DistributedDataParallel(network()), []

    def counted(_, bucket):
        exchanged.append(bucket.index())
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    model.register_comm_hook(None, counted)
    large_batch_backward(model, DeepLDALoss(), torch.from_numpy(h), torch.from_numpy(y), chunk_size=chunk_size)
    return len(exchanged)


def whitened(h: Array, y: Array, alpha: float) -> tuple[float, Array, list[Array]]:
    """Return the loss of whitened outputs, its gradient at the rank's rows, and the running statistics."""
    layer, rows = WhitenedOutput(h.shape[1]).double(), torch.from_numpy(h).requires_grad_()
    value = DeepLDALoss(alpha=alpha)(layer(rows), torch.from_numpy(y))
    value.backward()
    return value.item(), rows.grad.numpy(), [layer.mean.numpy(), layer.covariance.numpy()]


def train_whitened(batches: list[tuple[Array, Array]]) -> Array:
    """Return the parameters after a step on each batch, of a network with whitened outputs; with DDP if ranks exist."""
    model = nn.Sequential(network(), WhitenedOutput(4).double())
    model = DistributedDataParallel(model) if dist.is_initialized() else model
    criterion, optimizer = DeepLDALoss(alpha=0.6), torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for h, y in batches:
        optimizer.zero_grad()
        criterion(model(torch.from_numpy(h)), torch.from_numpy(y)).backward()
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach().numpy()


def whitened_alone(h: Array) -> Array:
    layer = WhitenedOutput(h.shape[1]).double()
    layer.local = True
    return layer(torch.from_numpy(h)).numpy()


def criterion(
    settings: dict[str, Any], rank: int, outputs: Array, labels: Array, weights: Array | None
) -> tuple[float, Array]:
    """Return the value and the gradient at the rank's outputs of the criterion that the loop would build."""
    built = build_criterion(FitConfig(**settings), World(rank, dist.get_world_size())).double()
    scores = torch.from_numpy(outputs).requires_grad_()
    value = built(scores, torch.from_numpy(labels), None if weights is None else torch.from_numpy(weights))
    value.backward()
    return value.item(), scores.grad.numpy()


def whole_run(config: RunConfig, folder: Path) -> None:
    """Train with the other ranks; the first one writes the run. Own code is in the parent of its folder."""
    with chdir(folder.parent):
        run_to_end(config, folder, Progress(), world=World(dist.get_rank(), dist.get_world_size()))
