"""Decisions of an audit, applied to the training and validation sets."""

from dataclasses import replace

import numpy as np
import pytest

from deeplda.data.corrections import (
    Decision,
    confirmed_labels,
    corrected,
    has_decisions,
    read_decisions,
    sample_names,
)
from deeplda.data.dataset import Data, Part
from deeplda.errors import InputError
from deeplda.printing import as_csv

COLUMNS = ("sample", "given", "suggested", "decision")


def part(files, labels):
    numbers = np.arange(len(labels), dtype=np.float32)[:, None]
    return Part(numbers, np.array(labels, dtype=np.int64), files=files)


@pytest.fixture
def data():
    train = part(("cat/1.png", "=dog/2.png", "cat/3.png"), [0, 1, 0])
    return Data("photos", train, part(("cat/4.png",), [0]), part(("cat/5.png",), [0]), ("cat", "=dog"))


def written(path, *rows):
    path.write_text(as_csv(COLUMNS, [dict(zip(COLUMNS, row, strict=True)) for row in rows]))
    return path


def test_accepted_samples_are_dropped(data, tmp_path):
    file = written(
        tmp_path / "a.csv",
        ("cat/1.png", "cat", "=dog", "rejected"),
        ("=dog/2.png", "=dog", "cat", "dropped"),
        ("cat/4.png", "cat", "=dog", "Accepted "),
        ("cat/3.png", "cat", "=dog", ""),
        ("cat/5.png", "cat", "=dog", "accepted"),
        ("cat/9.png", "cat", "=dog", "accepted"),
    )
    found = corrected(data, drop=[file])
    assert found.train.files == ("cat/1.png", "cat/3.png")
    assert found.train.inputs.tolist() == [[0], [2]]
    assert len(found.val) == 0
    assert found.test is data.test
    assert found.notes == (
        f"2 samples left out in the training and validation sets, as decided in {file}; cat/5.png is in the test set, "
        "which is never changed: correct it in your data; 1 sample is not in photos with the given label",
    )


def test_accepted_samples_get_the_suggested_label_and_dropped_ones_are_left_out(data, tmp_path):
    file = written(
        tmp_path / "a.csv",
        ("=dog/2.png", "=dog", "cat", "accepted"),
        ("cat/3.png", "cat", "=dog", ""),
        ("cat/1.png", "cat", "=dog", "dropped"),
        ("cat/4.png", "cat", "=dog", "accepted"),
    )
    found = corrected(data, relabel=[file])
    assert found.train.files == ("=dog/2.png", "cat/3.png")
    assert found.train.labels.tolist() == [0, 0]
    assert found.val.labels.tolist() == [1]
    assert data.train.labels.tolist() == [0, 1, 0]
    assert found.fingerprint != data.fingerprint
    (note,) = found.notes
    assert note.startswith("2 samples relabelled and 1 sample left out in the training and validation sets")
    assert corrected(data) is data


def test_files_are_applied_in_their_order_and_those_to_drop_last(data, tmp_path):
    first = written(tmp_path / "1.csv", ("cat/1.png", "cat", "=dog", "accepted"))
    second = written(tmp_path / "2.csv", ("cat/1.png", "=dog", "cat", "accepted"), ("cat/3.png", "cat", "x", "dropped"))
    assert corrected(data, relabel=[first, second]).train.labels.tolist() == [0, 1]
    # A second file that comes first names a label that the sample does not have yet.
    assert corrected(data, relabel=[second, first]).train.labels.tolist() == [1, 1]
    third = written(tmp_path / "3.csv", ("cat/1.png", "=dog", "cat", "accepted"))
    assert corrected(data, relabel=[first], drop=[third]).train.files == ("=dog/2.png", "cat/3.png")


def test_positions_count_samples_that_were_dropped_before(data, tmp_path):
    unnamed = replace(data, train=replace(data.train, files=None))
    first = written(tmp_path / "1.csv", ("train 0", "cat", "=dog", "dropped"))
    found = corrected(unnamed, drop=[first])
    assert sample_names(found.train, "train") == ("train 1", "train 2")
    second = written(tmp_path / "2.csv", ("train 2", "cat", "=dog", "accepted"))
    both = corrected(unnamed, relabel=[second], drop=[first])
    assert both.train.labels.tolist() == corrected(found, relabel=[second]).train.labels.tolist() == [1, 1]


def test_a_suggestion_that_is_the_given_label_changes_nothing(data, tmp_path):
    rows = ("cat/1.png", "cat", "cat", "accepted"), ("cat/3.png", "cat", "=dog", "accepted")
    file = written(tmp_path / "a.csv", *rows)
    found = corrected(data, relabel=[file])
    assert found.train.labels.tolist() == [0, 1, 1]
    assert found.notes[0].startswith("1 sample relabelled in")
    with pytest.raises(InputError, match=r"no row .* that would change anything"):
        corrected(data, relabel=[written(tmp_path / "b.csv", rows[0])])


