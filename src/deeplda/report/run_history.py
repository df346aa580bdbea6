"""The metrics of a run in the form that the checks of `deeplda doctor` use."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist, median

from deeplda.training.config import LDA_OBJECTIVES, RunConfig
from deeplda.training.metrics import EpochRow, Row, Scores, SummaryRow
from deeplda.user_code import is_code

_FEWEST_EPOCHS = 3  # With fewer, there is no trend.


@dataclass(frozen=True)
class RunHistory:
    """The rows of a run's metrics.jsonl, its settings, and quantities derived from them."""

    rows: Sequence[Row]
    config: RunConfig

    @cached_property
    def epochs(self) -> list[EpochRow]:
        return [row for row in self.rows if isinstance(row, EpochRow)]

    @cached_property
    def summary(self) -> SummaryRow | None:
        return next((row for row in self.rows if isinstance(row, SummaryRow)), None)

    @cached_property
    def classes(self) -> int | None:
        """Number of classes in the data; None if the metrics do not contain it yet."""
        if self.summary and self.summary.class_names:
            return len(self.summary.class_names)
        return len(self.validation[0].confusion) if self.validation else None

    @property
    def steps(self) -> int | None:
        """Total number of optimiser steps; None for old runs, which did not log it."""
        known = all("steps" in row.model_fields_set for row in self.epochs)
        return sum(row.steps for row in self.epochs) if known else None

    @property
    def discriminant(self) -> bool:
        """Whether the objective has an LDA loss, unlike (generalised) cross-entropy."""
        return self.config.objective in LDA_OBJECTIVES and all(row.eigenvalues is not None for row in self.epochs)

    @property
    def is_entropy(self) -> bool:
        """Whether the loss is (generalised) cross-entropy, which tells the probability of the true class."""
        return not self.discriminant and not is_code(self.config.objective)

    @property
    def groups(self) -> int | None:
        """Number of groups that the objective separates: subclasses if their number is fixed, otherwise classes."""
        each = self.config.subclasses
        return self.classes * each if self.classes and isinstance(each, int) else self.classes

    @cached_property
    def eigenvalues(self) -> list[list[float]]:
        """Ascending eigenvalues of each epoch's last batch; empty for cross-entropy."""
        return [row.eigenvalues for row in self.epochs if row.eigenvalues is not None] if self.discriminant else []

    @cached_property
    def scored_epochs(self) -> list[int]:
        """The epochs, counted from 1, after which the validation set was scored."""
        return [row.epoch for row in self.epochs if isinstance(row.validation, Scores)]

    @cached_property
    def validation(self) -> list[Scores]:
        """Validation scores for each of the `scored_epochs`."""
        return [row.validation for row in self.epochs if isinstance(row.validation, Scores)]

    @property
    def accuracies(self) -> list[float]:
        """Validation accuracy for each epoch that has one."""
        return [scores.accuracy for scores in self.validation]

    @property
    def class_counts(self) -> list[int]:
        """Number of training samples in each class; until the run is finished, the number of validation samples."""
        if self.summary and self.summary.train_counts:
            return self.summary.train_counts
        return self.validation[-1].class_sizes if self.validation else []

    @cached_property
    def final(self) -> tuple[str, Scores] | None:
        """The name of a split and its scores: the test set if it was scored, otherwise the last validation scores."""
        if self.summary and isinstance(self.summary.test, Scores):
            return "test", self.summary.test
        return ("validation", self.validation[-1]) if self.validation else None

    @cached_property
    def separation(self) -> list[float]:
        """Separation of the training batches in each epoch; higher is better.

        This is the mean of log(1 + v) over the eigenvalues v, or the negative loss without an LDA loss. The paper's own
        loss is not suitable: it jumps whenever the number of eigenvalues below its threshold changes, so it shows no
        trend.
        """
        if not self.discriminant:
            return [-row.loss for row in self.epochs]
        return [sum(math.log1p(max(v, 0.0)) for v in found) / len(found) for found in self.eigenvalues]

    @property
    def chance_loss(self) -> float:
        """The loss of guessing among the groups; only for cross-entropy and generalised cross-entropy."""
        chance, q = math.log(self.groups or 2), self.config.gce_q
        return -math.expm1(-q * chance) / q if self.config.objective == "gce" else chance

    def probability(self, loss: float) -> float:
        """Return the probability of the true class with which every sample would have this loss.

        Like `chance_loss`, this is only for cross-entropy and generalised cross-entropy.
        """
        loss, q = max(loss, 0.0), self.config.gce_q
        return max(1 - q * loss, 0.0) ** (1 / q) if self.config.objective == "gce" else math.exp(-loss)

    @property
    def is_short(self) -> bool:
        """Whether there are too few epochs for a trend."""
        return len(self.epochs) < _FEWEST_EPOCHS

    @property
    def is_validated(self) -> bool:
        """Whether there are enough validation scores for a trend."""
        return len(self.validation) >= _FEWEST_EPOCHS

    @property
    def third(self) -> int:
        """A third of the epochs, at least one."""
        return max(1, len(self.epochs) // 3)

    def rise(self, start: int = 1) -> float:
        """Return the increase in the best validation accuracy from epoch `start` (counted from 0) onwards.

        The result is 0 if the increase is within the margin of error.
        """
        place = self.scores_until(start)
        before, after = self.validation[:place], self.validation[place:]
        if not before or not after:
            return 0.0
        best = max(after, key=lambda scores: scores.accuracy)
        rise = best.accuracy - max(scores.accuracy for scores in before)
        return rise if rise > 2 * standard_error(best) else 0.0

    def scores_until(self, epochs: int) -> int:
        """Return how many validation scores there are of the first epochs, at least 1."""
        return max(1, bisect_right(self.scored_epochs, epochs))

    def eigenvalues_below(self, limit: float) -> int:
        """Return the smaller of the last two epochs' counts of eigenvalues below `limit`, or 0 if they are unknown."""
        if self.groups is None or len(self.eigenvalues) < 2:
            return 0
        return min(sum(v < limit for v in found) for found in self.eigenvalues[-2:])

    def training_accuracy(self) -> tuple[float, str]:
        """Return a lower bound on the training accuracy at the end, and the evidence for it.

        C normally distributed classes with C - 1 equal eigenvalues v are 2 sqrt(C v / 2) within-class standard
        deviations apart, so the misclassified fraction is at most C - 1 times the tail beyond half this distance. The
        bound uses the smallest eigenvalue as v; with fewer than C - 1 eigenvalues it is 0. Without an LDA loss, it is
        the probability of the true class that the loss stands for, which for cross-entropy is the geometric mean.
        """
        if not self.discriminant and not self.is_entropy:
            return 0.0, ""
        if self.is_entropy:
            loss = median(row.loss for row in self.epochs[-self.third :])
            return self.probability(loss), f"The training loss is {loss:.2g}"
        smallest = median(found[0] for found in self.eigenvalues[-self.third :])
        classes = len(self.eigenvalues[-1]) + 1
        if classes != self.groups:
            return 0.0, ""
        misclassified = (classes - 1) * NormalDist().cdf(-math.sqrt(classes * max(smallest, 0.0) / 2))
        return 1 - misclassified, f"The smallest eigenvalue of the training batches is {smallest:.3g}"

    def class_name(self, place: int) -> str:
        """Return the name of a class in quotes, or its number if the run is not finished."""
        names = self.summary.class_names if self.summary else None
        return f'"{names[place]}"' if names else f"number {place}"


def standard_error(scores: Scores) -> float:
    """Return the standard error of the accuracy. It is never 0, because further samples may be misclassified."""
    share = (scores.accuracy * scores.n + 1) / (scores.n + 2)
    return math.sqrt(share * (1 - share) / scores.n)
