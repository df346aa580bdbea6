"""Data in memory: the known data sets, folders of images and .npz files, all in the same form.

Names are imported on first use, because `Data` and `Part` need only numpy, whereas the readers need more.
"""

from typing import TYPE_CHECKING

from deeplda._lazy import lazy_names

if TYPE_CHECKING:
    from deeplda.data.dataset import Data, Part
    from deeplda.data.download import fetch
    from deeplda.data.images import read_images
    from deeplda.data.pixels import image_pixels
    from deeplda.data.sources import KNOWN, FileCheck, check_data, is_here, load_data

__all__ = [
    "KNOWN",
    "Data",
    "FileCheck",
    "Part",
    "check_data",
    "fetch",
    "image_pixels",
    "is_here",
    "load_data",
    "read_images",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Data": "deeplda.data.dataset",
        "Part": "deeplda.data.dataset",
        "fetch": "deeplda.data.download",
        "image_pixels": "deeplda.data.pixels",
        "read_images": "deeplda.data.images",
        **dict.fromkeys(("KNOWN", "FileCheck", "check_data", "is_here", "load_data"), "deeplda.data.sources"),
    },
)
