"""Read tables from files in blocks of rows: CSV, compressed or not, Parquet, and Arrow (Feather) files.

The files are untrusted. Only regular files are opened, Arrow's data is validated before it is used, and every error
becomes an InputError of one sentence. All cells of a CSV file are read as texts, so that the kind of a column does not
depend on which of its rows are read first.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from deeplda.data.table_columns import kind_of
from deeplda.data.table_encoding import Kind
from deeplda.data.table_formats import READABLE, table_format
from deeplda.errors import InputError
from deeplda.formatting import counted
from deeplda.io import open_regular

# One block of rows, by the names of the columns.
Block = dict[str, pa.Array]

_MOST_COLUMNS = 10_000
_BLOCK_ROWS, _BLOCK_VALUES = 65_536, 2**21
# The rows of a block of a table with lists, whose length is not known before they are read.
_LIST_ROWS = 1_024
# The size of a block of a CSV file, which must contain at least one row, in bytes.
_BLOCK_BYTES = 2**23
_DELIMITERS = b",;\t|"
_DECIMAL_COMMA = r"^([+-]?\d+),(\d+)$"


class TableFile(ABC):
    """A table in a file.

    Attributes:
        path: the path of the file.
        names: the names of the columns.
        kinds: the kinds of the columns; None for a column that cannot be encoded. A CSV file does not store them.
        rows: the number of rows, if the file stores it.
    """

    def __init__(
        self, path: Path, names: Sequence[str], kinds: dict[str, Kind | None] | None = None, rows: int | None = None
    ) -> None:
        self.path, self.names, self.kinds, self.rows = path, tuple(names), kinds, rows
        self._block_rows = _LIST_ROWS if kinds is not None and "vector" in kinds.values() else _BLOCK_ROWS
        if not self.names:
            raise InputError(f"{path} has no columns, need a column with the classes and others to predict from")
        if len(self.names) > _MOST_COLUMNS:
            raise _too_wide(path, len(self.names))
        if twice := {name for name in self.names if self.names.count(name) > 1}:
            what = f"{path} has several columns named {min(twice)!r}"
            raise InputError(what, need="different names in the first line", do="rename them, or add a line of names")

    def blocks(self, columns: Sequence[str] | None = None) -> Iterator[Block]:
        """Yield all rows of the given columns, by default all columns, in blocks.

        Raises InputError if the file has no such column or cannot be read.
        """
        chosen = self.names if columns is None else tuple(columns)
        self.require(chosen)
        places = [self.names.index(name) for name in chosen]
        step = max(1, min(self._block_rows, _BLOCK_VALUES // len(self.names)))
        with _reading(self.path):
            for batch in self._batches(places):
                for start in range(0, batch.num_rows, step):
                    yield dict(zip(chosen, batch.slice(start, step).columns, strict=True))

    def require(self, columns: Sequence[str]) -> None:
        """Raise InputError if one of the columns is missing."""
        if missing := [name for name in columns if name not in self.names]:
            names = ", ".join(self.names[:20]) + (", ..." if len(self.names) > 20 else "")
            raise InputError(f"{self.path} has no column {missing[0]!r}; its columns are {names}")

    @abstractmethod
    def _batches(self, places: list[int]) -> Iterator[pa.RecordBatch]:
        """Yield all rows of the columns at these places."""


def open_table(path: Path) -> TableFile:
    """Open a table. Raises InputError if it is not a table or is damaged."""
    found = table_format(path)
    if found is None:
        raise InputError(f"{path} is not a table, need a {READABLE} file")
    if found.format == "csv":
        return _CsvFile(path, tabs=found.ending == ".tsv", compression=found.compression)
    return _ParquetFile(path) if found.format == "parquet" else _ArrowFile(path)


class _CsvFile(TableFile):
    def __init__(self, path: Path, *, tabs: bool, compression: str | None) -> None:
        self._compression = compression
        with _reading(path), self._open(path) as stream:
            head = stream.read(_BLOCK_BYTES)
            first = re.sub(rb'"[^"]*"', b"", head).partition(b"\n")[0]
            self._delimiter = b"\t" if tabs else max(_DELIMITERS, key=lambda code: first.count(code)).to_bytes()
            if (columns := first.count(self._delimiter) + 1) > _MOST_COLUMNS:
                raise _too_wide(path, columns)
            if head.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise InputError(f"{path} is UTF-16 text, need UTF-8: save it again as UTF-8")
            if b"\0" in head:
                raise InputError(f"{path} is not text, need a table as UTF-8 text: check its format")
        with _reading(path), self._open(path) as stream:
            own_names: list[str] = self._csv_reader(stream).schema.names
        super().__init__(path, [name.strip() for name in own_names])
        self._types = dict.fromkeys(own_names, pa.large_string())

    def _open(self, path: Path) -> pa.NativeFile:
        open_regular(path).close()
        # Not a file object of Python, because Arrow reads ahead in a thread, which would outlive the interpreter.
        stream = pa.OSFile(str(path))
        return stream if self._compression is None else pa.CompressedInputStream(stream, self._compression)

    def _csv_reader(
        self, stream: pa.NativeFile, types: dict[str, pa.DataType] | None = None
    ) -> pyarrow.csv.CSVStreamingReader:
        return pyarrow.csv.open_csv(
            stream,
            read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
            parse_options=pyarrow.csv.ParseOptions(delimiter=self._delimiter.decode(), newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(column_types=types),
        )

    def _batches(self, places: list[int]) -> Iterator[pa.RecordBatch]:
        last = None
        with self._open(self.path) as stream:
            for batch in self._csv_reader(stream, self._types):
                if last is not None:
                    yield self._chosen(last, places)
                last = batch
        if last is None or not last.num_rows:
            return
        # A quote that is never closed turns the rest of the file into the last value of the last row.
        if "\n" in last.columns[-1][-1].as_py() and self._last_byte() != b'"':
            raise InputError(f"{self.path} has a quote that is never closed: add the closing quote")
        yield self._chosen(last, places)

    def _last_byte(self) -> bytes:
        """Return the last byte of the file that is not white space."""
        last = b""
        with self._open(self.path) as stream:
            while content := stream.read(_BLOCK_BYTES):
                last = content.rstrip()[-1:] or last
        return last

    def _chosen(self, batch: pa.RecordBatch, places: list[int]) -> pa.RecordBatch:
        chosen = batch.select(places)
        return _with_decimal_points(chosen) if self._delimiter == b";" else chosen


def _opened(path: Path) -> pa.NativeFile:
    """Open a regular file for Arrow."""
    return pa.PythonFile(_BoundedFile(open_regular(path)), mode="r")


class _BoundedFile:
    """A file that is never asked for more bytes than it has, because Python allocates them first."""

    def __init__(self, stream: BufferedReader) -> None:
        self._stream, self._size = stream, os.fstat(stream.fileno()).st_size
        self.seek, self.tell, self.close = stream.seek, stream.tell, stream.close

    @property
    def closed(self) -> bool:
        return self._stream.closed

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._stream.tell())
        return self._stream.read(left if size < 0 else min(size, left))


def _with_decimal_points(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return texts such as 1,5 as 1.5, because a file with semicolons between its values has decimal commas."""
    columns = [pc.replace_substring_regex(column, _DECIMAL_COMMA, r"\1.\2") for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


class _ParquetFile(TableFile):
    def __init__(self, path: Path) -> None:
        with _reading(path), _opened(path) as stream:
            file = self._open(stream)
            schema, rows = file.schema_arrow, file.metadata.num_rows
            super().__init__(path, schema.names, _kinds(schema), rows)

    def _open(self, stream: pa.NativeFile) -> pyarrow.parquet.ParquetFile:
        return pyarrow.parquet.ParquetFile(stream, pre_buffer=False)

    def _batches(self, places: list[int]) -> Iterator[pa.RecordBatch]:
        with _opened(self.path) as stream:
            names = [self.names[place] for place in places]
            for batch in self._open(stream).iter_batches(self._block_rows, columns=names, use_threads=False):
                batch.validate(full=True)
                # Without `select`, the columns would have the order of the file.
                yield batch.select(names)


class _ArrowFile(TableFile):
    def __init__(self, path: Path) -> None:
        with _reading(path), _opened(path) as stream:
            schema = self._open(stream).schema
            super().__init__(path, schema.names, _kinds(schema))

    def _open(
        self, stream: pa.NativeFile, places: list[int] | None = None
    ) -> pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader:
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=places)
        start = stream.read(6)
        stream.seek(0)
        if start == b"ARROW1":
            return pa.ipc.open_file(stream, options=options)
        if not start.startswith(b"\xff\xff\xff\xff"):
            raise ValueError("it is not an Arrow file in the format of Feather version 2")
        return pa.ipc.open_stream(stream, options=options)

    def _batches(self, places: list[int]) -> Iterator[pa.RecordBatch]:
        with _opened(self.path) as stream:
            reader = self._open(stream, sorted(places))
            batches = reader
            if isinstance(reader, pa.ipc.RecordBatchFileReader):
                batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
            for batch in batches:
                batch.validate(full=True)
                yield batch.select([self.names[place] for place in places])


