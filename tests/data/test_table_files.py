"""Tables in all formats have the same contents, and malformed ones are rejected in one sentence."""

import bz2
import gzip
import os
from datetime import date

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from deeplda.data.table_files import open_table
from deeplda.data.table_formats import table_format
from deeplda.errors import InputError

CSV = b'name,size,day\n"a, b",1,2020-01-02\n"c\nd",,2020-01-03\n'
TABLE = pa.table({"name": ["a, b", "c\nd"], "size": [1, None], "day": [date(2020, 1, 2), date(2020, 1, 3)]})


def write_arrow_stream(path):
    with pa.ipc.new_stream(path, TABLE.schema) as writer:
        writer.write_table(TABLE)


WRITERS = {
    "t.csv": lambda path: path.write_bytes(CSV),
    "T.CSV": lambda path: path.write_bytes(b"\xef\xbb\xbf" + CSV.replace(b"\n2", b"\r\n2")),
    "semicolons.csv": lambda path: path.write_bytes(CSV.replace(b",", b";").replace(b"a;", b"a,")),
    "t.tsv": lambda path: path.write_bytes(CSV.replace(b",", b"\t").replace(b"a\t", b"a,")),
    "t.csv.gz": lambda path: path.write_bytes(gzip.compress(CSV)),
    "t.csv.bz2": lambda path: path.write_bytes(bz2.compress(CSV)),
    "t.csv.zst": lambda path: path.write_bytes(pa.Codec("zstd").compress(CSV, asbytes=True)),
    "t.parquet": lambda path: pa.parquet.write_table(TABLE, path, row_group_size=1),
    "t.feather": lambda path: pa.feather.write_feather(TABLE, path, chunksize=1),
    "t.arrow": write_arrow_stream,
}


def contents(table, columns=None):
    """Return all rows of a table as texts."""
    blocks = list(table.blocks(columns))
    names = list(blocks[0])
    cells = [[str(value) for block in blocks for value in block[name].to_pylist()] for name in names]
    return dict(zip(names, cells, strict=True))


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_has_the_same_rows(name, tmp_path):
    WRITERS[name](tmp_path / name)
    table = open_table(tmp_path / name)
    assert table.names == ("name", "size", "day")
    empty = "" if table.kinds is None else "None"
    assert contents(table) == {"name": ["a, b", "c\nd"], "size": ["1", empty], "day": ["2020-01-02", "2020-01-03"]}
    assert contents(table, ["day", "name"]) == {"day": ["2020-01-02", "2020-01-03"], "name": ["a, b", "c\nd"]}
    assert table.kinds in (None, {"name": "text", "size": "number", "day": "date"})


@pytest.mark.parametrize("name", ["photo.jpg", "t.csv.xz", "t.parquet.gz", "csv", "gz"])
def test_other_names_are_not_tables(name):
    assert table_format(name) is None


def test_blocks_are_small(tmp_path):
    rows = 200_000
    pa.parquet.write_table(pa.table({"x": range(rows)}), tmp_path / "t.parquet")
    sizes = [len(block["x"]) for block in open_table(tmp_path / "t.parquet").blocks()]
    assert sum(sizes) == rows
    assert max(sizes) <= 65_536


def test_names_with_dots_and_spaces(tmp_path):
    pa.parquet.write_table(pa.table({"a.b": [1], "a": [2], " c": [3]}), tmp_path / "t.parquet")
    assert contents(open_table(tmp_path / "t.parquet"), ["a.b"]) == {"a.b": ["1"]}
    (tmp_path / "t.csv").write_text("a.b , c\n1,2\n")
    assert contents(open_table(tmp_path / "t.csv"), ["c"]) == {"c": ["2"]}


def test_semicolons_come_with_decimal_commas(tmp_path):
    (tmp_path / "t.csv").write_text("a;b\n1,5;x,y\n-2,25;3\n")
    assert contents(open_table(tmp_path / "t.csv")) == {"a": ["1.5", "-2.25"], "b": ["x,y", "3"]}


def test_a_quote_within_a_value_is_kept(tmp_path):
    (tmp_path / "t.csv").write_text('a,b\n1,5" pipe\n2,"x\ny"\n')
    assert contents(open_table(tmp_path / "t.csv"))["b"] == ['5" pipe', "x\ny"]


MALFORMED = {
    "an unclosed quote in the last column": (b'a,b\n1,"x\n2,z\n', "quote that is never closed"),
    "an unclosed quote": (b'a,b\n"1,x\n2,z\n', "row 1 .* has 1 value, need 2, one for each column"),
    "too few values": (b"a,b\n1,2\n3\n", "row 2 .* has 1 value, need 2"),
    "too many values": (b"a,b\n1,2,3\n", "row 1 .* has 3 values, need 2"),
    "too few values after a line break": (b'a,b\n"1\n1",2\n3\n', "row 2 .* has 1 value, need 2"),
    "too few values in a later block": (b"a,b\n" + b"1,2\n" * 3_000_000 + b"3\n", "row 3,000,001 .* has 1 value"),
    "a picture": (bytes(range(256)), "t.csv is not text, need a table as UTF-8 text"),
    "a huge value": (b'a,b\n1,"' + b"x" * 2**24, "row of more than 8 MiB or a quote that is never closed"),
    "a million columns": (b",".join(b"c%d" % n for n in range(10**6)) + b"\n", "has 1,000,000 columns, need at most"),
    "the same name twice": (b"a,a\n1,2\n", "several columns named 'a'"),
    "nothing": (b"", "cannot be read .there is no line of column names"),
    "a long first line": (b"x" * 2**24, "cannot be read"),
    "Latin-1": ("a,b\nü,1\n".encode("latin1"), "is not UTF-8 text"),
    "Latin-1 in the names": ("ä,b\n1,1\n".encode("latin1"), "is not UTF-8 text"),
    "UTF-16": ("a,b\n1,1\n".encode("utf-16"), "is UTF-16 text, need UTF-8"),
    "zeros": (bytes(1000), "is not text"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_csv_file_is_rejected(case, tmp_path):
    content, sentence = MALFORMED[case]
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(InputError, match=sentence) as error:
        list(open_table(tmp_path / "t.csv").blocks())
    assert str(tmp_path / "t.csv") in str(error.value)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("name", ["t.csv.gz", "t.csv.bz2", "t.csv.zst", "t.parquet", "t.feather"])
def test_a_file_that_is_cut_short_is_rejected(name, tmp_path):
    WRITERS[name](tmp_path / name)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) - 12])
    with pytest.raises(InputError, match="cannot be read"):
        list(open_table(tmp_path / name).blocks())


@pytest.mark.parametrize("name", ["t.parquet", "t.feather", "t.arrow", "t.csv.gz"])
@pytest.mark.parametrize("content", [b"", b"hello", bytes(200), b"\xff" * 200])
def test_a_file_of_another_format_is_rejected(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match="cannot be read"):
        list(open_table(tmp_path / name).blocks())


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "t.csv")
    with pytest.raises(InputError, match="Not a regular file"):
        open_table(tmp_path / "t.csv")
    with pytest.raises(InputError, match="No such file"):
        open_table(tmp_path / "missing.csv")


def test_a_missing_column_is_named(tmp_path):
    (tmp_path / "t.csv").write_bytes(CSV)
    with pytest.raises(InputError, match="has no column 'age'; its columns are name, size, day"):
        list(open_table(tmp_path / "t.csv").blocks(["age"]))
