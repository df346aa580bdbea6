"""The rows of metrics.jsonl: one per epoch, and a summary at the end.

A run folder may be untrusted, so rows are validated when they are read: each number by itself, the numbers of a row
against each other, and each row against those before it. The training code builds the same types.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self, TypedDict

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from deeplda.memory import require_memory

_Count = Annotated[int, Field(ge=0, le=2**53)]
_AtLeastOne = Annotated[int, Field(ge=1, le=2**53)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Loss = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Seconds = Annotated[float, Field(ge=0, le=1e12)]
_Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Operations = Annotated[int, Field(ge=0, le=10**30)]
# Shares in a file may be rounded.
_ROUNDING = 1e-6
# Python objects take up to this many times the space of their JSON.
_OBJECT_COPIES = 10


class _Strict(BaseModel):
    # Fields unknown to this version are preserved, so that rewriting a file loses nothing.
    model_config = ConfigDict(extra="allow", strict=True, frozen=True, ser_json_inf_nan="constants")

    def model_post_init(self, _context: object) -> None:
        # Always write `kind`, even if it was not set, because reading needs it.
        if "kind" in type(self).model_fields:
            self.model_fields_set.add("kind")

    def to_json(self) -> str:
        """Return the row as one line of JSON, without fields that were not set."""
        return self.model_dump_json(exclude_unset=True)


class PredictorScores(_Strict):
    """Scores of one predictor.

    Attributes:
        auc: area under the ROC curve; None if all samples belong to one class.
        log_loss, brier, ece: log loss, Brier score and expected calibration error of the probabilities, as defined in
            `deeplda.predictors.calibration`; None in runs of early versions.
    """

    accuracy: _Share
    balanced_accuracy: _Share
    auc: _Share | None = None
    log_loss: _Loss | None = None
    brier: Annotated[float, Field(ge=0, le=2)] | None = None
    ece: _Share | None = None


class Scores(_Strict):
    """A classifier's scores on one split of the data.

    Attributes:
        n: the number of samples.
        accuracy: accuracy of the first predictor, which makes the decisions.
        confusion: confusion[i][j] is the number of samples of class i that the first predictor classified as class j.
        weighted_accuracy: accuracy with the weights of the samples; None if they have none. All else is without them.
    """

    n: _AtLeastOne
    accuracy: _Share
    predictors: dict[str, PredictorScores] = Field(min_length=1)
    confusion: list[list[_Count]] = Field(min_length=2)
    weighted_accuracy: _Share | None = None

    @property
    def deciding(self) -> PredictorScores:
        """The scores of the first predictor."""
        return next(iter(self.predictors.values()))

    @property
    def score(self) -> float:
        """The score that selects the best epoch; higher is better."""
        return self.accuracy if self.weighted_accuracy is None else self.weighted_accuracy

    @property
    def class_sizes(self) -> list[int]:
        """The number of samples in each class."""
        return [sum(row) for row in self.confusion]

    @model_validator(mode="after")
    def _agrees_with_confusion(self) -> Self:
        if any(len(row) != len(self.confusion) for row in self.confusion):
            raise ValueError("the confusion matrix is not square")
        if sum(self.class_sizes) != self.n:
            raise ValueError("the confusion matrix does not add up to the number of samples")
        right = [row[label] for label, row in enumerate(self.confusion)]
        recalls = [hits / size for hits, size in zip(right, self.class_sizes, strict=True) if size]
        shares = (
            (self.accuracy, sum(right) / self.n),
            (self.deciding.accuracy, sum(right) / self.n),
            (self.deciding.balanced_accuracy, sum(recalls) / len(recalls)),
        )
        if not all(math.isclose(found, expected, rel_tol=0, abs_tol=_ROUNDING) for found, expected in shares):
            raise ValueError("the accuracy does not agree with the confusion matrix")
        return self


class ReconstructionScores(_Strict):
    """An autoencoder's reconstruction error on one split of the data."""

    n: _AtLeastOne
    error: float

    @property
    def score(self) -> float:
        """The score that selects the best epoch; higher is better."""
        return -self.error


class Spectrum(TypedDict, total=False):
    """The eigenvalues of an epoch's last batch under an LDA objective; empty for other objectives."""

    eigenvalues: list[float]
    selected: int
    dead_dims: int


class EpochRow(_Strict):
    """One epoch: the mean loss of its steps, the learning rate of the last one, and the scores after it, if any."""

    kind: Literal["epoch"] = "epoch"
    epoch: _AtLeastOne
    loss: float
    steps: _AtLeastOne = 1
    learning_rate: _Rate
    eigenvalues: list[float] | None = Field(None, min_length=1, max_length=100_000)
    selected: _Count | None = None
    dead_dims: _Count = 0
    validation: Scores | ReconstructionScores | None
    seconds: _Seconds

    @property
    def scalars(self) -> dict[str, float]:
        """The numbers to plot, by name: loss, learning rate, extreme eigenvalues and the validation score."""
        found = {"loss": self.loss, "learning rate": self.learning_rate}
        if self.eigenvalues:
            found |= {"eigenvalues/smallest": self.eigenvalues[0], "eigenvalues/largest": self.eigenvalues[-1]}
        if isinstance(self.validation, Scores):
            found["validation/accuracy"] = self.validation.accuracy
        elif self.validation is not None:
            found["validation/error"] = self.validation.error
        return found


