"""Decisions of an audit, applied to the training and validation sets."""

from dataclasses import replace

import numpy as np
import pytest

from deeplda.data.corrections import corrected, has_decisions, read_accepted, sample_names
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
        ("=dog/2.png", "=dog", "cat", "accepted"),
        ("cat/4.png", "cat", "=dog", "Accepted "),
        ("cat/3.png", "cat", "=dog", ""),
        ("cat/5.png", "cat", "=dog", "accepted"),
        ("cat/9.png", "cat", "=dog", "accepted"),
    )
    found = corrected(data, drop=file, relabel=None)
    assert found.train.files == ("cat/1.png", "cat/3.png")
    assert found.train.inputs.tolist() == [[0], [2]]
    assert len(found.val) == 0
    assert found.test is data.test
    (note,) = found.notes
    assert note.startswith("2 training or validation samples left out")
    assert "1 in the test set, which is never changed; 1 are not in photos with their given label" in note


def test_accepted_samples_get_the_suggested_label(data, tmp_path):
    file = written(tmp_path / "a.csv", ("=dog/2.png", "=dog", "cat", "accepted"), ("cat/3.png", "cat", "=dog", ""))
    found = corrected(data, drop=None, relabel=file)
    assert found.train.labels.tolist() == [0, 0, 0]
    assert data.train.labels.tolist() == [0, 1, 0]
    assert found.fingerprint != data.fingerprint
    assert corrected(data, drop=None, relabel=None) is data


def test_a_file_without_effect_is_rejected(data, tmp_path):
    undecided = written(tmp_path / "a.csv", ("cat/1.png", "cat", "=dog", ""), ("cat/3.png", "cat", "=dog", "rejected"))
    with pytest.raises(InputError, match="has no row with the decision accepted, so it would change nothing"):
        corrected(data, drop=undecided, relabel=None)
    # A sample that has another label by now was corrected already.
    other = written(tmp_path / "b.csv", ("cat/1.png", "=dog", "cat", "accepted"), ("cat/5.png", "cat", "x", "accepted"))
    with pytest.raises(
        InputError, match=r"has 2 accepted rows, none of them a training or validation sample.*1 in the t"
    ):
        corrected(data, drop=other, relabel=None)


def test_mistakes_in_the_file(data, tmp_path):
    file = tmp_path / "a.csv"
    for content, message in (
        (b"sample;given;suggested;decision\n", "has no column 'sample'.*commas"),
        (
            b"sample,given,suggested,decision\nx,y,z,maybe\n",
            "the decision about x in .* is 'maybe', need accepted, rejected",
        ),
        (b"sample,given,suggested,decision\n\xff,,,\n", "cannot be read as CSV in UTF-8"),
        (b'sample,given,suggested,decision\n"x', "cannot be read as CSV"),
    ):
        file.write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_accepted(file)
    with pytest.raises(InputError, match="cannot be read"):
        read_accepted(tmp_path / "missing.csv")
    unknown = written(tmp_path / "b.csv", ("cat/1.png", "cat", "cow", "accepted"))
    with pytest.raises(InputError, match=r"suggested label 'cow' is not a class .* the name of one of its classes"):
        corrected(data, drop=None, relabel=unknown)
    one = written(tmp_path / "c.csv", ("cat/1.png", "cat", "=dog", "accepted"))
    with pytest.raises(InputError, match=r"cat/1\.png is accepted in .* and in"):
        corrected(data, drop=one, relabel=written(tmp_path / "d.csv", ("cat/1.png", "cat", "=dog", "accepted")))


@pytest.mark.parametrize("second", [("cat/1.png", "cat", "=dog", "accepted"), ("cat/1.png", "cat", "cow", "rejected")])
def test_a_sample_has_one_decision(tmp_path, second):
    first = ("cat/1.png", "cat", "cow", "accepted")
    with pytest.raises(InputError, match=r"two different decisions about cat/1\.png: delete one"):
        read_accepted(written(tmp_path / "a.csv", first, second))
    assert list(read_accepted(written(tmp_path / "b.csv", first, first))) == ["cat/1.png"]


def test_a_spreadsheet_adds_a_byte_order_mark(tmp_path):
    file = written(tmp_path / "a.csv", ("cat/1.png", "cat", "=dog", "accepted"))
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert list(read_accepted(file)) == ["cat/1.png"]
    assert has_decisions(file)
    assert not has_decisions(written(file, ("cat/1.png", "cat", "=dog", "")))


def test_names_of_rows_and_of_samples_without_files(data):
    assert sample_names(replace(data.train, files=None), "train") == ("train 0", "train 1", "train 2")
    rows = replace(data.train, files=None, rows=np.array([7, 2, 9]))
    assert sample_names(rows, "train") == ("row 7", "row 2", "row 9")
