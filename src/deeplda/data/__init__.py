"""Data in memory: the known sets, folders of images and .npz files, all in the same form."""

from deeplda.data.checking import FileCheck, check_data
from deeplda.data.dataset import Data, Part
from deeplda.data.images import read_images
from deeplda.data.known import KNOWN
from deeplda.data.loading import load_data
from deeplda.data.remote import fetch

__all__ = ["KNOWN", "Data", "FileCheck", "Part", "check_data", "fetch", "load_data", "read_images"]
