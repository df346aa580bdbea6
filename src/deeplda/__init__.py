"""Deep linear discriminant analysis: losses, predictors, estimators and the command line.

Public names are imported on first use, so `import deeplda` itself is fast.
"""

from typing import TYPE_CHECKING, Any

from deeplda._lazy import lazy_names

if TYPE_CHECKING:
    from deeplda.estimators import DeepLDAClassifier
    from deeplda.loading import load
    from deeplda.losses import DeepLDALoss, DLDALoss, RDLDALoss, deep_lda_loss
    from deeplda.sampling import StratifiedBatchSampler

__version__ = "0.3.0"
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


_get, __dir__ = lazy_names(__name__, _HOME)


def __getattr__(name: str) -> Any:
    if name == "SubclassDeepLDAClassifier":
        from deeplda._deprecated import subclass_classifier

        return subclass_classifier(stacklevel=2)
    return _get(name)
