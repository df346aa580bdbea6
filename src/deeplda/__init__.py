"""Deep linear discriminant analysis: losses, predictors, estimators and the command line.

Public names are imported on first use, so `import deeplda` itself is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deeplda.estimators import DeepLDAClassifier
    from deeplda.loading import load
    from deeplda.losses import DeepLDALoss, DLDALoss, RDLDALoss, deep_lda_loss
    from deeplda.sampling import StratifiedBatchSampler

__version__ = "0.2.0"
__all__ = [
    "DLDALoss",
    "DeepLDAClassifier",
    "DeepLDALoss",
    "RDLDALoss",
    "StratifiedBatchSampler",
    "__version__",
    "deep_lda_loss",
    "load",
]

_HOME = {
    "DLDALoss": "deeplda.losses",
    "DeepLDAClassifier": "deeplda.estimators",
    "DeepLDALoss": "deeplda.losses",
    "RDLDALoss": "deeplda.losses",
    "StratifiedBatchSampler": "deeplda.sampling",
    "deep_lda_loss": "deeplda.losses",
    "load": "deeplda.loading",
}


def __getattr__(name: str) -> Any:
    if name == "SubclassDeepLDAClassifier":
        from deeplda._deprecated import subclass_classifier

        return subclass_classifier(stacklevel=2)
    if name not in _HOME:
        raise AttributeError(f"module 'deeplda' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
