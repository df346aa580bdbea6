"""What the rows of metrics.jsonl must be before others rely on them: a run's folder may be anyone's."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

Count = Annotated[int, Field(ge=0, le=2**53)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Strict(BaseModel):
    # Rows may say more than is checked here.
    model_config = ConfigDict(extra="allow", strict=True)


class _Predictor(_Strict):
    accuracy: Share
    balanced_accuracy: Share
    auc: Share | None = None


class _Scores(_Strict):
    """Of a classifier on a part of its data."""

    n: Annotated[Count, Field(ge=1)]
    accuracy: Share
    predictors: dict[str, _Predictor] = Field(min_length=1)
    confusion: list[list[Count]] = Field(min_length=2)

    @model_validator(mode="after")
    def _square(self) -> Self:
        if any(len(row) != len(self.confusion) for row in self.confusion) or not any(map(any, self.confusion)):
            raise ValueError("the confusion matrix is not square, or empty")
        return self


class _Error(_Strict):
    """Of an autoencoder."""

    n: Annotated[Count, Field(ge=1)]
    error: float


class _Epoch(_Strict):
    kind: Literal["epoch"]
    epoch: Count
    loss: float
    learning_rate: float
    seconds: float
    validation: _Scores | _Error | None
    eigenvalues: list[float] | None = Field(None, min_length=1)
    dead_dims: Count = 0
    steps: Annotated[Count, Field(ge=1)] = 1


class _Summary(_Strict):
    """Of a classifier, with the names of its classes and scores on the test part; or of an autoencoder, with errors."""

    kind: Literal["summary"]
    epochs: Count
    best_epoch: Count
    seconds: float
    validation: _Scores | _Error | None
    test: _Scores | _Error | None
    class_names: list[str] | None = None
    train_counts: list[Annotated[Count, Field(ge=1)]] | None = None
    flops: Annotated[int, Field(ge=0)] = 0
    mirrored: dict[Literal["validation", "test"], _Scores | None] = {}

    @model_validator(mode="after")
    def _one_or_the_other(self) -> Self:
        signs = (self.class_names is not None, isinstance(self.test, _Scores))
        if any(signs) != all(signs) or (isinstance(self.validation, _Scores) and not all(signs)):
            raise ValueError("neither of a classifier nor of an autoencoder")
        return self


_ROW: TypeAdapter[_Epoch | _Summary] = TypeAdapter(Annotated[_Epoch | _Summary, Field(discriminator="kind")])


def whole_rows(content: bytes) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl: ascending epochs and the summary, up to the first line that is cut, is not a row, or
    contradicts those before it. Where rows were lost before a run went on, their epochs are missing."""
    rows: list[dict[str, Any]] = []
    kinds: list[tuple[object, ...]] = []
    for line in content.splitlines():
        try:
            found = json.loads(line)
            row = _ROW.validate_python(found)
        except (ValueError, RecursionError):  # a ValidationError is a ValueError
            break
        if rows and rows[-1]["kind"] == "summary":
            break
        if isinstance(row, _Epoch):
            if rows and (row.epoch <= rows[-1]["epoch"] or kinds[-1] != _kind(row)):
                break
            kinds.append(_kind(row))
        elif not _agrees(row, kinds):
            break
        rows.append(found)
    return rows


def _kind(row: _Epoch) -> tuple[object, ...]:
    """What all epochs of a run have in common."""
    return (*_kind_of_scores(row.validation), row.eigenvalues is None)


def _kind_of_scores(scores: _Scores | _Error | None) -> tuple[object, ...]:
    return (type(scores), len(scores.confusion) if isinstance(scores, _Scores) else None)


def _agrees(summary: _Summary, kinds: list[tuple[object, ...]]) -> bool:
    """Whether a summary is of the epochs before it, and its parts of the same classes."""
    if kinds and kinds[-1][:2] != _kind_of_scores(summary.validation):
        return False
    sizes = {len(part.confusion) for part in (summary.validation, summary.test) if isinstance(part, _Scores)}
    sizes |= {len(found) for found in (summary.class_names, summary.train_counts) if found is not None}
    return len(sizes) <= 1
