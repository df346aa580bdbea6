"""The mathematics: moments -> scatters -> eigenvalues -> statistic and gradient. It needs only torch."""

from deeplda.core.large_batch import large_batch_backward
from deeplda.core.moments import ClassMoments, class_moments
from deeplda.core.scatter import discriminant_eigenvalues

__all__ = ["ClassMoments", "class_moments", "discriminant_eigenvalues", "large_batch_backward"]
