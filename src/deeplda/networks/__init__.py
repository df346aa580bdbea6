"""Networks that embed samples: the paper's DorferNet, smaller and faster networks, and your own by name."""

from deeplda.networks.autoencoder import (
    Autoencoder,
    EncoderDecoder,
    RowAutoencoder,
    SmallAutoencoder,
    build_autoencoder,
    reconstruction_error,
)
from deeplda.networks.dorfernet import DorferNet
from deeplda.networks.fastnet import FastNet
from deeplda.networks.identity import IdentityNetwork
from deeplda.networks.inspection import LayerRow, describe, training_flops
from deeplda.networks.registry import (
    NETWORKS,
    NetworkBuilder,
    StartsFromData,
    build_network,
    check_network,
    default_network,
)
from deeplda.networks.small import MLP, ConvNetSmall
from deeplda.networks.whitened_output import WhitenedOutput

__all__ = [
    "MLP",
    "NETWORKS",
    "Autoencoder",
    "ConvNetSmall",
    "DorferNet",
    "EncoderDecoder",
    "FastNet",
    "IdentityNetwork",
    "LayerRow",
    "NetworkBuilder",
    "RowAutoencoder",
    "SmallAutoencoder",
    "StartsFromData",
    "WhitenedOutput",
    "build_autoencoder",
    "build_network",
    "check_network",
    "default_network",
    "describe",
    "reconstruction_error",
    "training_flops",
]