def test_a_file_without_effect_is_rejected(data, tmp_path):
    undecided = written(tmp_path / "a.csv", ("cat/1.png", "cat", "=dog", ""), ("cat/3.png", "cat", "=dog", "rejected"))
    with pytest.raises(InputError, match="has no row with the decision accepted or dropped that would change anything"):
        corrected(data, drop=[undecided])
    # A sample that has another label by now was corrected already.
    other = written(tmp_path / "b.csv", ("cat/1.png", "=dog", "cat", "accepted"), ("cat/5.png", "cat", "x", "accepted"))
    with pytest.raises(
        InputError, match=r"decisions about 2 samples, but none in the training.*; cat/5.png is in the test set.*; 1 s"
    ):
        corrected(data, drop=[other])


def test_only_some_samples_of_the_test_set_are_named(data, tmp_path):
    many = replace(data, test=part(tuple(f"t{number}" for number in range(7)), [0] * 7))
    rows = [(f"t{number}", "cat", "=dog", "accepted") for number in range(7)]
    file = written(tmp_path / "a.csv", ("cat/1.png", "cat", "=dog", "accepted"), *rows)
    (note,) = corrected(many, relabel=[file]).notes
    assert "; t0, t1, t2, t3, t4 and 2 more are in the test set, which is never changed: correct them" in note


def test_mistakes_in_the_file(data, tmp_path):
    file = tmp_path / "a.csv"
    for content, message in (
        (b"sample;given;suggested;decision\n", "has no column 'sample'.*commas"),
        (
            b"sample,given,suggested,decision\nx,y,z,maybe\n",
            "the decision about x in .* is 'maybe', need accepted, rejected, dropped or nothing",
        ),
        (b"sample,given,suggested,decision\n\xff,,,\n", r"a\.csv is not in UTF-8: save it as CSV in UTF-8$"),
        (b'sample,given,suggested,decision\n"x', "cannot be read as CSV"),
        (b"sample,given,suggested,decision\na,b,c,\nx,y\n", r"a\.csv, line 3, has 2 fields, need 4"),
        (b"sample,given,suggested,decision\nx,y,accepted\n", "line 2, has 3 fields, need 4"),
        (b"sample,given,suggested,decision\nx,y,z,accepted,1\n", "line 2, has 5 fields, need 4"),
    ):
        file.write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_decisions(file)
    with pytest.raises(InputError, match=r"missing\.csv cannot be read"):
        read_decisions(tmp_path / "missing.csv")
    unknown = written(tmp_path / "b.csv", ("cat/1.png", "cat", "cow", "accepted"))
    with pytest.raises(InputError, match=r"suggested label 'cow' is not a class .* the name of one of its classes"):
        corrected(data, relabel=[unknown])
    one = written(tmp_path / "c.csv", ("cat/1.png", "cat", "=dog", "accepted"))
    with pytest.raises(
        InputError, match=r"cat/1\.png is accepted in .*c\.csv \(--relabel\) and in .*c\.csv \(--drop\)"
    ):
        corrected(data, drop=[one], relabel=[one])


def test_appended_files_and_the_commas_that_excel_omits(tmp_path):
    file = written(tmp_path / "a.csv", ("cat/1.png", "cat", "=dog", "accepted"))
    file.write_text(file.read_text() + "cat/2.png,cat,'=dog\n\n" + file.read_text().replace("1.png", "3.png"))
    assert list(read_decisions(file)) == ["cat/1.png", "cat/3.png"]


def test_decisions_confirm_the_labels_that_they_call_right(tmp_path):
    first = written(
        tmp_path / "1.csv",
        ("a", "cat", "=dog", "rejected"),
        ("b", "cat", "=dog", "accepted"),
        ("c", "cat", "=dog", "dropped"),
        ("d", "cat", "=dog", "rejected"),
    )
    second = written(tmp_path / "2.csv", ("d", "cat", "=dog", "accepted"))
    # An apostrophe, because a spreadsheet would take the name for a formula.
    assert confirmed_labels([first, second]) == {"a": "cat", "b": "'=dog", "d": "'=dog"}


@pytest.mark.parametrize("second", [("cat/1.png", "cat", "=dog", "accepted"), ("cat/1.png", "cat", "cow", "rejected")])
def test_a_sample_has_one_decision(tmp_path, second):
    first = ("cat/1.png", "cat", "cow", "accepted")
    with pytest.raises(InputError, match=r"two different decisions about cat/1\.png: delete one"):
        read_decisions(written(tmp_path / "a.csv", first, second))
    file = written(tmp_path / "b.csv", first, first)
    assert read_decisions(file) == {"cat/1.png": Decision("cat", "cow", "accepted")}


def test_a_spreadsheet_adds_a_byte_order_mark(tmp_path):
    file = written(tmp_path / "a.csv", ("cat/1.png", "cat", "=dog", "accepted"))
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert list(read_decisions(file)) == ["cat/1.png"]
    assert has_decisions(file)
    assert not has_decisions(written(file, ("cat/1.png", "cat", "=dog", "")))


def test_names_of_rows_and_of_samples_without_files(data):
    assert sample_names(replace(data.train, files=None), "train") == ("train 0", "train 1", "train 2")
    rows = replace(data.train, files=None, rows=np.array([7, 2, 9]))
    assert sample_names(rows, "train") == ("row 7", "row 2", "row 9")
