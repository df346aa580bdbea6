"""Decode image files, identically for folders of images and for files passed to `predict`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from deeplda.errors import InputError
from deeplda.formatting import counted
from deeplda.io import open_regular
from deeplda.memory import require_memory

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp"})
READABLE = "PNG, JPEG, BMP or WebP"
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP")
_GREY_MODES = frozenset({"1", "L", "LA", "La", "I"})
_EXIF_ORIENTATION = 0x0112
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
_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Header:
    """The header of an image file: the (height, width) of the upright image, and whether it is greyscale."""

    size: tuple[int, int]
    grey: bool


def read_header(path: Path) -> Header:
    """Read an image's header without decoding the pixels. Raises InputError if it is not a readable image."""
    with _opened(path) as image:
        width, height = image.size
        # Images with orientations 5 to 8 are rotated by 90 degrees.
        return Header((width, height) if _orientation(image) >= 5 else (height, width), _is_grey(image))


def decode(path: Path, channels: int, size: tuple[int, int] | None = None) -> NDArray[np.uint8]:
    """Decode one image file to uint8, C x H x W.

    The result is the first frame, rotated according to its EXIF tag, with 8 bits per channel (16-bit grey values are
    divided by 257) and without alpha. If `size` (height, width) differs from the image's size, the image is resized by
    bilinear interpolation with antialiasing. Raises InputError if the file is not a readable image.
    """
    with _opened(path) as opened:
        if size is not None:
            # A JPEG can be decoded at 1/2, 1/4 or 1/8 of its size; twice the target leaves enough detail for resizing.
            opened.draft(None, (2 * max(size), 2 * max(size)))
        opened.load()
        image = _to_8_bit(opened, channels)
        if (method := _UPRIGHT.get(_orientation(opened))) is not None:
            image = image.transpose(method)
        if size is not None and image.size != size[::-1]:
            image = image.resize(size[::-1], Image.Resampling.BILINEAR)
        pixels = np.asarray(image, dtype=np.uint8)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def read_images(paths: Sequence[Path], *, channels: int, image_size: tuple[int, int]) -> NDArray[np.uint8]:
    """Decode image files into one uint8 array, N x C x H x W.

    Args:
        channels: 1 (greyscale) or 3 (colour).
        image_size: (height, width) to which each image is resized.

    Raises InputError if `channels` is neither 1 nor 3, if a file is not a readable image, or if the images do not fit
    in memory.
    """
    if channels not in (1, 3):
        found = f"image files cannot be decoded to {channels} channels"
        raise InputError(found, need="1 or 3", do="pass arrays to this model, not files")
    size = len(paths) * channels * image_size[0] * image_size[1]
    require_memory(size, f"an array of {counted(len(paths), 'image')}")
    pixels = np.empty((len(paths), channels, *image_size), dtype=np.uint8)

    def fill(index: int) -> None:
        pixels[index] = decode(Path(paths[index]), channels, image_size)

    in_threads(fill, range(len(paths)))
    return pixels


def resize_arrays(images: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Resize images from N x C x H x W to N x C x side x side, plane by plane, in the same way as `decode`."""
    if images.shape[2:] == (side, side):
        return images
    resized = np.empty((*images.shape[:2], side, side), dtype=np.uint8)
    for index in np.ndindex(*images.shape[:2]):
        plane = Image.fromarray(np.ascontiguousarray(images[index]))
        resized[index] = np.asarray(plane.resize((side, side), Image.Resampling.BILINEAR))
    return resized


def in_threads(function: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """Apply a function to each item in a few threads, with Pillow's warnings silenced.

    Threads help because the decoders release Python's global interpreter lock. Warning filters apply to the whole
    process, so they are set once, around all threads.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            return list(pool.map(function, items))


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """Open an image, and convert any error in the block to an InputError that names the file."""
    smaller = {"need": "a smaller image", "do": "shrink or remove it"}
    try:
        with open_regular(path) as stream, Image.open(stream, formats=_FORMATS) as image:
            if 0 in image.size:
                raise OSError("it has no pixels")
            yield image
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise InputError(f"{path} has more than {Image.MAX_IMAGE_PIXELS:,} pixels", **smaller) from None
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: check the path") from None
    except MemoryError:
        raise InputError(f"{path} does not fit in memory", **smaller) from None
    except Exception as error:  # a broken file can make a decoder raise almost anything
        reason = getattr(error, "strerror", None) or str(error)
        reason = "unknown image format" if isinstance(error, UnidentifiedImageError) else reason
        need, do = f"an intact {READABLE} image", "replace or remove it"
        raise InputError(f"{path} cannot be read ({reason})", need=need, do=do) from None


def _is_grey(image: Image.Image) -> bool:
    return image.mode in _GREY_MODES or image.mode.startswith("I;16")


def _to_8_bit(image: Image.Image, channels: int) -> Image.Image:
    if image.mode == "I" or image.mode.startswith("I;16"):
        image = Image.fromarray(_EIGHT_OF_SIXTEEN[np.clip(np.asarray(image), 0, 65535)])
    elif not _is_grey(image):
        # Pillow cannot convert every mode directly to greyscale, but it can do so via RGB.
        image = image.convert("RGB")
    return image.convert("L" if channels == 1 else "RGB")


def _orientation(image: Image.Image) -> int:
    if image.format == "PNG" and "exif" not in image.info:
        return 1  # getexif would decode the whole image
    try:
        return int(image.getexif().get(_EXIF_ORIENTATION, 1))
    except Exception:  # the pixels can be fine even if the tag is broken
        return 1
