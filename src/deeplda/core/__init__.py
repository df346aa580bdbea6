"""The mathematics: moments -> scatters -> eigenvalues -> statistic and gradient. It needs only torch.

Names are imported on first use, so that the option checks in `core/options.py` can be used without importing torch.
"""

from typing import TYPE_CHECKING

from deeplda._lazy import lazy_names

if TYPE_CHECKING:
    from deeplda.core.large_batch import large_batch_backward
    from deeplda.core.moments import ClassMoments, class_moments
    from deeplda.core.scatter import discriminant_eigenvalues

__all__ = ["ClassMoments", "class_moments", "discriminant_eigenvalues", "large_batch_backward"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ClassMoments": "deeplda.core.moments",
        "class_moments": "deeplda.core.moments",
        "discriminant_eigenvalues": "deeplda.core.scatter",
        "large_batch_backward": "deeplda.core.large_batch",
    },
)
