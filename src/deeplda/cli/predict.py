"""`deeplda predict RUN FILES`: classes of image files."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from deeplda.errors import InputError, one_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from deeplda.model import Model

_BATCH = 500


# What the model says of one file: file, class, probability and, where asked for, subclass and distance.
Prediction = dict[str, str | float]


def predict(
    run: Annotated[Path, Parameter(help="Folder of a finished run, or of a model.")],
    /,
    *files: Annotated[Path, Parameter(help="Image files, and folders of them.")],
    network: Annotated[str | None, Parameter(help="For a network of your own: module.path:callable.")] = None,
    device: Annotated[str, Parameter(help="cpu, cuda, ...")] = "cpu",
    skip_unreadable: Annotated[bool, Parameter(negative="", help="Leave broken files out.")] = False,
    subclasses: Annotated[bool, Parameter(negative="", help="The subclass as well.")] = False,
    distance: Annotated[
        bool, Parameter(negative="", help="The distance to the nearest class too: large for what is like none.")
    ] = False,
    tta: Annotated[
        Literal["mirror"] | None, Parameter(help="Average the embeddings of each image and its mirror image.")
    ] = None,
    csv_: Annotated[bool, Parameter(name="--csv", negative="", help="Comma-separated on stdout.")] = False,
    json_: Annotated[bool, Parameter(name="--json", negative="", help="One JSON object on stdout.")] = False,
) -> None:
    """Classify images: file, class and probability of each."""
    if not files:
        raise InputError("no files were given: name image files or folders after the run")
    if csv_ and json_:
        raise InputError("--csv and --json were given: choose one")

    from deeplda.device import pick_device
    from deeplda.loading import load

    model = load(run, network=network, device=str(pick_device(device)))
    if len(model.card.sample_shape) != 3:
        raise InputError(f"the model of {run} takes rows of numbers: use deeplda.load({str(run)!r}).predict(rows)")
    predictions: list[Prediction] = []
    for read, images in _batches(_images_of(files), model.card.sample_shape, skip_unreadable=skip_unreadable):
        found = _predictions(model, images, mirror=tta == "mirror", subclasses=subclasses, distance=distance)
        predictions += [{"file": str(file), **prediction} for file, prediction in zip(read, found, strict=True)]
    columns = ["file", "class", "probability"] + ["subclass"] * subclasses + ["distance"] * distance
    if json_:
        print(json.dumps({"predictions": predictions, "class_names": list(model.class_names)}))
    elif csv_:
        writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(predictions)
    else:
        _show(predictions, columns)


def _images_of(paths: tuple[Path, ...]) -> list[Path]:
    """The files named, and the image files within the folders named."""
    from deeplda.data.folder import image_files

    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += image_files(path)
        elif path.is_file():
            found.append(path)
        else:
            what = "is neither a file nor a folder" if path.exists() else "does not exist"
            raise InputError(f"{path} {what}: name image files or folders")
    if not found:
        raise InputError(f"no image is in {', '.join(map(str, paths))}: PNG, JPEG, BMP and WebP are read")
    return found


def _predictions(
    model: Model, images: NDArray[np.uint8], *, mirror: bool, subclasses: bool, distance: bool
) -> list[Prediction]:
    """What the model says of each image."""
    predictions: list[Prediction] = [
        {"class": model.class_names[row.argmax()], "probability": round(float(row.max()), 6)}
        for row in model.predict_proba(images, mirror=mirror)
    ]
    if subclasses:
        for prediction, name in zip(predictions, model.predict_subclasses(images, mirror=mirror), strict=True):
            prediction["subclass"] = str(name)
    if distance:
        for prediction, far in zip(predictions, model.mahalanobis(images, mirror=mirror), strict=True):
            prediction["distance"] = round(float(far), 6)
    return predictions


def _batches(
    files: list[Path], shape: tuple[int, ...], *, skip_unreadable: bool
) -> Iterator[tuple[list[Path], NDArray[np.uint8]]]:
    for start in range(0, len(files), _BATCH):
        yield _read(files[start : start + _BATCH], shape, skip_unreadable=skip_unreadable)


def _read(files: list[Path], shape: tuple[int, ...], *, skip_unreadable: bool) -> tuple[list[Path], NDArray[np.uint8]]:
    """The images of the files, and which files they are: all, or those that can be read."""
    import numpy as np

    from deeplda.data import read_images

    channels, size = shape[0], (shape[1], shape[2])
    if not skip_unreadable:
        return files, read_images(files, channels=channels, image_size=size)
    sound, images = [], [np.empty((0, *shape), dtype=np.uint8)]
    for file in files:
        try:
            images.append(read_images([file], channels=channels, image_size=size))
            sound.append(file)
        except InputError as error:
            print(f"left out: {error}", file=sys.stderr)
    return sound, np.concatenate(images)


def _show(predictions: list[Prediction], columns: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for column in columns:
        # Whole names, over several lines if need be: those of one folder differ at their ends.
        table.add_column(column, justify="right" if column in ("probability", "distance") else "left", overflow="fold")
    for prediction in predictions:
        cells = (prediction[column] for column in columns)
        table.add_row(*(f"{cell:.4f}" if isinstance(cell, float) else one_line(cell) for cell in cells))
    # Names are the data's own: brackets in them are no markup.
    Console(highlight=False, markup=False).print(table)
