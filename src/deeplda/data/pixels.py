"""The pixels that a model sees: how an opened image is turned upright, converted and resized.

This file needs only NumPy and Pillow, so a service that runs an exported model can import it without PyTorch, or copy
it. Training and `deeplda predict` use the same function.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

# Pillow's bilinear filter. When it shrinks an image, its support grows with the factor (antialiasing), unlike that of
# OpenCV's INTER_LINEAR or of torch's interpolate without antialias=True.
RESIZE_FILTER = Image.Resampling.BILINEAR

_GREY_MODES = frozenset({"1", "L", "LA", "La", "I"})
_EXIF_ORIENTATION = 0x0112
# The decoders of these formats turn the image themselves; TIFF may still have the tag.
_TURNED_BY_DECODER = ("TIFF", "HEIF")
# A lookup table, because arithmetic on a large image would need several times its memory.
_EIGHT_OF_SIXTEEN = ((np.arange(65536) + 128) // 257).astype(np.uint8)
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def image_pixels(image: Image.Image, channels: int, size: tuple[int, int] | None = None) -> NDArray[np.uint8]:
    """Return the pixels of an opened image as uint8, C x H x W.

    The steps are: decode the first frame (a JPEG at 1/2, 1/4 or 1/8 of its size if that is at least twice the larger
    side of `size`), convert it to 8 bits per channel (16-bit grey values are divided by 257) without alpha, convert it
    to greyscale (ITU-R 601-2 luma) or RGB, turn it upright according to its EXIF tag, and resize it with
    `RESIZE_FILTER`. The aspect ratio is not kept.

    Args:
        channels: 1 (greyscale) or 3 (RGB).
        size: (height, width) of the result; by default, that of the upright image.

    Raises ValueError if the image has pixels of 32 bits, whose range is unknown, and whatever Pillow raises for a
    broken file.
    """
    if size is not None:
        # Twice the target leaves enough detail for resizing.
        image.draft(None, (2 * max(size), 2 * max(size)))
    image.load()
    found = _to_8_bit(image, channels)
    if (method := _UPRIGHT.get(orientation(image))) is not None:
        found = found.transpose(method)
    if size is not None and found.size != size[::-1]:
        found = found.resize(size[::-1], RESIZE_FILTER)
    pixels = np.asarray(found, dtype=np.uint8)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def orientation(image: Image.Image) -> int:
    """Return the EXIF orientation that remains to be applied; 1 is upright, 5 to 8 exchange width and height."""
    if image.format in _TURNED_BY_DECODER or (image.format == "PNG" and "exif" not in image.info):
        return 1  # for a PNG, getexif would decode the whole image
    try:
        return int(image.getexif().get(_EXIF_ORIENTATION, 1))
    except Exception:  # the pixels can be fine even if the tag is broken
        return 1


def is_grey(image: Image.Image) -> bool:
    """Return whether an image is greyscale; a palette image counts as colour."""
    return image.mode in _GREY_MODES or image.mode.startswith("I;16")


def _to_8_bit(image: Image.Image, channels: int) -> Image.Image:
    if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):
        raise ValueError("its pixels have 32 bits; convert it to 8 or 16 bits")
    if image.mode == "I" or image.mode.startswith("I;16"):
        image = Image.fromarray(_EIGHT_OF_SIXTEEN[np.clip(np.asarray(image), 0, 65535)])
    elif not is_grey(image):
        # Pillow cannot convert every mode directly to greyscale, but it can do so via RGB.
        image = image.convert("RGB")
    return image.convert("L" if channels == 1 else "RGB")
