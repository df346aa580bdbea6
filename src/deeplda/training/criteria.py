"""The criteria that the loop minimises: LDA losses, cross-entropy, generalised cross-entropy, and their sum."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, nll_loss

from deeplda.losses import DeepLDALoss
from deeplda.subclasses import SubclassMap
from deeplda.training.config import LDA_OBJECTIVES, SOFTMAX_OBJECTIVES, FitConfig
from deeplda.training.parallel import ALONE, World


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


def build_criterion(config: FitConfig, world: World = ALONE, subclasses: SubclassMap | None = None) -> nn.Module:
    """Build the criterion of the objective, for labels that are classes or these `subclasses`.

    Class weights are not part of it: they are weights of the samples.
    """
    lda = _lda_loss(config, subclasses) if config.objective in LDA_OBJECTIVES else None
    if config.objective not in SOFTMAX_OBJECTIVES:
        assert lda is not None
        return lda
    if config.objective == "gce":
        return GeneralisedCrossEntropy(config.gce_q, world)
    entropy = CrossEntropy(config.label_smoothing, world)
    return entropy if lda is None else JointLoss(entropy, lda, config.lda_weight)


def lda_part(criterion: nn.Module) -> DeepLDALoss | None:
    """Return the LDA loss of a criterion, or None if it has none."""
    found = criterion.lda if isinstance(criterion, JointLoss) else criterion
    return found if isinstance(found, DeepLDALoss) else None


def _lda_loss(config: FitConfig, subclasses: SubclassMap | None) -> DeepLDALoss:
    return DeepLDALoss(
        config.statistic,
        alpha=config.alpha,
        lam=config.lam,
        epsilon=config.epsilon,
        scatter=config.scatter,
        parents=subclasses.parents if subclasses and config.subclass_between == "classes" else None,
    )
