"""The criteria that the loop minimises: LDA losses, cross-entropy, generalised cross-entropy, sums, and your own."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, nll_loss

from deeplda.core.options import Statistic
from deeplda.errors import FailedError, InputError, TrainingError
from deeplda.losses import DeepLDALoss
from deeplda.subclasses import SubclassMap
from deeplda.training.config import LDA_OBJECTIVES, SOFTMAX_OBJECTIVES, FitConfig
from deeplda.training.parallel import ALONE, World
from deeplda.user_code import code_failure, find_callable, is_code, own_code

# Samples of each class in the batch on which your own code is tried.
_TRIED = 4


class SampleLoss(nn.Module, ABC):
    """The weighted mean of the losses of single samples, over a batch that may be split among processes.

    Averaging the means of the processes would be wrong if they have unequal numbers of samples. The value is the loss
    of the whole batch. The gradient with respect to a process's own outputs is multiplied by the number of processes,
    because `DistributedDataParallel` averages over them.

    Args:
        world: the processes that share each batch.
    """

    def __init__(self, world: World = ALONE) -> None:
        super().__init__()
        self.world = world

    @abstractmethod
    def _losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each sample, (n,)."""

    def forward(self, outputs: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """Return the loss of outputs (n, C), the class scores, with labels (n,) and weights (n,), by default 1."""
        losses = self._losses(outputs, labels)
        weights = torch.ones_like(losses) if sample_weight is None else sample_weight.to(losses.dtype)
        own, weight = (weights * losses).sum(), weights.sum()
        if self.world.size == 1:
            return own / weight
        total, weight = self.world.total(torch.stack([own.detach(), weight]).double().cpu().numpy())
        scaled: Tensor = own * (self.world.size / float(weight))
        # The value covers all processes; the gradient covers only this process's samples.
        return scaled + (float(total / weight) - scaled.detach())


class CrossEntropy(SampleLoss):
    """Cross-entropy, -log p_y for the softmax p of the outputs, with label smoothing as in torch."""

    def __init__(self, label_smoothing: float = 0.0, world: World = ALONE) -> None:
        super().__init__(world)
        self.label_smoothing = label_smoothing

    def _losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(outputs, labels, reduction="none", label_smoothing=self.label_smoothing)


class GeneralisedCrossEntropy(SampleLoss):
    """Generalised cross-entropy, (1 - p_y^q) / q for the softmax p of the outputs (Zhang and Sabuncu, 2018).

    It approaches cross-entropy as q approaches 0, and equals 1 - p_y, half the mean absolute error, for q = 1. A sample
    whose label the network considers unlikely, such as a wrong label, has less influence than under cross-entropy.
    """

    def __init__(self, q: float, world: World = ALONE) -> None:
        super().__init__(world)
        self.q = q

    def _losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        # 1 - p^q = -expm1(q log p) is accurate for small q, and its gradient is finite even where p rounds to 0.
        powers = torch.expm1(self.q * outputs.log_softmax(1)) / self.q
        return nll_loss(powers, labels, reduction="none")


class JointLoss(nn.Module):
    """Cross-entropy plus `lda_weight` times an LDA loss of the same outputs, which are both scores and embedding."""

    def __init__(self, entropy: CrossEntropy, lda: DeepLDALoss, lda_weight: float) -> None:
        super().__init__()
        self.entropy, self.lda, self.lda_weight = entropy, lda, lda_weight

    def forward(self, outputs: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """Return the loss of outputs (n, C) with labels (n,) and weights (n,), by default 1."""
        entropy, lda = (part(outputs, labels, sample_weight) for part in (self.entropy, self.lda))
        loss: Tensor = entropy + self.lda_weight * lda
        return loss


class OwnLoss(nn.Module):
    """A loss of the user's, called as `function(outputs, labels)` on the embedding (n, d) and labels (n,) of a batch.

    Args:
        name: the name of its code, for messages.
    """

    def __init__(self, name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.name, self.function = name, function

    def forward(self, outputs: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """Return the loss, 0-d.

        Raises TrainingError if the user's code fails, and ValueError unless it returns a number with a gradient.
        """
        assert sample_weight is None, "the settings exclude weights"
        with own_code("objective", self.name, TrainingError):
            loss: object = self.function(outputs, labels)
        if not isinstance(loss, Tensor) or loss.ndim != 0 or (outputs.requires_grad and not loss.requires_grad):
            found = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"{type(loss).__name__}"
            if isinstance(loss, Tensor) and loss.ndim == 0:
                found = "a tensor without a gradient"
            raise ValueError(f"objective {self.name} returned {found}, need a 0-d tensor computed from the outputs")
        return loss


def build_criterion(
    config: FitConfig,
    world: World = ALONE,
    subclasses: SubclassMap | None = None,
    statistic: Callable[[Tensor], Tensor] | None = None,
) -> nn.Module:
    """Build the criterion of the objective, for labels that are classes or these `subclasses`.

    Class weights are not part of it: they are weights of the samples. If the objective or the statistic is the user's
    code, it is imported here, unless `statistic` is passed. Raises InputError if it is unsuitable.
    """
    if is_code(config.objective):
        return _own_loss(config.objective, world)
    lda = _lda_loss(config, subclasses, statistic) if config.objective in LDA_OBJECTIVES else None
    if config.objective not in SOFTMAX_OBJECTIVES:
        assert lda is not None
        return lda
    if config.objective == "gce":
        return GeneralisedCrossEntropy(config.gce_q, world)
    entropy = CrossEntropy(config.label_smoothing, world)
    return entropy if lda is None else JointLoss(entropy, lda, config.lda_weight)


def try_own_code(config: FitConfig, classes: int, outputs: int) -> None:
    """Call the user's objective or statistic, if there is one, on random outputs, before anything is written.

    Raises InputError if it does not accept a batch of these sizes, or does not return a differentiable number.
    """
    if not (is_code(config.objective) or (config.objective in LDA_OBJECTIVES and is_code(config.statistic))):
        return
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(_TRIED * classes, outputs, generator=generator).requires_grad_()
    name = f"objective {config.objective}" if is_code(config.objective) else f"statistic {config.statistic}"
    try:
        loss = build_criterion(config).eval()(features, torch.arange(len(features)) % classes)
        if not loss.isfinite():
            raise ValueError(f"it returned {loss.item()} for random outputs, need a finite number")
        loss.backward()
    except InputError:
        raise
    except FailedError as error:
        raise InputError(str(error)) from error
    except (RuntimeError, TypeError, ValueError) as error:
        text = str(error)
        raise InputError(text if text.startswith(name) else f"{name} cannot be used: {text}") from error


def lda_part(criterion: nn.Module) -> DeepLDALoss | None:
    """Return the LDA loss of a criterion, or None if it has none."""
    found = criterion.lda if isinstance(criterion, JointLoss) else criterion
    return found if isinstance(found, DeepLDALoss) else None


def _lda_loss(
    config: FitConfig, subclasses: SubclassMap | None, statistic: Callable[[Tensor], Tensor] | None
) -> DeepLDALoss:
    if statistic is None and is_code(config.statistic):
        statistic = _own_statistic(config.statistic)
    return DeepLDALoss(
        cast("Statistic", config.statistic) if statistic is None else statistic,
        alpha=config.alpha,
        lam=config.lam,
        epsilon=config.epsilon,
        scatter=config.scatter,
        parents=subclasses.parents if subclasses and config.subclass_between == "classes" else None,
    )


def _own_statistic(name: str) -> Callable[[Tensor], Tensor]:
    function = find_callable(name, "statistic", "a function of the eigenvalues")

    # The name of the function is in messages; attributes of a callable object are not copied.
    @wraps(function, updated=())
    def statistic(eigenvalues: Tensor) -> Tensor:
        with own_code("statistic", name, TrainingError):
            value: Tensor = function(eigenvalues)
            return value

    return statistic


def _own_loss(name: str, world: World) -> OwnLoss:
    """Import a loss: a function or a module, or a class, which is called without arguments to make one."""
    if world.size > 1:
        what = f"objective {name} would see only its part of a batch in each of {world.size} processes"
        raise InputError(f"{what}: train in one process")
    found = find_callable(name, "objective", "a function of (outputs, labels)")
    if inspect.isclass(found):
        try:
            found = found()
        except TypeError as error:
            what = f"objective {name!r} cannot be created without arguments ({error})"
            raise InputError(f"{what}: name a function or an object instead") from error
        except Exception as error:
            raise InputError(code_failure("objective", name, error)) from error
    if isinstance(found, nn.Module) and any(parameter.requires_grad for parameter in found.parameters()):
        what = f"objective {name!r} has parameters of its own, which would not be trained"
        raise InputError(f"{what}: move them to the network, as its last layer")
    return OwnLoss(name, found)
