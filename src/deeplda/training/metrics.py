"""The rows of metrics.jsonl: one per epoch, and a summary at the end.

A run folder may be untrusted, so rows are validated when they are read. The training code builds the same types.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypedDict

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

_Count = Annotated[int, Field(ge=0, le=2**53)]
_AtLeastOne = Annotated[int, Field(ge=1, le=2**53)]
_Share = Annotated[float, Field(ge=0, le=1)]


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
    """Scores of one predictor; `auc` is None if all samples belong to one class."""

    accuracy: _Share
    balanced_accuracy: _Share
    auc: _Share | None = None


class Scores(_Strict):
    """A classifier's scores on one split of the data.

    Attributes:
        accuracy: accuracy of the first predictor, which makes the decisions.
        confusion: confusion[i][j] is the number of samples of class i that were classified as class j.
    """

    n: _AtLeastOne
    accuracy: _Share
    predictors: dict[str, PredictorScores] = Field(min_length=1)
    confusion: list[list[_Count]] = Field(min_length=2)

    @property
    def score(self) -> float:
        """The score that selects the best epoch; higher is better."""
        return self.accuracy

    @model_validator(mode="after")
    def _square(self) -> Self:
        if any(len(row) != len(self.confusion) for row in self.confusion) or not any(map(any, self.confusion)):
            raise ValueError("the confusion matrix is empty or not square")
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
    """One epoch: the mean loss of its steps, the learning rate of the last one, and the scores after it."""

    kind: Literal["epoch"] = "epoch"
    epoch: _Count
    loss: float
    steps: _AtLeastOne = 1
    learning_rate: float
    eigenvalues: list[float] | None = Field(None, min_length=1)
    selected: _Count | None = None
    dead_dims: _Count = 0
    validation: Scores | ReconstructionScores | None
    seconds: float


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


class SummaryRow(FinalScores):
    """The last row of a finished run."""

    kind: Literal["summary"] = "summary"
    epochs: _Count
    best_epoch: _Count
    seconds: float
    flops: Annotated[int, Field(ge=0)] = 0


Row = EpochRow | SummaryRow

_ROW: TypeAdapter[Row] = TypeAdapter(Annotated[Row, Field(discriminator="kind")])


def parse_rows(content: bytes) -> list[Row]:
    """Return the rows of a metrics.jsonl file: epochs in ascending order, then the summary.

    Reading stops at the first line that is cut off, is not a row, or contradicts the rows before it. Epochs whose rows
    were lost before a run was resumed are missing.
    """
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

    All rows must come from the same kind of run, with ascending epochs and nothing after a summary.
    """
    last = before[-1] if before else None
    if isinstance(last, SummaryRow):
        return False
    if isinstance(row, EpochRow):
        return last is None or (row.epoch > last.epoch and _common(row) == _common(last))
    return (last is None or _kind(last.validation) == _kind(row.validation)) and len(_class_counts(row)) <= 1


def _common(row: EpochRow) -> tuple[object, ...]:
    """Return the properties that all epochs of a run have in common."""
    return (*_kind(row.validation), row.eigenvalues is None)


def _kind(scores: Scores | ReconstructionScores | None) -> tuple[object, ...]:
    return (type(scores), len(scores.confusion) if isinstance(scores, Scores) else None)


def _class_counts(row: SummaryRow) -> set[int]:
    """Return the numbers of classes that a summary implies; more than one is a contradiction."""
    parts = [len(part.confusion) for part in (row.validation, row.test) if isinstance(part, Scores)]
    return {*parts, *(len(found) for found in (row.class_names, row.train_counts) if found is not None)}
