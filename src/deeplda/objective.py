"""The former home of the loss and its mathematics, now in `deeplda.losses` and `deeplda.core`."""

from deeplda.core import ClassMoments, class_moments, discriminant_eigenvalues, large_batch_backward
from deeplda.losses import Diagnostics, RDLDALoss

__all__ = [
    "ClassMoments",
    "Diagnostics",
    "RDLDALoss",
    "class_moments",
    "discriminant_eigenvalues",
    "large_batch_backward",
]
