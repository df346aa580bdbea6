"""Data in memory: the known data sets, folders of images and .npz files, all in the same form.

Names are imported on first use: `Data` and `Part` need numpy only, the readers more.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deeplda.data.dataset import Data, Part
    from deeplda.data.download import fetch
    from deeplda.data.images import read_images
    from deeplda.data.sources import KNOWN, FileCheck, check_data, is_here, load_data

__all__ = ["KNOWN", "Data", "FileCheck", "Part", "check_data", "fetch", "is_here", "load_data", "read_images"]

_MODULES = {
    "dataset": ("Data", "Part"),
    "download": ("fetch",),
    "images": ("read_images",),
    "sources": ("KNOWN", "FileCheck", "check_data", "is_here", "load_data"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"deeplda.data.{module}"), name)
    raise AttributeError(f"module 'deeplda.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