# The scores of each kind of test-time augmentation, by their name in a summary and in tables.
AUGMENTED: dict[Literal["mirror", "views"], Literal["mirrored", "views"]] = {"mirror": "mirrored", "views": "views"}


class FinalScores(_Strict):
    """Scores of the finished model: a classifier, with its class names, or an autoencoder.

    Attributes:
        train_counts: number of training samples in each class.
        mirrored: scores with embeddings averaged over each image and its mirror image.
        views: scores with embeddings averaged over six views of each image.
    """

    validation: Scores | ReconstructionScores | None
    test: Scores | ReconstructionScores | None
    class_names: list[str] | None = None
    train_counts: list[_AtLeastOne] | None = None
    mirrored: dict[Literal["validation", "test"], Scores | None] = {}
    views: dict[Literal["validation", "test"], Scores | None] = {}

    @property
    def augmented_test(self) -> tuple[str, Scores] | None:
        """The name and scores of the test set with test-time augmentation, if it was used."""
        found = ((name, getattr(self, name).get("test")) for name in AUGMENTED.values())
        return next(((name, scores) for name, scores in found if scores is not None), None)

    @model_validator(mode="after")
    def _one_or_the_other(self) -> Self:
        of_classifier = (self.class_names is not None, isinstance(self.test, Scores))
        if any(of_classifier) != all(of_classifier) or (isinstance(self.validation, Scores) and not all(of_classifier)):
            raise ValueError("this is the summary of neither a classifier nor an autoencoder")
        return self

    @model_validator(mode="after")
    def _same_classes_and_predictors(self) -> Self:
        parts = [part for part in (self.validation, self.test) if isinstance(part, Scores)]
        counts = {len(part.confusion) for part in parts}
        counts |= {len(found) for found in (self.class_names, self.train_counts) if found is not None}
        if len(counts) > 1 or len({tuple(part.predictors) for part in parts}) > 1:
            raise ValueError("the scores have different classes or predictors")
        augmented = [item for name in AUGMENTED.values() for item in getattr(self, name).items()]
        if any(_of(scores) != _of(getattr(self, part)) for part, scores in augmented):
            raise ValueError("the scores with augmentation are for different samples or predictors")
        return self


class SummaryRow(FinalScores):
    """The last row of a finished run."""

    kind: Literal["summary"] = "summary"
    epochs: _Count
    best_epoch: _Count
    seconds: _Seconds
    flops: _Operations = 0

    @model_validator(mode="after")
    def _ended_after_its_best_epoch(self) -> Self:
        if self.best_epoch > self.epochs:
            raise ValueError("the best epoch comes after the last")
        return self


Row = EpochRow | SummaryRow

_ROW: TypeAdapter[Row] = TypeAdapter(Annotated[Row, Field(discriminator="kind")])


def parse_rows(content: bytes) -> list[Row]:
    """Return the rows of a metrics.jsonl file: epochs in ascending order, then the summary.

    Reading stops at the first line that is cut off, is not a row, or contradicts the rows before it. Epochs whose rows
    were lost before a run was resumed are missing. Raises InputError if the rows do not fit in memory.
    """
    require_memory(len(content), "metrics.jsonl", copies=_OBJECT_COPIES, do="remove it")
    rows: list[Row] = []
    for line in content.splitlines():
        try:
            row = _ROW.validate_json(line)
        except (ValueError, RecursionError):  # a ValidationError is a ValueError
            break
        if not _follows(row, rows):
            break
        rows.append(row)
    return rows


def _follows(row: Row, before: list[Row]) -> bool:
    """Return whether a row may follow the rows before it.

    All rows must come from the same kind of run and the same validation set, with ascending epochs and nothing after a
    summary. Some epochs may have no scores although others do.
    """
    if not before:
        return True
    last = before[-1]
    scored = next((earlier.validation for earlier in reversed(before) if earlier.validation is not None), None)
    unscored = scored is None or (row.validation is None and isinstance(row, EpochRow))
    if isinstance(last, SummaryRow) or not (unscored or _of(row.validation) == _of(scored)):
        return False
    if isinstance(row, SummaryRow):
        return row.epochs >= last.epoch
    return row.epoch > last.epoch and (row.eigenvalues is None) == (last.eigenvalues is None)


def _of(scores: Scores | ReconstructionScores | None) -> tuple[object, ...]:
    """Return the kind, the samples and the predictors that scores are of."""
    if isinstance(scores, Scores):
        return Scores, tuple(scores.predictors), scores.class_sizes
    return (type(scores), None if scores is None else scores.n)
