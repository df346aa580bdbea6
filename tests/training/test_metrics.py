"""Rows of metrics.jsonl: valid ones survive, everything else ends the reading."""

import json
import math

import pytest

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
        json.dumps(row(2, validation=None)).encode(),
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


def test_a_loss_that_is_not_finite_survives_writing_and_reading():
    (found,) = parse_rows(json.dumps(row(1, loss=float("nan"), eigenvalues=[float("inf")])).encode())
    (again,) = parse_rows(found.to_json().encode())
    assert math.isnan(again.loss)
    assert again.eigenvalues == [math.inf]


def test_a_row_is_written_as_it_was_read_with_fields_of_later_versions():
    line = json.dumps(row(3, learning_mood="good") | {"validation": None})
    (found,) = parse_rows(line.encode())
    assert json.loads(found.to_json()) == json.loads(line)
