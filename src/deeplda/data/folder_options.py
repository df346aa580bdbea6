"""The options with which a folder of images is read and split; this file does not need Pillow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Union

if TYPE_CHECKING:
    from deeplda.data.stored_split import StoredSplit


@dataclass(frozen=True, eq=False)
class Grown:
    """Split a folder anew, except that images of an earlier run keep the parts that its stored split gives them.

    They also get the channels and, without `image_size`, the size that they had in that run.
    """

    before: StoredSplit


# The split that a run stored, or how to split: by content, starting from another run or not, or by a random generator,
# as earlier versions did.
FolderSplit = Union["StoredSplit", Grown, Literal["content", "seed"]]


@dataclass(frozen=True)
class FolderOptions:
    """How a folder is read and split.

    Attributes:
        image_size: resize images to this height and width; by default, they must all have the same size.
        skip_unreadable: skip any number of broken files, instead of at most 5 % of a class.
        strict: skip no broken files.
        seed: the seed of the split.
        group_by: a regular expression that finds the group of an image in its path within its class folder.
        split: "content" splits by content; "seed" leaves it to `dataset.complete`, as earlier versions did; a stored
            split keeps its images in their parts, and so does `Grown`, which assigns all others too.
        exact: with a stored split, read exactly its images, and reject the folder if one is missing or changed.
    """

    image_size: int | None = None
    skip_unreadable: bool = False
    strict: bool = False
    seed: int = 0
    group_by: str | None = None
    split: FolderSplit = "content"
    exact: bool = False
