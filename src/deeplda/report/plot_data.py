"""Data for the interactive plots, packed for the page's script, and images of samples as data URIs.

Arrays of numbers are little-endian and encoded in base64. Coordinates are 16-bit steps between the lowest and highest
values on an axis, which is finer than the resolution of a screen.
"""

from __future__ import annotations

import base64
import io
import math
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deeplda.data.dataset import Inputs
from deeplda.model import ModelCard
from deeplda.report.analysis import class_densities
from deeplda.report.record import InspectedRun

Pixels = NDArray[np.uint8]

MOST_AXES = 10
MOST_DIMENSIONS = 100
MOST_VALUES = 12
_DENSITY_POINTS = 128
_STEPS = 65535
# The approximate maximum number of pixels in a sheet of thumbnails, enough for 10,000 images of 32 x 32 pixels.
_SHEET_PIXELS = 10_500_000
_SIDES = (64, 48, 32)
# The number of images that are read and shrunk at once.
_AT_ONCE = 500
# Larger sheets are stored as JPEG instead of PNG: 10,000 CIFAR-10 images take 4 MB as JPEG and 22 MB as PNG.
_LOSSLESS_PIXELS = 500_000
# JPEG encodes colours in blocks of this size; tiles that consist of whole blocks do not bleed into each other.
_BLOCK = 16


def pack_points(run: InspectedRun, samples: int = 0) -> dict[str, object]:
    """Pack the coordinates, labels, predictions and probabilities of the samples shown.

    `samples` is the index of their names and images in the page's data.
    """
    coordinates = run.coordinates[:, :MOST_AXES].astype(np.float64)
    low, high = coordinates.min(0), coordinates.max(0)
    steps = np.round((coordinates - low) / np.where(high > low, high - low, 1.0) * _STEPS)
    return {
        "axes": list(run.axes[:MOST_AXES]),
        "low": low.tolist(),
        "high": high.tolist(),
        "coordinates": _packed(steps.T, "<u2"),
        "labels": _packed(run.labels, "<u2"),
        "decided": _packed(run.decided, "<u2"),
        "probabilities": _packed(np.round(run.probabilities * _STEPS), "<u2"),
        "samples": samples,
    }


def pack_samples(run: InspectedRun) -> dict[str, object]:
    """Pack the names of the samples shown, and a sheet of thumbnails or the first values of the feature vectors."""
    names = {"names": list(run.names)}
    if run.images:
        return names | asdict(thumbnail_sheet(run.samples))
    rows = np.asarray(run.samples)
    shown = rows[:, :MOST_VALUES]
    return names | {"values": _packed(shown, "<f4"), "shown": shown.shape[1], "all": rows.shape[1]}


def pack_densities(run: InspectedRun) -> dict[str, object]:
    """Pack the density of each class along each output; all curves for one output have the same scale."""
    low, high, found = [], [], []
    for values in run.embedding[:, :MOST_DIMENSIONS].astype(np.float64).T:
        # Omit the outermost 0.1 % of the values on each side, and add a margin for the tails.
        start, end = (float(end) for end in np.quantile(values, [0.001, 0.999]))
        margin = 0.25 * (end - start) or max(abs(end) * 1e-3, 1e-6)
        low.append(start - margin)
        high.append(end + margin)
        curves = class_densities(values, run.labels, len(run.class_names), (low[-1], high[-1]), _DENSITY_POINTS)
        found.append(np.round(curves * (_STEPS / (curves.max() or 1.0))))
    return {
        "low": low,
        "high": high,
        "bins": _DENSITY_POINTS,
        "curves": _packed(np.stack(found), "<u2"),
        "all": run.embedding.shape[1],
    }


@dataclass(frozen=True)
class Sheet:
    """Many thumbnails in one image: thumbnail i is in column i % columns and row i // columns.

    Attributes:
        tile: (width, height) of a thumbnail.
        pitch: (horizontal, vertical) distance from one thumbnail to the next, at least the size of the tile.
    """

    sheet: str
    tile: tuple[int, int]
    pitch: tuple[int, int]
    columns: int


def thumbnail_sheet(images: Inputs) -> Sheet:
    """Return images N x C x H x W as one sheet. The more images, the smaller the thumbnails; no image is enlarged."""
    side = next((side for side in _SIDES if len(images) * side**2 <= _SHEET_PIXELS), _SIDES[-1])
    blocks = (images[start : start + _AT_ONCE] for start in range(0, len(images), _AT_ONCE))
    tiles = np.concatenate([_shrunk(_channels_last(np.asarray(block, np.uint8)), side) for block in blocks])
    count, height, width = tiles.shape[:3]
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    lossless = columns * width * rows * height <= _LOSSLESS_PIXELS
    block = 1 if lossless else _BLOCK
    padding = ((0, columns * rows - count), (0, -height % block), (0, -width % block))
    tiles = np.pad(tiles, (*padding, (0, 0)), mode="edge")
    down, across = tiles.shape[1:3]
    sheet = tiles.reshape(rows, columns, down, across, -1).swapaxes(1, 2).reshape(rows * down, columns * across, -1)
    return Sheet(_data_uri(sheet, lossless=lossless), (width, height), (across, down), columns)


def image_uri(image: Pixels, side: int = 96) -> str:
    """Return one image C x H x W as a data URI, shrunk if its longer side exceeds `side`."""
    (pixels,) = _shrunk(_channels_last(image[None]), side)
    return _data_uri(pixels, lossless=pixels.size <= 3 * 64**2)


def values_text(card: ModelCard, sample: NDArray[np.float32]) -> str:
    """Return the first values of a feature vector or, for a row of a table, those that are not 0, with their names."""
    if card.table is None:
        return ", ".join(f"{value:.4g}" for value in sample[:MOST_VALUES])
    named = zip(card.table.outputs, sample.tolist(), strict=True)
    shown = [name if value == 1 else f"{name} {value:.3g}" for name, value in named if value]
    return ", ".join(shown[:MOST_VALUES])


def _packed(array: NDArray[np.generic], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(array, dtype=dtype).tobytes()).decode()


def _channels_last(images: Pixels) -> Pixels:
    """Return images N x H x W x 3 or N x H x W x 1; with any other number of channels, only the first is returned."""
    shown = images if images.shape[1] in (1, 3) else images[:, :1]
    return shown.transpose(0, 2, 3, 1)


def _shrunk(images: Pixels, side: int) -> Pixels:
    """Return images N x H x W x C, shrunk if their longer side exceeds `side`."""
    height, width = images.shape[1:3]
    factor = side / max(height, width)
    if factor >= 1:
        return images
    size = max(1, round(width * factor)), max(1, round(height * factor))
    resized = [np.asarray(_image(image).resize(size, Image.Resampling.BOX)) for image in images]
    return np.stack(resized).reshape(len(images), size[1], size[0], -1)


def _image(pixels: Pixels) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels))


def _data_uri(pixels: Pixels, *, lossless: bool) -> str:
    stream, kind = io.BytesIO(), "png" if lossless else "jpeg"
    _image(pixels).save(stream, kind, optimize=lossless, quality=85)
    return f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode()}"
