"""Decode image files, identically for folders of images and for files passed to `predict`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import IO, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from deeplda.data.mapped_rows import MappedRows
from deeplda.data.pixels import RESIZE_FILTER, image_pixels, is_grey, orientation
from deeplda.data.splitting import content_hash
from deeplda.errors import InputError
from deeplda.extras import is_installed
from deeplda.formatting import counted
from deeplda.io import open_regular
from deeplda.memory import require_memory

# An image to read: the path of a file, its content, or a file opened in binary mode.
ImageInput = str | Path | bytes | IO[bytes]

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff"})
HEIC_SUFFIXES = frozenset({".heic", ".heif", ".hif"})
READABLE = "PNG, JPEG, BMP, WebP, GIF, TIFF or HEIC"
INSTALL_HEIC = "pip install 'deeplda[heic]'"
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "GIF", "TIFF")
_HEIC_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})
# Above the size of any uncompressed image that Pillow opens; a sparse file can have any size.
_LARGEST_FILE = 2**29
# Small enough that allocating it for each file costs nothing.
_BLOCK = 2**16
_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Header:
    """The header of an image file: the (height, width) of the upright image, and whether it is greyscale."""

    size: tuple[int, int]
    grey: bool


def readable_suffixes() -> frozenset[str]:
    """Return the suffixes of files that can be read here; those of HEIC only if its extra is installed."""
    return SUFFIXES | HEIC_SUFFIXES if is_installed("pi_heif") else SUFFIXES


def read_header(source: ImageInput) -> Header:
    """Read an image's header without decoding the pixels. Raises InputError if it is not a readable image."""
    with _opened(source) as (image, _):
        width, height = image.size
        # Images with orientations 5 to 8 are rotated by 90 degrees.
        return Header((width, height) if orientation(image) >= 5 else (height, width), is_grey(image))


def decode(source: ImageInput, channels: int, size: tuple[int, int] | None = None) -> NDArray[np.uint8]:
    """Decode one image to uint8, C x H x W, as `image_pixels` does. Raises InputError if it is not a readable image."""
    with _opened(source) as (image, _):
        return image_pixels(image, channels, size)


def decode_and_digest(
    path: Path, channels: int, size: tuple[int, int] | None = None
) -> tuple[NDArray[np.uint8], bytes]:
    """Decode an image file as `decode` does, and return its pixels and the digest of its content."""
    with _opened(path) as (image, stream):
        return image_pixels(image, channels, size), _digest(stream)


def file_digest(path: Path) -> bytes:
    """Return the digest of a file's content. Raises InputError if it cannot be read."""
    with _blaming(str(path)), _stream(path) as stream:
        return _digest(stream)


def read_images(
    images: ImageInput | Sequence[ImageInput], *, channels: int, image_size: tuple[int, int]
) -> NDArray[np.uint8]:
    """Decode images into one uint8 array, N x C x H x W, exactly as training and `deeplda predict` do.

    Args:
        images: one image or several: the path of a file, the content of a file as bytes, or a file opened in binary
            mode, such as io.BytesIO. Files that you opened stay open.
        channels: 1 (greyscale) or 3 (colour).
        image_size: (height, width) to which each image is resized; `deeplda.data.image_pixels` says how.

    Raises InputError if `channels` is neither 1 nor 3, if a file is not a readable image, or if the images do not fit
    in memory.
    """
    one = isinstance(images, str | Path | bytes) or hasattr(images, "read")
    several = [cast(ImageInput, images)] if one else cast(Sequence[ImageInput], images)
    pixels, errors = read_each(several, channels=channels, image_size=image_size)
    if errors:
        raise errors[min(errors)]
    return pixels


