"""Rows of metrics.jsonl: valid ones survive, everything else ends the reading."""

import json
import math

import pytest

from deeplda.errors import InputError
from deeplda.training.metrics import parse_rows


def row(epoch, **changes):
    scores = {"n": 4, "accuracy": 0.5, "confusion": [[1, 1], [1, 1]]}
    scores["predictors"] = {"hyperplanes": {"accuracy": 0.5, "balanced_accuracy": 0.5}}
    found = {"kind": "epoch", "epoch": epoch, "loss": 1.0, "learning_rate": 0.1, "seconds": 1.0, "validation": scores}
    return found | {"eigenvalues": [1.0]} | changes


SUMMARY = {"kind": "summary", "epochs": 1, "best_epoch": 1, "seconds": 1.0, "test": None}


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind": "epoch", "epo',
        b"garbage",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"kind": "epoch", "epoch": ' + b"9" * 10_000 + b"}",
        b"[]",
        b"null",
        b'{"kind": "epoch"}',
        json.dumps(row(True)).encode(),
        json.dumps(row(2, loss="small")).encode(),
        json.dumps(row(2, eigenvalues=[])).encode(),
        json.dumps(row(2, validation={"accuracy": float("nan")})).encode(),
        json.dumps(row(2, steps=0)).encode(),
        json.dumps(row(1)).encode(),
        json.dumps({"kind": "summary", "validation": 1, "test": []}).encode(),
        json.dumps(SUMMARY | {"validation": row(1)["validation"]}).encode(),
        json.dumps(SUMMARY | {"validation": row(1)["validation"], "class_names": ["a", "b"]}).encode(),
        json.dumps(SUMMARY | {"validation": row(1)["validation"], "test": row(1)["validation"]}).encode(),
    ],
)
def test_reading_stops_at_the_first_line_that_is_not_a_row(line):
    content = json.dumps(row(1)).encode() + b"\n" + line + b"\n" + line
    assert [found.epoch for found in parse_rows(content)] == [1]


def scores(**changes):
    return row(1)["validation"] | changes


def predictors(**found):
    return {name: {"accuracy": share, "balanced_accuracy": share} for name, share in found.items()}


def finished(**changes):
    found = {"epochs": 2, "best_epoch": 2, "seconds": 2.0, "class_names": ["a", "b"], "train_counts": [3, 4]}
    return SUMMARY | found | {"validation": scores(), "test": scores(), "mirrored": {"test": scores()}} | changes


def test_a_finished_run_is_read():
    content = "\n".join(map(json.dumps, (row(1), row(2), finished())))
    assert [found.kind for found in parse_rows(content.encode())] == ["epoch", "epoch", "summary"]


@pytest.mark.parametrize(
    "second",
    [
        row(2, seconds=-1.0),
        row(2, seconds=math.nan),
        row(2, seconds=10**400),
        row(2, learning_rate=math.inf),
        row(2, learning_rate=-0.1),
        row(2, validation=scores(n=5)),
        row(2, validation=scores(accuracy=0.75)),
        row(2, validation=scores(confusion=[[2, 1], [1, 1]])),
        row(2, validation=scores(confusion=[[2, 0], [1, 1]])),
        row(2, validation=scores(confusion=[[2, 1], [1, 0]])),
        row(2, validation=scores(confusion=[[1, 1], [2]])),
        row(2, validation=scores(confusion=[[1, 1, 0], [1, 1, 0], [0, 0, 0]])),
        row(2, validation=scores(predictors=predictors(hyperplanes=0.75))),
        row(2, validation=scores(predictors={"hyperplanes": {"accuracy": 0.5, "balanced_accuracy": 0.25}})),
        row(2, validation=scores(predictors=predictors(softmax=0.5))),
        row(2, validation=scores(predictors=predictors(hyperplanes=0.5, softmax=0.5))),
        # Consistent in itself, but of a different validation set.
        row(2, validation=scores(n=8, confusion=[[2, 2], [2, 2]])),
        finished(seconds=math.inf),
        finished(flops=10**400),
        finished(flops=-1),
        finished(best_epoch=3),
        finished(epochs=0, best_epoch=0),
        finished(class_names=["a", "b", "c"]),
        finished(train_counts=[3]),
        finished(test=scores(predictors=predictors(softmax=0.5))),
        finished(test=scores(confusion=[[2, 0, 0], [0, 0, 0], [1, 1, 0]])),
        finished(validation=scores(n=8, confusion=[[2, 2], [2, 2]])),
        finished(mirrored={"test": None}),
        finished(mirrored={"test": scores(n=8, confusion=[[2, 2], [2, 2]])}),
        finished(mirrored={"test": scores(predictors=predictors(softmax=0.5))}),
        finished(validation=None, mirrored={"validation": scores()}),
    ],
)
def test_numbers_that_contradict_each_other_end_the_reading(second):
    content = "\n".join(map(json.dumps, (row(1), second)))
    assert [found.epoch for found in parse_rows(content.encode())] == [1]


def test_shares_may_be_rounded():
    third = scores(n=3, confusion=[[1, 1], [1, 0]], accuracy=0.333333)
    third["predictors"] = {"hyperplanes": {"accuracy": 0.333333, "balanced_accuracy": 0.25}}
    assert len(parse_rows(json.dumps(row(1, validation=third)).encode())) == 1


def test_rows_that_do_not_fit_in_memory_are_rejected(monkeypatch):
    content = json.dumps(row(1)).encode()
    monkeypatch.setattr("deeplda.memory.available_memory", lambda: 5 * len(content))
    with pytest.raises(InputError, match="does not fit in memory"):
        parse_rows(content)


def test_a_loss_that_is_not_finite_survives_writing_and_reading():
    (found,) = parse_rows(json.dumps(row(1, loss=float("nan"), eigenvalues=[float("inf")])).encode())
    (again,) = parse_rows(found.to_json().encode())
    assert math.isnan(again.loss)
    assert again.eigenvalues == [math.inf]


def test_a_row_is_written_as_it_was_read_with_fields_of_later_versions():
    line = json.dumps(row(3, learning_mood="good") | {"validation": None})
    (found,) = parse_rows(line.encode())
    assert json.loads(found.to_json()) == json.loads(line)
