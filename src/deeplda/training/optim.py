"""Optimisers and learning-rate schedules."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from deeplda.training.config import FitConfig, LoopConfig

# A group of parameters with options, as torch's optimisers take them.
ParameterGroup = dict[str, Any]

# One-cycle: the fraction of the steps in which the rate rises, and the fraction of the peak rate at which it starts.
_RISING = 0.25
_START = 0.1

_FILTER_MOMENTUM = 0.6
# Three steps of x -> a x + b x^3 + c x^5 bring singular values from 0.1..1 to about 1.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_QUINTIC_STEPS = 3
# Avoids a division by zero for a zero matrix.
_TINY = 1e-7


def learning_rate(config: LoopConfig, step: int, steps_per_epoch: int) -> float:
    """Return the learning rate of a step, where steps are counted from 0 over the whole run.

    It depends only on the step, so there is nothing to save or restore. "halving", the paper's schedule, halves the
    rate every `halve_every` epochs. "one-cycle" raises it linearly from a tenth of the peak rate to the peak in the
    first quarter of all steps, then lowers it linearly to 0 at the end. "linear" lowers it linearly to 0 from the first
    step. In a run that was extended, each stretch has the rates that a run of as many epochs has at these steps.
    """
    if config.schedule == "halving":
        return config.learning_rate * 0.5 ** (step // steps_per_epoch // config.halve_every)
    total = next(end for end in config.stretches if step < end * steps_per_epoch) * steps_per_epoch
    if config.schedule == "linear":
        return config.learning_rate * (1 - step / total)
    top = max(1, round(_RISING * total))
    if step < top:
        return config.learning_rate * (_START + (1 - _START) * step / top)
    return config.learning_rate * (total - step) / (total - top + 1)


def epochs_to_half_rate(config: LoopConfig) -> int:
    """Return the epochs until the rate has fallen to half its peak; 0 for "halving", which is not bound to an end.

    A schedule that ends at 0 brings much of its accuracy while the rate falls, so scores before that say little about
    the end. If a run was extended, this is an epoch of its last stretch.
    """
    share = {"one-cycle": (1 + _RISING) / 2, "linear": 0.5, "halving": 0.0}[config.schedule]
    *before, end = config.stretches
    return max(math.ceil(share * end), *before[-1:], 0)


def build_optimizer(
    config: FitConfig, trained: nn.Module, output: Collection[nn.Parameter] = ()
) -> torch.optim.Optimizer:
    """Build the optimiser; each parameter group stores its peak learning rate as "initial_lr".

    Args:
        output: the parameters of the output layer, for `head_learning_rate`.
    """
    rate, momentum, decay = config.learning_rate, config.momentum, config.weight_decay
    own = _groups_with_own_rate(config, trained, output)
    optimizer: torch.optim.Optimizer
    if config.optimizer == "muon":
        optimizer = Muon(trained, rate, config.filter_learning_rate, momentum, decay, own)
    else:
        groups = [{"params": _others(trained.parameters(), own)}, *own]
        # On the CPU, the fused update is faster for small layers. It ignores memory formats, so it would mix up the
        # elements of filters (4-D) whose gradient or momentum has another format than they have.
        fused = all(parameter.device.type == "cpu" and parameter.ndim <= 2 for parameter in trained.parameters())
        optimizer = torch.optim.SGD(groups, rate, momentum, weight_decay=decay, nesterov=True, fused=fused)
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    return optimizer


def _groups_with_own_rate(
    config: FitConfig, trained: nn.Module, output: Collection[nn.Parameter]
) -> list[ParameterGroup]:
    """Return the parameters that have a learning rate of their own, as groups for an optimiser.

    The decay of a step, the rate times the weight decay, is the same as for all other parameters, so that the rates can
    be chosen on their own.
    """
    at_output = set(output)
    biases = [p for name, p in trained.named_parameters() if name.endswith("bias") and p not in at_output]
    chosen = ((config.bias_learning_rate, biases), (config.head_learning_rate, list(output)))
    return [
        {"params": parameters, "lr": rate, "weight_decay": config.weight_decay * (config.learning_rate / rate)}
        for rate, parameters in chosen
        if rate is not None and parameters
    ]


def _others(parameters: Iterable[nn.Parameter], groups: Iterable[ParameterGroup]) -> list[nn.Parameter]:
    """Return the parameters that are in none of the groups."""
    taken = {parameter for group in groups for parameter in group["params"]}
    return [parameter for parameter in parameters if parameter not in taken]


class Muon(torch.optim.Optimizer):
    """Orthogonalised momentum for convolution filters, and Nesterov SGD for all other parameters.

    Use it for networks in which batch normalisation follows each convolution, so that the scale of the filters does not
    matter. The filters of a convolution, flattened to a matrix (outputs, inputs x kernel), are rescaled to a mean
    square norm of 1 and updated along the orthogonal matrix nearest to their Nesterov momentum, so that all directions
    of the matrix learn at the same rate. `torch.optim.Muon` supports only matrices and does not fix the norm. All other
    parameters are updated as by `torch.optim.SGD` with Nesterov momentum and weight decay.

    Args:
        lr: learning rate for all parameters except the filters.
        filter_lr: learning rate for the filters, which are the weights of all `nn.Conv2d` modules.
        own: groups of parameters, not treated as filters, with their own "lr" and "weight_decay".
    """

    def __init__(
        self,
        network: nn.Module,
        lr: float,
        filter_lr: float,
        momentum: float,
        weight_decay: float,
        own: Sequence[ParameterGroup] = (),
    ) -> None:
        trained = _others((parameter for parameter in network.parameters() if parameter.requires_grad), own)
        filters = {module.weight for module in network.modules() if isinstance(module, nn.Conv2d)}
        groups: list[ParameterGroup] = [
            {"params": [p for p in trained if p in filters], "lr": filter_lr, "filters": True},
            {"params": [p for p in trained if p not in filters], "lr": lr},
            *own,
        ]
        defaults = {"momentum": momentum, "weight_decay": weight_decay, "filters": False}
        super().__init__([group for group in groups if group["params"]], defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # no closure, no loss
        """Update every parameter that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if group["filters"]:
                    _filter_step(parameter, parameter.grad, state, group["lr"])
                else:
                    gradient = parameter.grad.add(parameter, alpha=group["weight_decay"])
                    parameter.sub_(_nesterov(gradient, state, group["momentum"]), alpha=group["lr"])


