"""The images that a pack can be written from: a folder, arrays in memory, or the Parquet files of Hugging Face."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deeplda.data.dataset import Source
from deeplda.data.folder import attempt_all, common_shape, decoded
from deeplda.data.images import file_digest, read_header, resize_arrays
from deeplda.data.listed_source import Samples
from deeplda.data.listing import ImageFile, Listing, list_images
from deeplda.data.splitting import DIGEST_DTYPE, content_digest
from deeplda.errors import InputError


class FolderImages:
    """The images of a folder, in the order in which `read_folder` reads them."""

    def __init__(self, folder: Path) -> None:
        self.listing = list_images(folder)

    def shape(self, files: Sequence[ImageFile], image_size: int | None) -> tuple[int, int, int] | None:
        """Return the shape of images from their headers."""
        headers, _ = attempt_all(read_header, {file: file.path for file in files})
        return common_shape(headers, image_size) if headers else None

    def digests(self, files: Sequence[ImageFile]) -> list[bytes | None]:
        """Return the digests of files, without decoding them."""
        found, _ = attempt_all(file_digest, {file: file.path for file in files})
        return [found.get(file) for file in files]

    def read(self, files: Sequence[ImageFile], shape: tuple[int, int, int], *, resize: bool) -> Samples:
        """Decode files, as `read_folder` does."""
        return decoded(self.listing.folder, files, shape, resize=resize)


@dataclass(frozen=True, eq=False)
class ArrayImages:
    """The images of a known data set or an .npz file, named like those of a folder: train/CLASS/NUMBER."""

    source: Source

    @cached_property
    def listing(self) -> Listing:
        """The images in their order."""
        source = self.source
        if source.train.inputs.ndim != 4 or source.train.inputs.shape[1] not in (1, 3):
            found = f"{source.name} has samples of shape {source.train.inputs.shape[1:]}"
            raise InputError(found, need="images of 1 or 3 channels", do="choose other data")
        root, names = Path(source.name), source.class_names
        files = [
            ImageFile(root, f"{part}/{names[label]}", f"{place:07}", part, label)
            for part, own in self.source.parts.items()
            for place, label in enumerate(own.labels.tolist())
        ]
        return Listing(root, tuple(self.source.parts), names, tuple(files))

    def shape(self, files: Sequence[ImageFile], image_size: int | None) -> tuple[int, int, int] | None:
        """Return the shape of the arrays, or that to which they are resized."""
        channels, height, width = self.source.train.inputs.shape[1:]
        return (channels, image_size or height, image_size or width) if files else None

    def digests(self, files: Sequence[ImageFile]) -> list[bytes | None]:
        """Return the digests of the pixels, as they are before resizing."""
        return [content_digest(self._pixels(file).tobytes()) for file in files]

    def read(self, files: Sequence[ImageFile], shape: tuple[int, int, int], *, resize: bool) -> Samples:
        """Return the images, resized if necessary."""
        del resize  # arrays have one size
        pixels = resize_arrays(np.stack([self._pixels(file) for file in files]), shape[1:])
        return Samples(files, pixels, np.array(self.digests(files), dtype=DIGEST_DTYPE), {})

    def _pixels(self, file: ImageFile) -> NDArray[np.uint8]:
        return np.asarray(self.source.parts[file.part].inputs[int(file.name)], dtype=np.uint8)
