"""The known data sets, folders of images, packs and .npz files, all in the same form.

Names are imported on first use, because `Data` and `Part` need only numpy, whereas the readers need more.
"""

from typing import TYPE_CHECKING

from deeplda._lazy import lazy_names

if TYPE_CHECKING:
    from deeplda.data.dataset import Data, Part
    from deeplda.data.download import fetch
    from deeplda.data.images import read_images
    from deeplda.data.pack import Pack, open_pack
    from deeplda.data.packing import pack_data
    from deeplda.data.pixels import image_pixels
    from deeplda.data.source_check import FileCheck, check_data
    from deeplda.data.sources import KNOWN, is_here, load_data

__all__ = [
    "KNOWN",
    "Data",
    "FileCheck",
    "Pack",
    "Part",
    "check_data",
    "fetch",
    "image_pixels",
    "is_here",
    "load_data",
    "open_pack",
    "pack_data",
    "read_images",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Data": "deeplda.data.dataset",
        "Part": "deeplda.data.dataset",
        "fetch": "deeplda.data.download",
        **dict.fromkeys(("Pack", "open_pack"), "deeplda.data.pack"),
        "image_pixels": "deeplda.data.pixels",
        "pack_data": "deeplda.data.packing",
        "read_images": "deeplda.data.images",
        **dict.fromkeys(("FileCheck", "check_data"), "deeplda.data.source_check"),
        **dict.fromkeys(("KNOWN", "is_here", "load_data"), "deeplda.data.sources"),
    },
)
