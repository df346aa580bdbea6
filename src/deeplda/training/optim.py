"""Optimisers and learning-rate schedules."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from deeplda.training.config import FitConfig, LoopConfig

# One-cycle: the share of the steps in which the rate rises, and the share of the highest rate at which it starts.
_RISING = 0.25
_START = 0.1

_FILTER_MOMENTUM = 0.6
# Three steps of x -> a x + b x^3 + c x^5 bring singular values from 0.1..1 to about 1.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_QUINTIC_STEPS = 3
# Keeps the norm of a zero matrix from being divided by.
_TINY = 1e-7


def learning_rate(config: LoopConfig, step: int, steps_per_epoch: int) -> float:
    """Return the learning rate of a step, counted from 0 over the whole run.

    It depends on the step alone, so there is nothing to save or restore. "halving": the paper's, halved every
    `halve_every` epochs. "one-cycle": linear from a tenth of the rate up to it in the first quarter of all steps, then
    linear down to 0 at the end. "linear": linear down to 0 from the first step.
    """
    if config.schedule == "halving":
        return config.learning_rate * 0.5 ** (step // steps_per_epoch // config.halve_every)
    total = config.epochs * steps_per_epoch
    if config.schedule == "linear":
        return config.learning_rate * (1 - step / total)
    top = max(1, round(_RISING * total))
    if step < top:
        return config.learning_rate * (_START + (1 - _START) * step / top)
    return config.learning_rate * (total - step) / (total - top + 1)


def build_optimizer(config: FitConfig, trained: nn.Module) -> torch.optim.Optimizer:
    """Build the optimiser; each of its groups has its highest learning rate as "initial_lr"."""
    rate, momentum, decay = config.learning_rate, config.momentum, config.weight_decay
    optimizer = (
        Muon(trained, rate, config.filter_learning_rate, momentum, decay)
        if config.optimizer == "muon"
        else torch.optim.SGD(trained.parameters(), rate, momentum, weight_decay=decay, nesterov=True)
    )
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    return optimizer


class Muon(torch.optim.Optimizer):
    """Steps along orthogonalised momentum for convolution filters, Nesterov SGD for all other parameters.

    Made for networks whose convolutions are followed by batch normalisation, so that the scale of the filters is free.
    The filters of a convolution, flattened to a matrix (outputs, inputs x kernel), are kept at a mean square norm of 1
    and step along the orthogonal matrix nearest to their Nesterov momentum: all directions of the matrix learn at the
    same rate. `torch.optim.Muon` supports matrices only and does not fix the norm. All other parameters take the steps
    of `torch.optim.SGD` with Nesterov momentum and weight decay.

    Args:
        lr: learning rate of everything but the filters.
        filter_lr: learning rate of the filters, the weights of all `nn.Conv2d`.
    """

    def __init__(self, network: nn.Module, lr: float, filter_lr: float, momentum: float, weight_decay: float) -> None:
        trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        filters = {module.weight for module in network.modules() if isinstance(module, nn.Conv2d)}
        groups: list[dict[str, object]] = [
            {"params": [p for p in trained if p in filters], "lr": filter_lr, "filters": True},
            {"params": [p for p in trained if p not in filters], "lr": lr, "filters": False},
        ]
        defaults = {"momentum": momentum, "decay": weight_decay}
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
                    gradient = parameter.grad.add(parameter, alpha=group["decay"])
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
    """Return the matrix with all its singular values brought near 1, by polynomials and without a decomposition.

    Jordan et al. (2024): a Newton-Schulz iteration whose coefficients lift small singular values quickly and end within
    0.7 to 1.2 rather than at 1; those far below the largest stay smaller.
    """
    a, b, c = _QUINTIC
    tall = matrix.shape[0] > matrix.shape[1]
    wide: Tensor = (matrix.T if tall else matrix) / (matrix.norm() + _TINY)
    for _ in range(_QUINTIC_STEPS):
        square = wide @ wide.T
        wide = a * wide + (b * square + c * square @ square) @ wide
    return wide.T if tall else wide