def _kinds(schema: pa.Schema) -> dict[str, Kind | None]:
    return dict(zip(schema.names, map(kind_of, schema.types), strict=True))


def _too_wide(path: Path, columns: int) -> InputError:
    return InputError(f"{path} has {columns:,} columns, need at most {_MOST_COLUMNS:,}")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Convert all errors raised in this block to InputError."""
    try:
        yield
    except InputError:
        raise
    except MemoryError:
        raise InputError(f"{path} does not fit in memory: split it into smaller files") from None
    except Exception as error:  # Arrow and Python raise many types of error for a broken file
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> InputError:
    text = str(getattr(error, "strerror", None) or error)
    if wrong := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", text):
        # Arrow counts rows, which is not the number of the line if a value before contains line breaks.
        row, need, found = map(int, wrong.groups())
        what = f"row {row - 1:,} of {path} has {counted(found, 'value')}, need {need:,}, one for each column"
        return InputError(f"{what}: check its quotes and separators")
    if "straddling" in text:
        what = f"{path} has a row of more than {_BLOCK_BYTES // 2**20} MiB or a quote that is never closed"
        return InputError(f"{what}: correct it")
    if isinstance(error, UnicodeDecodeError) or "UTF8" in text:
        return InputError(f"{path} is not UTF-8 text: save it again as UTF-8")
    if "Empty CSV" in text:
        text = "there is no line of column names with rows below it"
    return InputError(f"{path} cannot be read ({text.partition(chr(10))[0][:200]})")
