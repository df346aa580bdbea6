"""`deeplda predict RUN FILES`: classify image files, or the rows of a table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from deeplda.cli.shared_options import Device, InputPath, Json, OwnNetwork, RunOrModel, Tta, check_files, flag
from deeplda.errors import FailedError, InputError
from deeplda.extras import require
from deeplda.formatting import counted
from deeplda.printing import as_csv, say, say_json, say_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from deeplda.model import Model
    from deeplda.views import Views

# The prediction for one file or row: its path or number, class, probability and, if requested, subclass, distance and
# unknown score; for a broken file, its path and the error.
Prediction = dict[str, str | float]
# The number of rows of a table that are shown on a terminal.
_MOST_ROWS = 20
_NUMBERS = ("probability", "distance", "unknown_score")


def predict(
    run: RunOrModel,
    /,
    *files: Annotated[InputPath, Parameter(help="Image files, folders of images, packs and .npz files, or one table.")],
    network: OwnNetwork = None,
    device: Device = "cpu",
    skip_unreadable: Annotated[
        bool, flag("Exit with code 0 even if some files could not be read; by default, with code 1.")
    ] = False,
    subclasses: Annotated[bool, flag("Also show the subclass.")] = False,
    distance: Annotated[
        bool, flag("Also show the distance to the nearest class, which is large for samples that fit no class.")
    ] = False,
    reject: Annotated[
        float | None,
        Parameter(
            help='Answer "none of these" for samples that are less like the training set than this share of known '
            "validation samples, such as 0.95, and show the score."
        ),
    ] = None,
    tta: Tta = None,
    csv_: Annotated[bool, flag("Print comma-separated values to stdout.", name="--csv")] = False,
    json_: Json = False,
) -> None:
    """Classify images or the rows of a table: print the file or row, the class and the probability of each.

    Image files that cannot be read are listed.
    """
    check_files(files, csv_=csv_, json_=json_)

    from deeplda.device import pick_device
    from deeplda.loading import load

    model = load(run, network=network, device=str(pick_device(device)))
    details = ["class", "probability"] + ["subclass"] * subclasses + ["distance"] * distance
    details += ["unknown_score"] * (reject is not None)
    threshold = None if reject is None else model.unknown_threshold(reject)

    def classify(samples: NDArray[np.generic]) -> list[Prediction]:
        found = _predictions(model, samples, tta=tta, subclasses=subclasses, distance=distance)
        return found if threshold is None else _with_rejections(found, model.unknown_score(samples, tta=tta), threshold)

    if model.card.table is not None:
        _classify_table(model, files, ["row", *details], classify, csv_=csv_, json_=json_)
        return
    from deeplda.cli.sample_files import listed_samples, sample_blocks

    samples = listed_samples(files, model)
    _note_calibration(model)
    predictions: list[Prediction] = []
    for block in sample_blocks(samples, model):
        found = iter(classify(block.inputs))
        predictions += [
            {"file": str(file), "error": block.errors[place]}
            if place in block.errors
            else {"file": str(file), **next(found)}
            for place, file in enumerate(block.samples)
        ]
    _show(predictions, ["file", *details], model, csv_=csv_, json_=json_)
    broken = sum("error" in prediction for prediction in predictions)
    if broken == len(predictions):
        raise FailedError("none of the files could be read, so nothing was classified")
    if broken and not skip_unreadable:
        raise FailedError(f"{broken:,} of {counted(len(predictions), 'file')} could not be read")


def _classify_table(
    model: Model,
    files: tuple[Path, ...],
    columns: list[str],
    classify: Callable[[NDArray[np.generic]], list[Prediction]],
    *,
    csv_: bool,
    json_: bool,
) -> None:
    """Print the predictions for the rows of a table, block by block, so that it need not fit in memory."""
    from deeplda.cli.sample_files import the_table

    path = the_table(files)
    require("table", "a table")
    from deeplda.data.table_source import encoded_blocks

    assert model.card.table is not None
    _note_calibration(model)
    predictions: list[Prediction] = []
    if csv_:
        say_lines(as_csv(columns, ()))
    row = 0
    blocks = encoded_blocks(path, model.card.table)
    while (block := _next_block(blocks, row, csv_=csv_)) is not None:
        found = [{"row": row + place, **prediction} for place, prediction in enumerate(classify(block), start=1)]
        row += len(block)
        if csv_:
            say_lines(as_csv(columns, found, header=False))
        elif json_:
            predictions += found
        else:
            _print_predictions(found[:_MOST_ROWS], columns)
            if row > _MOST_ROWS:
                say(f"these are the first {_MOST_ROWS} rows; pass --csv to print all of them")
            return
    if not row:
        say(f"note: {path} has no rows, so nothing was classified", file=sys.stderr)
    if json_:
        names = list(model.class_names)
        say_json({"predictions": predictions, "class_names": names, "calibrated_on": model.calibrated_on})


def _next_block(blocks: Iterator[NDArray[np.float32]], rows: int, *, csv_: bool) -> NDArray[np.float32] | None:
    """Return the next block of a table after this number of rows, or None at its end.

    If it cannot be read, the message says that the rows that were printed as CSV before are not all.
    """
    try:
        return next(blocks, None)
    except InputError as error:
        if not (csv_ and rows):
            raise
        raise InputError(f"{error}; the output is incomplete: it ends after row {rows:,}") from None


def _note_calibration(model: Model) -> None:
    from deeplda.model import uncalibrated_note

    if note := uncalibrated_note(model):
        say(f"note: {note}", file=sys.stderr)


def _show(predictions: list[Prediction], columns: list[str], model: Model, *, csv_: bool, json_: bool) -> None:
    """Print the predictions to stdout, and the errors of unreadable files to stderr."""
    classified = [prediction for prediction in predictions if "error" not in prediction]
    for prediction in predictions:
        if "error" in prediction:
            say(f"not classified: {prediction['error']}", file=sys.stderr)
    if json_:
        unreadable = [prediction for prediction in predictions if "error" in prediction]
        names, samples = list(model.class_names), model.calibrated_on
        say_json({"predictions": classified, "class_names": names, "calibrated_on": samples, "unreadable": unreadable})
    elif csv_:
        # An unreadable file has a row without a class.
        say_lines(as_csv(columns, predictions))
    elif classified:
        _print_predictions(classified, columns)


def _predictions(
    model: Model, samples: NDArray[np.generic], *, tta: Views | None, subclasses: bool, distance: bool
) -> list[Prediction]:
    predictions: list[Prediction] = [
        {"class": model.class_names[row.argmax()], "probability": round(float(row.max()), 6)}
        for row in model.predict_proba(samples, tta=tta)
    ]
    if subclasses:
        for prediction, name in zip(predictions, model.predict_subclasses(samples, tta=tta), strict=True):
            prediction["subclass"] = str(name)
    if distance:
        for prediction, far in zip(predictions, model.mahalanobis(samples, tta=tta), strict=True):
            prediction["distance"] = round(float(far), 6)
    return predictions


def _with_rejections(predictions: list[Prediction], scores: NDArray[np.float64], threshold: float) -> list[Prediction]:
    """Add the unknown scores (n,), and replace the class of samples that exceed the threshold."""
    from deeplda.predictors.unknown_scores import NONE_OF_THESE

    return [
        prediction | ({"class": NONE_OF_THESE} if score > threshold else {}) | {"unknown_score": round(float(score), 6)}
        for prediction, score in zip(predictions, scores, strict=True)
    ]


def _print_predictions(predictions: list[Prediction], columns: list[str]) -> None:
    from rich.table import Table

    from deeplda.cli.terminal import print_table

    table = Table()
    for column in columns:
        # Wrap long paths instead of truncating them, because files in one folder differ only at the end.
        table.add_column(column, justify="right" if column in _NUMBERS else "left", overflow="fold")
    for prediction in predictions:
        cells = (prediction[column] for column in columns)
        table.add_row(*(f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in cells))
    print_table(table)
