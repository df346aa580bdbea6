"""A run's metrics as the checks look at them, and what a check finds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from deeplda.training.config import RunConfig

_DEFAULT_RATE: float = RunConfig.model_fields["learning_rate"].default


@dataclass(frozen=True)
class Finding:
    """One thing to say of a run, in sentences: `what` it is, `why` we think so, what to `do`."""

    severity: Literal["problem", "warning", "good"]
    what: str
    why: str
    do: str


@dataclass(frozen=True)
class Scores:
    """Scores of a part of the data: accuracy, how many samples, and confusion[true][decided]."""

    accuracy: float
    balanced: float
    n: int
    confusion: Sequence[Sequence[int]]

    @property
    def error(self) -> float:
        """Standard error of the accuracy, never 0: a few more samples could always have been mistaken."""
        share = (self.accuracy * self.n + 1) / (self.n + 2)
        return math.sqrt(share * (1 - share) / self.n)


@dataclass(frozen=True)
class Record:
    """The rows of a run with its settings."""

    rows: Sequence[Mapping[str, Any]]
    config: RunConfig
    classes: int | None

    @cached_property
    def epochs(self) -> list[Mapping[str, Any]]:
        return [row for row in self.rows if row["kind"] == "epoch"]

    @cached_property
    def summary(self) -> Mapping[str, Any] | None:
        return next((row for row in self.rows if row["kind"] == "summary"), None)

    @property
    def steps(self) -> int | None:
        """How many the optimiser took in all; None for runs of before that was logged."""
        counts = [row["steps"] for row in self.epochs if "steps" in row]
        return sum(counts) if len(counts) == len(self.epochs) else None

    @property
    def discriminant(self) -> bool:
        """Whether the objective is one of LDA's, not cross-entropy."""
        return self.config.objective != "cce" and all("eigenvalues" in row for row in self.epochs)

    @property
    def groups(self) -> int | None:
        """How many groups the objective separates: the classes, or their subclasses where their number is set."""
        each = self.config.subclasses
        return self.classes * each if self.classes and isinstance(each, int) else self.classes

    @cached_property
    def eigenvalues(self) -> list[list[float]]:
        """Of each epoch's last batch, ascending; empty for cross-entropy."""
        return [row["eigenvalues"] for row in self.epochs] if self.discriminant else []

    @cached_property
    def validation(self) -> list[Scores]:
        """Of each epoch, where there is a validation part."""
        return [_scores(row["validation"]) for row in self.epochs if row["validation"]]

    @property
    def class_counts(self) -> list[int]:
        """How many samples of each class are trained on; before the run has told, as the validation part has them."""
        if self.summary and self.summary.get("train_counts"):
            return list(self.summary["train_counts"])
        return [sum(row) for row in self.validation[-1].confusion] if self.validation else []

    @property
    def accuracies(self) -> list[float]:
        return [scores.accuracy for scores in self.validation]

    @cached_property
    def final(self) -> tuple[str, Scores] | None:
        """The scores that count and whose they are: of the test part, else the last of the validation part."""
        if self.summary and self.summary["test"]:
            return "test", _scores(self.summary["test"])
        return ("validation", self.validation[-1]) if self.validation else None

    @cached_property
    def progress(self) -> list[float]:
        """How well each epoch separates its training batches; more is better.

        The mean of log(1 + v) over the eigenvalues, or minus the cross-entropy. The paper's own loss jumps whenever
        the number of eigenvalues under its threshold changes, and shows no trend.
        """
        if not self.discriminant:
            return [-row["loss"] for row in self.epochs]
        return [sum(math.log1p(max(v, 0.0)) for v in found) / len(found) for found in self.eigenvalues]

    def class_name(self, place: int) -> str:
        """In quotes, as the data calls it; by its number before the run has told."""
        return f'"{self.summary["class_names"][place]}"' if self.summary else f"number {place}"


def count_classes(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """How many classes the data of a run has, as its metrics tell."""
    for row in rows:
        if row.get("class_names"):
            return len(row["class_names"])
        if row.get("validation"):
            return len(row["validation"]["confusion"])
    return None


def percent(share: float) -> str:
    """0.8765 as "87.7 %"."""
    return f"{100 * share:.1f} %"


def points(difference: float) -> str:
    """A difference of two shares: 0.125 as "12.5 points"."""
    return f"{100 * difference:.1f} points"


def highest_rate(config: RunConfig) -> float:
    """The highest learning rate among our recipes with this optimiser; muon's is that of all but the filters."""
    return 5.0 if config.optimizer == "muon" else 1.0


def lower_rate(config: RunConfig) -> str:
    """A tenth of the learning rate, and at most the default, as an option with what it was; of muon's, of both."""
    if config.optimizer == "muon":
        filters = config.filter_learning_rate
        return (
            f"--learning-rate {config.learning_rate / 10:.3g} --filter-learning-rate {filters / 10:.3g} "
            f"({config.learning_rate:g} and {filters:g} here)"
        )
    return f"--learning-rate {min(config.learning_rate / 10, _DEFAULT_RATE):.3g} ({config.learning_rate:g} here)"


def higher_rate(config: RunConfig) -> str:
    """Ten times the learning rate, and at least the default, as an option with what it was."""
    return f"--learning-rate {max(config.learning_rate * 10, _DEFAULT_RATE):.3g} ({config.learning_rate:g} here)"


def _scores(found: Mapping[str, Any]) -> Scores:
    deciding = next(iter(found["predictors"].values()))
    return Scores(found["accuracy"], deciding["balanced_accuracy"], found["n"], found["confusion"])
