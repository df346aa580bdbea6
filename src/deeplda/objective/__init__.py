"""The objective of the paper and of its relatives: moments -> scatters -> eigenvalues -> loss."""

from deeplda.objective.diagnostics import Diagnostics
from deeplda.objective.discriminant import discriminant_eigenvalues
from deeplda.objective.large_batch import large_batch_backward
from deeplda.objective.loss import RDLDALoss
from deeplda.objective.moments import ClassMoments, class_moments

__all__ = [
    "ClassMoments",
    "Diagnostics",
    "RDLDALoss",
    "class_moments",
    "discriminant_eigenvalues",
    "large_batch_backward",
]