def read_each(
    images: Sequence[ImageInput], *, channels: int, image_size: tuple[int, int]
) -> tuple[NDArray[np.uint8], dict[int, InputError]]:
    """Decode images as `read_images` does, and return the error of each unreadable one, by its index.

    The pixels of an unreadable image are undefined.
    """
    if channels not in (1, 3):
        found = f"image files cannot be decoded to {channels} channels"
        raise InputError(found, need="1 or 3", do="pass arrays to this model, not files")
    size = len(images) * channels * image_size[0] * image_size[1]
    require_memory(size, f"an array of {counted(len(images), 'image')}")
    pixels = np.empty((len(images), channels, *image_size), dtype=np.uint8)

    def fill(index: int) -> InputError | None:
        try:
            pixels[index] = decode(images[index], channels, image_size)
        except InputError as error:
            return error
        return None

    errors = in_threads(fill, range(len(images)))
    return pixels, {index: error for index, error in enumerate(errors) if error is not None}


def resize_arrays(images: NDArray[np.uint8] | MappedRows, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Resize images from N x C x H x W to N x C x (height, width), plane by plane, in the same way as `decode`."""
    if images.shape[2:] == size:
        return np.asarray(images)
    resized = np.empty((*images.shape[:2], *size), dtype=np.uint8)
    for place in range(len(images)):
        for channel, plane in enumerate(np.ascontiguousarray(images[place])):
            resized[place, channel] = np.asarray(Image.fromarray(plane).resize(size[::-1], RESIZE_FILTER))
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
def _opened(source: ImageInput) -> Iterator[tuple[Image.Image, IO[bytes]]]:
    """Open an image, and convert any error in the block to an InputError that names the file."""
    with _blaming(_name(source)), _stream(source) as stream, _image(stream) as image:
        if 0 in image.size:
            raise OSError("it has no pixels")
        yield image, stream


def _name(source: ImageInput) -> str:
    if isinstance(source, str | Path):
        return str(source)
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else "the image"


@contextmanager
def _stream(source: ImageInput) -> Iterator[IO[bytes]]:
    """Open a file or content to read; a file that the caller opened stays open."""
    if isinstance(source, bytes):
        yield BytesIO(source)
    elif isinstance(source, str | Path):
        with open_regular(Path(source)) as stream:
            if os.fstat(stream.fileno()).st_size > _LARGEST_FILE:
                raise OSError(f"the file is larger than {_LARGEST_FILE // 2**20} MiB")
            yield stream
    else:
        yield source


def _image(stream: IO[bytes]) -> Image.Image:
    try:
        return Image.open(stream, formats=_formats())
    except UnidentifiedImageError:
        stream.seek(0)
        start = stream.read(12)
        is_heic = start[4:8] == b"ftyp" and start[8:] in _HEIC_BRANDS
        if is_heic and not is_installed("pi_heif"):
            raise OSError(f"HEIC needs an extra package, {INSTALL_HEIC}") from None
        raise OSError("unknown image format") from None


@cache
def _formats() -> tuple[str, ...]:
    if not is_installed("pi_heif"):
        return _FORMATS
    import pi_heif

    pi_heif.register_heif_opener()
    return (*_FORMATS, "HEIF")


def _digest(stream: IO[bytes]) -> bytes:
    """Return the same digest as `content_digest` for the content of a file, without reading all of it at once."""
    stream.seek(0)
    found = content_hash()
    while block := stream.read(_BLOCK):
        found.update(block)
    return found.hexdigest().encode()


@contextmanager
def _blaming(name: str) -> Iterator[None]:
    """Convert any error in the block to an InputError that names the file."""
    smaller = {"need": "a smaller image", "do": "shrink or remove it"}
    try:
        yield
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise InputError(f"{name} has more than {Image.MAX_IMAGE_PIXELS:,} pixels", **smaller) from None
    except FileNotFoundError:
        raise InputError(f"{name} does not exist: check the path") from None
    except MemoryError:
        raise InputError(f"{name} does not fit in memory", **smaller) from None
    except Exception as error:  # a broken file can make a decoder raise almost anything
        reason = getattr(error, "strerror", None) or str(error)
        need, do = f"an intact {READABLE} image", "replace or remove it"
        raise InputError(f"{name} cannot be read ({reason})", need=need, do=do) from None