def _filter_step(filters: Tensor, gradient: Tensor, state: dict[str, Tensor], lr: float) -> None:
    direction = _nesterov(gradient, state, _FILTER_MOMENTUM)
    filters.mul_(len(filters) ** 0.5 / filters.norm().clamp(min=_TINY))
    filters.sub_(orthogonalised(direction.flatten(1)).view_as(filters), alpha=lr)


def _nesterov(gradient: Tensor, state: dict[str, Tensor], momentum: float) -> Tensor:
    if "momentum_buffer" not in state:
        state["momentum_buffer"] = torch.zeros_like(gradient)
    buffer = state["momentum_buffer"].mul_(momentum).add_(gradient)
    return gradient.add(buffer, alpha=momentum)


def orthogonalised(matrix: Tensor) -> Tensor:
    """Return the matrix with its singular values brought close to 1 by polynomials, without a decomposition.

    This is the Newton-Schulz iteration of Jordan et al. (2024). Its coefficients raise small singular values quickly
    and bring them to between 0.7 and 1.2 rather than exactly to 1; values far below the largest stay smaller.
    """
    a, b, c = _QUINTIC
    tall = matrix.shape[0] > matrix.shape[1]
    wide: Tensor = (matrix.T if tall else matrix) / (matrix.norm() + _TINY)
    for _ in range(_QUINTIC_STEPS):
        square = wide @ wide.T
        wide = a * wide + (b * square + c * square @ square) @ wide
    return wide.T if tall else wide
