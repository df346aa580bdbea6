"""Images in the Parquet files of Hugging Face, as `deeplda data pack` reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from deeplda.data.dataset import check_class_names
from deeplda.data.folder import attempt_all, common_shape, different_sizes
from deeplda.data.images import decode, read_header
from deeplda.data.listed_source import Samples
from deeplda.data.listing import ImageFile, Listing, part_named
from deeplda.data.splitting import DIGEST_DTYPE, PartName, content_digest
from deeplda.errors import InputError
from deeplda.extras import require
from deeplda.memory import require_memory

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

SUFFIX = ".parquet"
_T = TypeVar("_T")


class _Table(NamedTuple):
    """An open file: its split, its image and label columns, and the first row of each row group."""

    file: ParquetFile
    part: PartName
    image: str
    label: str
    starts: tuple[int, ...]


def parquet_files(path: Path) -> list[Path]:
    """Return the Parquet files in a folder and its subfolders, or the file itself if it is one."""
    if path.is_file():
        return [path] if path.suffix.lower() == SUFFIX else []
    return sorted(file for file in path.rglob(f"*{SUFFIX}") if file.is_file())


class ParquetImages:
    """Images in Parquet files, of which one row group at a time is in memory.

    The schema of Hugging Face names the columns of images and labels and the classes. Without it, the columns are those
    named image and label, and labels are strings. Files whose names start with train, validation or test belong to
    that split, and all others to the training set. An image is called FILE/ROW.

    Raises InputError if a file cannot be read or has no such columns, and if pyarrow is not installed.
    """

    def __init__(self, path: Path) -> None:
        require("table", "a Parquet file")
        files, root = parquet_files(path), path if path.is_dir() else path.parent
        self._path = path
        self._tables = {file.relative_to(root).as_posix(): _opened(file) for file in files}
        self._group: tuple[tuple[str, int], Any] | None = None

    @cached_property
    def listing(self) -> Listing:
        """The images in the order of the files and rows."""
        labels = {name: _labels(name, table) for name, table in self._tables.items()}
        names = next(filter(None, (_class_names(table) for table in self._tables.values())), None)
        if names is None:
            names = sorted({label for several in labels.values() for label in several})
        check_class_names(str(self._path), names)
        number = {name: place for place, name in enumerate(names)}
        files: list[ImageFile] = []
        for name, table in self._tables.items():
            for row, label in enumerate(labels[name]):
                if label not in number:
                    raise InputError(f"row {row} of {name} has the unknown label {label!r}: leave out unlabelled files")
                files.append(ImageFile(self._path, f"{table.part}/{label}", f"{name}/{row}", table.part, number[label]))
        return Listing.of(self._path, names, files)

    def shape(self, files: Sequence[ImageFile], image_size: int | None) -> tuple[int, int, int] | None:
        """Return the shape of images from their headers."""
        headers, _ = self._each(files, read_header)
        return common_shape(headers, image_size) if headers else None

    def digests(self, files: Sequence[ImageFile]) -> list[bytes | None]:
        """Return the digests of the contents."""
        found, _ = self._each(files, lambda stream: content_digest(stream.getbuffer()))
        return [found.get(file) for file in files]

    def read(self, files: Sequence[ImageFile], shape: tuple[int, int, int], *, resize: bool) -> Samples:
        """Decode images, as those of a folder are."""
        size = (shape[1], shape[2])

        def pixels_and_digest(stream: _Image) -> tuple[Any, bytes]:
            pixels = decode(stream, shape[0], size if resize else None)
            if pixels.shape[1:] != size:
                raise different_sizes(files[0].path, size, Path(stream.name), pixels.shape[1:])
            return pixels, content_digest(stream.getbuffer())

        found, errors = self._each(files, pixels_and_digest)
        pixels = np.empty((len(found), *shape), dtype=np.uint8)
        for place, (image, _) in enumerate(found.values()):
            pixels[place] = image
        return Samples(tuple(found), pixels, np.array([d for _, d in found.values()], dtype=DIGEST_DTYPE), errors)

    def _each(
        self, files: Sequence[ImageFile], function: Callable[[_Image], _T]
    ) -> tuple[dict[ImageFile, _T], dict[ImageFile, InputError]]:
        """Apply a function to the contents of images, row group by row group."""
        found: dict[ImageFile, _T] = {}
        errors: dict[ImageFile, InputError] = {}
        for group in self._row_groups(files):
            results, failed = attempt_all(lambda image: function(image()), {file: self._image(file) for file in group})
            found |= results
            errors |= failed
        return found, errors

    def _row_groups(self, files: Sequence[ImageFile]) -> Iterator[list[ImageFile]]:
        """Yield the images of each row group, while its contents are in memory."""
        together: dict[tuple[str, int], list[ImageFile]] = {}
        for file in files:
            name, row = _place(file)
            starts = self._tables[name].starts
            together.setdefault((name, int(np.searchsorted(starts, row, "right")) - 1), []).append(file)
        for (name, number), group in together.items():
            if self._group is None or self._group[0] != (name, number):
                self._group = None  # first release the memory
                self._group = (name, number), _row_group(name, self._tables[name], number)
            yield group

    def _image(self, file: ImageFile) -> Callable[[], _Image]:
        """Return a function that returns the contents of an image in the current row group."""
        assert self._group is not None
        (name, number), column = self._group
        row = _place(file)[1] - self._tables[name].starts[number]

        def image() -> _Image:
            content = column[row].as_py()
            if content is None:
                raise InputError(f"{file.relative} has no content: pack files that contain their images")
            return _Image(file.relative, content)

        return image


class _Image(BytesIO):
    """The content of an image, with a name for messages."""

    def __init__(self, name: str, content: bytes) -> None:
        super().__init__(content)
        self.name = name


def _place(file: ImageFile) -> tuple[str, int]:
    """Return the file and the row of an image."""
    name, _, row = file.name.rpartition("/")
    return name, int(row)


def _opened(path: Path) -> _Table:
    import pyarrow.parquet as parquet

    with _blaming(path):
        file = parquet.ParquetFile(path)
        features = _features(file)
        columns = {name: str(kind.get("_type")) for name, kind in features.items() if isinstance(kind, dict)}
        names = file.schema_arrow.names
        image = next((name for name, kind in columns.items() if kind == "Image"), "image")
        label = next((name for name, kind in columns.items() if kind == "ClassLabel"), "label")
        for name in (image, label):
            if name not in names:
                what = f"{path} has no column {name!r}; its columns are {', '.join(names[:10])}"
                raise InputError(what, need="images and labels", do="pass Parquet files of images from Hugging Face")
        groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        part = part_named(path.stem.split("-")[0]) or "train"
        return _Table(file, part, image, label, (0, *accumulate(groups))[:-1])


def _features(file: ParquetFile) -> dict[str, Any]:
    """Return the description of the columns that Hugging Face stores in the schema; empty if there is none."""
    try:
        found = json.loads((file.schema_arrow.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _class_names(table: _Table) -> list[str] | None:
    kind = _features(table.file).get(table.label)
    names = kind.get("names") if isinstance(kind, dict) else None
    # Some files have a dict of names by number.
    names = list(names.values()) if isinstance(names, dict) else names
    return list(map(str, names)) if isinstance(names, list) and len(set(map(str, names))) == len(names) else None


def _labels(name: str, table: _Table) -> list[str]:
    """Return the class name of each row; a number without a name stands for itself."""
    with _blaming(Path(name)):
        found = table.file.read(columns=[table.label]).column(0).to_pylist()
    names = _class_names(table)
    known = dict(enumerate(names or []))
    return [known.get(label, str(label)) for label in found]


def _row_group(name: str, table: _Table, number: int) -> Any:
    """Return the contents of a row group's images, as an array of bytes."""
    import pyarrow

    with _blaming(Path(name)):
        size = table.file.metadata.row_group(number).total_byte_size
        require_memory(size, f"row group {number} of {name}", do="write the file again with smaller row groups")
        column = table.file.read_row_group(number, columns=[table.image]).column(0).combine_chunks()
        if pyarrow.types.is_struct(column.type):
            column = column.field("bytes")
        if not (pyarrow.types.is_binary(column.type) or pyarrow.types.is_large_binary(column.type)):
            raise InputError(f"the column {table.image!r} of {name} is of type {column.type}, need encoded images")
        return column


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Convert the errors of pyarrow in the block to an InputError that names the file."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # pyarrow raises several types of error for a broken file
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{path} cannot be read ({reason})", need="an intact Parquet file", do="fetch it again"
        ) from None
