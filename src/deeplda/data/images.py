"""Decode image files: one way for folders of images and for files given to `predict`."""

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

from deeplda.errors import InputError, got
from deeplda.memory import require_memory

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp"})
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP")
_GREY_MODES = frozenset({"1", "L", "LA", "La", "I"})
_EXIF_ORIENTATION = 0x0112
# By a table, as arithmetic on a large image would need several times its memory.
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
    """What the beginning of an image file says: the size as it will be shown, and whether it is stored as grey."""

    height: int
    width: int
    grey: bool


def read_header(path: Path) -> Header:
    """Size and kind of an image, without decoding it. Raises InputError where it is no readable image."""
    with _opened(path) as image:
        width, height = image.size
        # Orientations 5 to 8 lie on their side.
        if _orientation(image) >= 5:
            width, height = height, width
        return Header(height, width, _is_grey(image))


def decode(path: Path, channels: int, size: tuple[int, int] | None = None) -> NDArray[np.uint8]:
    """One image file as uint8 C x H x W.

    The first frame, turned upright by its EXIF tag, 8 bits a channel (16-bit greys divided by 257), without alpha,
    and, if `size` (height, width) is given and differs, resized to it by bilinear interpolation with antialiasing.
    Raises InputError where it is no readable image.
    """
    with _opened(path) as opened:
        if size is not None:
            # JPEG can decode at a half, quarter or eighth; twice the target leaves the resize enough to work with.
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
    """Image files as uint8 N x C x H x W, decoded as `decode` does.

    Args:
        channels: 1 (grey) or 3 (colour).
        image_size: (height, width) to which each image is brought.

    Raises InputError for other channels, for a file that is no readable image, and where they do not fit in memory.
    """
    if channels not in (1, 3):
        raise InputError(
            got(f"images of {channels} channels were asked for", need="1 or 3", do="give this model arrays, not files")
        )
    require_memory(len(paths) * channels * image_size[0] * image_size[1], f"the {len(paths):,} images")
    pixels = np.empty((len(paths), channels, *image_size), dtype=np.uint8)

    def fill(place: int) -> None:
        pixels[place] = decode(Path(paths[place]), channels, image_size)

    in_threads(fill, range(len(paths)))
    return pixels


def resize_arrays(images: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Images N x C x H x W as N x C x side x side, each plane resized as `decode` does."""
    if images.shape[2:] == (side, side):
        return images
    resized = np.empty((*images.shape[:2], side, side), dtype=np.uint8)
    for place in np.ndindex(*images.shape[:2]):
        plane = Image.fromarray(np.ascontiguousarray(images[place]))
        resized[place] = np.asarray(plane.resize((side, side), Image.Resampling.BILINEAR))
    return resized


def in_threads(function: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """`function` of each item, in a few threads (the decoders let go of Python's lock), Pillow's warnings silenced.

    The warning filters belong to the whole process, so they are set once, around all threads.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            return list(pool.map(function, items))


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    try:
        # A pipe would have us wait for ever.
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise OSError("not a regular file")
        with Image.open(path, formats=_FORMATS) as image:
            if 0 in image.size:
                raise OSError("it has no pixels")
            yield image
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise InputError(
            got(
                f"{path} has more than {Image.MAX_IMAGE_PIXELS:,} pixels",
                need="a smaller image",
                do="shrink or remove it",
            )
        ) from None
    except FileNotFoundError:
        raise InputError(f"{path} does not exist, need an image file: check the path") from None
    except MemoryError:
        raise InputError(
            got(f"{path} does not fit in memory", need="a smaller image", do="shrink or remove it")
        ) from None
    except Exception as error:  # a broken file can make a decoder raise nearly anything
        reason = "not an image we know" if isinstance(error, UnidentifiedImageError) else str(error)
        raise InputError(
            got(
                f"{path} cannot be read ({reason})",
                need="a whole PNG, JPEG, BMP or WebP image",
                do="replace or remove it",
            )
        ) from None


def _is_grey(image: Image.Image) -> bool:
    return image.mode in _GREY_MODES or image.mode.startswith("I;16")


def _to_8_bit(image: Image.Image, channels: int) -> Image.Image:
    if image.mode == "I" or image.mode.startswith("I;16"):
        image = Image.fromarray(_EIGHT_OF_SIXTEEN[np.clip(np.asarray(image), 0, 65535)])
    elif not _is_grey(image):
        # Straight from a palette or CMYK to grey is not possible everywhere; by way of RGB it is.
        image = image.convert("RGB")
    return image.convert("L" if channels == 1 else "RGB")


def _orientation(image: Image.Image) -> int:
    if image.format == "PNG" and "exif" not in image.info:
        return 1  # asking would decode the whole image
    try:
        return int(image.getexif().get(_EXIF_ORIENTATION, 1))
    except Exception:  # a broken tag does not spoil the pixels
        return 1
