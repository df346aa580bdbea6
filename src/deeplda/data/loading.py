"""From the name of a source to its data in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from deeplda.data import digits, folder, npz
from deeplda.data.dataset import Data, Part, Source, complete
from deeplda.data.images import resize_arrays
from deeplda.data.known import KNOWN, nearest_known, read_known
from deeplda.errors import InputError, got
from deeplda.io import expanded
from deeplda.memory import require_memory


def load_data(
    source: str | Path = "digits",
    *,
    data_dir: Path | None = None,
    image_size: int | None = None,
    split_seed: int = 0,
    skip_unreadable: bool = False,
) -> Data:
    """Read a source and give its three parts.

    Args:
        source: a known name (`KNOWN`), a folder of images, or an .npz file. A known name wins over a folder of the
            same name; write ./digits for the folder.
        data_dir: where the known sets are; default the variable DEEPLDA_DATA, else the user's cache folder.
        image_size: bring every image to this height and width.
        split_seed: moves the split where the source does not have all three parts. Without a test part the whole is
            split 70/15/15; with one, validation is taken out of train (CIFAR-10 4 %, STL-10 20 %, MNIST and
            Fashion-MNIST 10 %, others 15 %); with validation but no test, 15 % of train becomes test. Stratified.
        skip_unreadable: leave broken files of a folder out and list them in `Data.left_out`, instead of raising.

    Raises:
        InputError: the source is not there, broken, or too large for memory.
    """
    if image_size is not None and image_size < 1:
        raise InputError(got(f"image_size is {image_size}", need="1 or more", do="pass a number of pixels"))
    if split_seed < 0:
        raise InputError(got(f"split_seed is {split_seed}", need="0 or more", do="pass another seed"))
    try:
        found = _read(source, data_dir, image_size, skip_unreadable)
    except OSError as error:
        raise InputError(
            got(f"{error.filename or source} cannot be read ({error.strerror})", need="a readable file", do="check it")
        ) from None
    check_names(found.name, found.class_names)
    return complete(found if image_size is None else _resized(found, image_size), split_seed)


def check_names(source: str, class_names: Sequence[str]) -> None:
    """Raise InputError for a class whose name no file of ours could hold, such as a folder's that is not UTF-8."""
    for name in class_names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InputError(got(f"a class of {source} is named {name!r}", need="UTF-8", do="rename it")) from None


def find_source(source: str | Path) -> str | Path:
    """A known name as it is, or the path of a folder or .npz file that exists. Raises InputError for neither."""
    if source in KNOWN:
        return str(source)
    path = expanded(source)
    if path.is_dir() or (path.is_file() and path.suffix.lower() == ".npz"):
        return path
    if path.is_file():
        raise InputError(got(f"{source} is a file", need="a folder of images or an .npz file", do="give one of these"))
    raise InputError(
        got(f"{source} does not exist", need="a known name, a folder or an .npz file", do=nearest_known(str(source)))
    )


def _read(source: str | Path, data_dir: Path | None, image_size: int | None, skip_unreadable: bool) -> Source:
    found = find_source(source)
    if found == "digits":
        return digits.read()
    if isinstance(found, str):
        return read_known(found, data_dir)
    return folder.read(found, image_size, skip_unreadable) if found.is_dir() else npz.read(found)


def _resized(source: Source, side: int) -> Source:
    def resized(part: Part) -> Part:
        return replace(part, inputs=resize_arrays(cast(NDArray[np.uint8], part.inputs), side))

    if source.train.inputs.ndim != 4:
        raise InputError(
            got(f"{source.name} has rows of features", need="images to resize", do="leave out --image-size")
        )
    samples = len(source.train) + len(source.val or ()) + len(source.test or ())
    require_memory(samples * source.train.inputs.shape[1] * side**2, f"{source.name} at {side} x {side}")
    return replace(
        source,
        train=resized(source.train),
        val=source.val and resized(source.val),
        test=source.test and resized(source.test),
    )
