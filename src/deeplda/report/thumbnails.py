"""Images of samples as data URIs, so that a page carries them itself."""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]

# A sheet has at most about so many pixels: 10,000 images of 32 x 32.
_SHEET_PIXELS = 10_500_000
_SIDES = (64, 48, 32)
# Up to this many pixels a picture is kept exactly; as JPEG a sheet of 10,000 CIFAR-10 images takes 4 MB, as PNG 22 MB.
_EXACT_PIXELS = 500_000
# JPEG's blocks of colour: tiles of whole blocks do not run into each other.
_BLOCK = 16


@dataclass(frozen=True)
class Sheet:
    """Many small images in one: image i is at column i % columns, row i // columns, each `pitch` (width, height) apart.

    `tile` is the (width, height) of an image, at most the pitch.
    """

    source: str
    tile: tuple[int, int]
    pitch: tuple[int, int]
    columns: int


def thumbnail_sheet(images: Pixels) -> Sheet:
    """Images N x C x H x W as one sheet, as large as the number of them allows and never larger than they are."""
    side = next((side for side in _SIDES if len(images) * side**2 <= _SHEET_PIXELS), _SIDES[-1])
    tiles = _shrunk(_channels_last(images), side)
    count, height, width = tiles.shape[:3]
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    exact = columns * width * rows * height <= _EXACT_PIXELS
    block = 1 if exact else _BLOCK
    padding = ((0, columns * rows - count), (0, -height % block), (0, -width % block))
    tiles = np.pad(tiles, (*padding, (0, 0)), mode="edge")
    down, across = tiles.shape[1:3]
    sheet = tiles.reshape(rows, columns, down, across, -1).swapaxes(1, 2).reshape(rows * down, columns * across, -1)
    return Sheet(_data_uri(sheet, exact), (width, height), (across, down), columns)


def picture(image: Pixels, side: int = 96) -> str:
    """One image C x H x W as a data URI, brought down to `side` where it is larger."""
    (pixels,) = _shrunk(_channels_last(image[None]), side)
    return _data_uri(pixels, exact=pixels.size <= 3 * 64**2)


def _channels_last(images: Pixels) -> Pixels:
    """N x H x W x 3 or N x H x W x 1: of other numbers of channels the first alone is shown."""
    shown = images if images.shape[1] in (1, 3) else images[:, :1]
    return shown.transpose(0, 2, 3, 1)


def _shrunk(images: Pixels, side: int) -> Pixels:
    """Images N x H x W x C whose longer side is at most `side`."""
    height, width = images.shape[1:3]
    factor = side / max(height, width)
    if factor >= 1:
        return images
    size = max(1, round(width * factor)), max(1, round(height * factor))
    resized = [np.asarray(_image(image).resize(size, Image.Resampling.BOX)) for image in images]
    return np.stack(resized).reshape(len(images), size[1], size[0], -1)


def _image(pixels: Pixels) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels))


def _data_uri(pixels: Pixels, exact: bool) -> str:
    stream = io.BytesIO()
    if exact:
        _image(pixels).save(stream, "PNG", optimize=True)
    else:
        _image(pixels).save(stream, "JPEG", quality=85)
    kind = "png" if exact else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode()}"
