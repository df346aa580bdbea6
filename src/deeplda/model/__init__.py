"""A trained model, and how it is saved and loaded.

A model folder holds `weights.safetensors` and `model.json`. Neither can carry code: the network is rebuilt by its
registered name, and a network of the user's own is built only where the caller names it again.
"""

from deeplda.model.card import ModelCard, read_card
from deeplda.model.loading import load
from deeplda.model.model import Model, no_mirror_image
from deeplda.model.normalisation import Normalisation

__all__ = ["Model", "ModelCard", "Normalisation", "load", "no_mirror_image", "read_card"]
