"""`deeplda similar RUN FILES --in FOLDER`: find the most similar images in a folder, or rows in a table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from cyclopts import Parameter

from deeplda.cli.shared_options import (
    Device,
    InputPath,
    Json,
    OutputPath,
    OwnNetwork,
    RunOrModel,
    Tta,
    WholeNumber,
    check_files,
    flag,
)
from deeplda.errors import FailedError, InputError
from deeplda.extras import require
from deeplda.formatting import counted
from deeplda.printing import as_csv, say, say_json, say_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from deeplda.cli.sample_files import Sample
    from deeplda.model import Model
    from deeplda.predictors.nearest_rows import Neighbours
    from deeplda.views import Views

# The number of queries whose neighbours are shown on a terminal.
_MOST_QUERIES = 20


def similar(
    run: RunOrModel,
    /,
    *files: Annotated[InputPath, Parameter(help="Image files, folders of images, packs and .npz files, or one table.")],
    in_: Annotated[
        InputPath, Parameter(name="--in", help="Where to search: a folder of images, a pack, an .npz file or a table.")
    ],
    count: Annotated[WholeNumber, Parameter(help="Number of similar samples for each file or row.")] = 10,
    network: OwnNetwork = None,
    device: Device = "cpu",
    skip_unreadable: Annotated[
        bool, flag("Exit with code 0 even if some files could not be read; by default, with code 1.")
    ] = False,
    tta: Tta = None,
    output: Annotated[OutputPath | None, Parameter(help="Also write a page of thumbnails to this .html file.")] = None,
    csv_: Annotated[bool, flag("Print comma-separated values to stdout.", name="--csv")] = False,
    json_: Json = False,
) -> None:
    """Find the images in a folder, or the rows of a table, that are most similar to those given.

    Similar samples are near each other in discriminant coordinates. Exact copies of a query are left out. Image files
    that cannot be read are listed.
    """
    check_files(files, csv_=csv_, json_=json_)
    if count < 1:
        raise InputError(f"--count must be at least 1, got {count}")
    if output is not None and output.is_dir():
        raise InputError(f"{output} is a folder: pass a file as --output")

    from deeplda.device import pick_device
    from deeplda.loading import load
    from deeplda.predictors.nearest_rows import NearestRows

    model = load(run, network=network, device=str(pick_device(device)))
    if output is not None and len(model.card.sample_shape) != 3:
        raise InputError("--output needs images, but the model takes rows of numbers: use --csv")
    queries, gallery = _Source(files, model, tta), _Source((in_,), model, tta)
    searched = queries.read()
    search = NearestRows(searched.coordinates, count, searched.keys)
    gallery_names: list[Sample | int] = []
    gallery_classes: list[str] = []
    for block in gallery.blocks():
        search.add(block.coordinates, block.keys)
        gallery_names += block.samples
        gallery_classes += block.classes
    _report_broken(queries, gallery)
    if not gallery_names:
        raise FailedError(f"none of the files could be read in {in_}, so nothing was compared")
    found = _Found(searched.samples, searched.classes, gallery_names, gallery_classes, search.found(), queries.kind)
    if search.copies:
        say(f"note: exact copies of the queries in {in_}, which are left out: {search.copies:,}", file=sys.stderr)
    if output is not None:
        _write_page(output, found, model, run, in_)
    if json_:
        say_json(
            {"queries": found.nested(), "copies_left_out": search.copies, "unreadable": queries.broken + gallery.broken}
        )
    elif csv_:
        say_lines(as_csv(["query", "rank", queries.kind, "class", "distance"], found.rows(len(found.queries))))
    elif output is None:
        _print(found)
    else:
        say(f"wrote {output}")
    broken = len(queries.broken) + len(gallery.broken)
    if broken and not skip_unreadable:
        raise FailedError(f"{counted(broken, 'file')} could not be read")


class _Embedded(NamedTuple):
    """Samples in discriminant coordinates (n, m), with their predicted classes and keys that copies share."""

    samples: list[Sample | int]
    coordinates: NDArray[np.float64]
    classes: list[str]
    keys: NDArray[np.int64]


class _Source:
    """Samples to compare: images and arrays, or the rows of a table, which are counted from 1.

    Attributes:
        kind: "file" or "row".
        broken: the files that could not be read, with their errors.
    """

    def __init__(self, paths: Sequence[Path], model: Model, tta: Views | None) -> None:
        from deeplda.cli.sample_files import listed_samples, the_table

        self._model, self._tta, self._map = model, tta, model.discriminant_map()
        self.kind = "file" if model.card.table is None else "row"
        self.broken: list[dict[str, str]] = []
        if model.card.table is None:
            self._samples = listed_samples(paths, model)
        else:
            self._path = the_table(paths)
            require("table", "a table")

    def blocks(self) -> Iterator[_Embedded]:
        """Yield the samples that can be read, in blocks."""
        import numpy as np
        import torch

        for samples, inputs in self._inputs():
            if not len(inputs):
                continue
            embedding = torch.cat(list(self._model.embeddings(inputs, tta=self._tta)))
            classes = [self._model.class_names[c] for c in self._model.class_scores(embedding).argmax(1).tolist()]
            keys = np.array([hash(row.tobytes()) for row in inputs], dtype=np.int64)
            yield _Embedded(samples, self._map(embedding).numpy(), classes, keys)

    def read(self) -> _Embedded:
        """Return all samples that can be read."""
        import numpy as np

        blocks = list(self.blocks())
        if not blocks:
            _report_broken(self)
            raise FailedError("none of the files could be read, so nothing was compared")
        return _Embedded(
            [sample for block in blocks for sample in block.samples],
            np.concatenate([block.coordinates for block in blocks]),
            [name for block in blocks for name in block.classes],
            np.concatenate([block.keys for block in blocks]),
        )

    def _inputs(self) -> Iterator[tuple[list[Sample | int], NDArray[np.generic]]]:
        if self._model.card.table is None:
            from deeplda.cli.sample_files import sample_blocks

            for block in sample_blocks(self._samples, self._model):
                self.broken += [{"file": str(block.samples[i]), "error": what} for i, what in block.errors.items()]
                yield [*block.readable], block.inputs
            return
        from deeplda.data.table_source import encoded_blocks

        row = 1
        for rows in encoded_blocks(self._path, self._model.card.table):
            yield [*range(row, row + len(rows))], rows
            row += len(rows)


class _Found(NamedTuple):
    """The neighbours of each query; samples are files or rows of tables, as `kind` says."""

    queries: list[Sample | int]
    query_classes: list[str]
    gallery: list[Sample | int]
    gallery_classes: list[str]
    neighbours: Neighbours
    kind: str

    def similar_to(self, place: int) -> list[tuple[int, float]]:
        """Return the places in the gallery and the distances of the neighbours of a query, nearest first."""
        pairs = zip(self.neighbours.indices[place].tolist(), self.neighbours.distances[place].tolist(), strict=True)
        return [(index, round(distance, 6)) for index, distance in pairs if index >= 0]

    def rows(self, most: int) -> list[dict[str, str | int | float]]:
        """Return one row for each neighbour of the first queries."""
        return [
            {
                "query": _name(query),
                "rank": rank,
                self.kind: _name(self.gallery[index]),
                "class": self.gallery_classes[index],
                "distance": distance,
            }
            for place, query in enumerate(self.queries[:most])
            for rank, (index, distance) in enumerate(self.similar_to(place), start=1)
        ]

    def nested(self) -> list[dict[str, object]]:
        """Return one entry for each query, with a list of its neighbours."""
        return [
            {
                self.kind: _name(query),
                "class": self.query_classes[place],
                "similar": [
                    {self.kind: _name(self.gallery[i]), "class": self.gallery_classes[i], "distance": distance}
                    for i, distance in self.similar_to(place)
                ],
            }
            for place, query in enumerate(self.queries)
        ]


def _name(sample: Sample | int) -> str | int:
    return sample if isinstance(sample, int) else str(sample)


def _report_broken(*sources: _Source) -> None:
    for broken in (broken for source in sources for broken in source.broken):
        say(f"not compared: {broken['error']}", file=sys.stderr)


def _print(found: _Found) -> None:
    from rich.table import Table

    from deeplda.cli.terminal import print_table

    table = Table()
    for column in ("query", found.kind, "class", "distance"):
        # Wrap long paths instead of truncating them, because files in one folder differ only at the end.
        table.add_column(column, justify="right" if column == "distance" else "left", overflow="fold")
    for row in found.rows(_MOST_QUERIES):
        name = str(row["query"]) if row["rank"] == 1 else ""
        table.add_row(name, str(row[found.kind]), str(row["class"]), f"{row['distance']:.3f}")
    print_table(table)
    if len(found.queries) > _MOST_QUERIES:
        say(f"these are the first {_MOST_QUERIES} of {len(found.queries):,} queries; pass --csv to print all of them")


def _write_page(output: Path, found: _Found, model: Model, run: Path, gallery: Path) -> None:
    from deeplda.cli.sample_files import read_samples
    from deeplda.output_folder import write_file
    from deeplda.report.similar_page import MOST_QUERIES, Picture, similar_page

    def picture(sample: Sample | int, class_name: str, distance: float | None = None) -> Picture:
        assert not isinstance(sample, int)
        pixels, _ = read_samples([sample], model.card.sample_shape)
        return Picture(str(sample), class_name, pixels[0] if len(pixels) else None, distance)

    groups = [
        (
            picture(query, found.query_classes[place]),
            [picture(found.gallery[i], found.gallery_classes[i], far) for i, far in found.similar_to(place)],
        )
        for place, query in enumerate(found.queries[:MOST_QUERIES])
    ]
    title = f"{counted(len(found.gallery), 'image')} in {gallery}, compared by {run}"
    write_file(output, similar_page(title, groups, len(found.queries)))
