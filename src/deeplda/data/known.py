"""The known sets: where their files are looked for, and what reads them."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from deeplda.data import cifar10, mnist, stl10
from deeplda.data.dataset import Source
from deeplda.errors import InputError, got
from deeplda.io import expanded


@dataclass(frozen=True)
class KnownSet:
    """A set that is kept in files of its own under the data folder.

    Attributes:
        folders: sub-folders of the data folder where the files usually are; `fetch` puts them in the first.
        files: the files the set has in a folder, whether they are there or not.
        read: all parts the files hold.
        describe: what one file holds, in words; InputError where it is not whole.
    """

    folders: tuple[str, ...]
    files: Callable[[Path], list[Path]]
    read: Callable[[Path], Source]
    describe: Callable[[Path], str]


ON_DISK = {
    "cifar10": KnownSet(cifar10.FOLDERS, cifar10.files, cifar10.read, cifar10.describe),
    "stl10": KnownSet(stl10.FOLDERS, stl10.files, stl10.read, stl10.describe),
    **{
        name: KnownSet(mnist.FOLDERS[name], mnist.files, partial(mnist.read, name), mnist.describe)
        for name in ("mnist", "fashion-mnist")
    },
}
KNOWN = ("digits", *ON_DISK)


def data_folder(data_dir: Path | None) -> Path:
    """The folder of the known sets: as given, else the variable DEEPLDA_DATA, else the user's cache."""
    if data_dir is not None:
        return expanded(data_dir)
    if chosen := os.environ.get("DEEPLDA_DATA"):
        return expanded(chosen)
    import pooch

    return Path(pooch.os_cache("deeplda"))


def locate(name: str, data_dir: Path | None) -> Path:
    """The folder that holds the most files of a known set: one of its own, or the data folder itself.

    Where no file is found, the folder `fetch` would fill.
    """
    root, known = data_folder(data_dir), ON_DISK[name]
    candidates = [root / folder for folder in known.folders]
    # MNIST and Fashion-MNIST have the same file names: the folder of one must not pass for the other.
    foreign = [f"/{folder}" for other in ON_DISK if other != name for folder in ON_DISK[other].folders]
    if not root.absolute().as_posix().endswith(tuple(foreign)):
        candidates.append(root)
    return max(candidates, key=lambda folder: sum(map(Path.is_file, known.files(folder))))


def read_known(name: str, data_dir: Path | None) -> Source:
    """A known set from its files; InputError names the first that is missing and the command that fetches them."""
    folder = locate(name, data_dir)
    for path in ON_DISK[name].files(folder):
        if not path.is_file():
            where = f" --data-dir {data_dir}" if data_dir is not None else ""
            raise InputError(
                got(f"{path} does not exist", need=f"the files of {name}", do=f"run: deeplda data fetch {name}{where}")
            )
    return ON_DISK[name].read(folder)


def nearest_known(text: str) -> str:
    """What to say to someone who named a set that is not known."""
    close = difflib.get_close_matches(text.lower(), KNOWN, n=1)
    return f"did you mean {close[0]}?" if close else f"the known names are {', '.join(KNOWN)}"
