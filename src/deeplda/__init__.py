"""Deep linear discriminant analysis: the objective, the estimators and the command line.

The public names are imported when first used, so that `import deeplda` itself costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deeplda.estimators import DeepLDAClassifier
    from deeplda.loading import load
    from deeplda.losses import RDLDALoss

__version__ = "0.2.0"
__all__ = ["DeepLDAClassifier", "RDLDALoss", "__version__", "load"]

_HOME = {
    "DeepLDAClassifier": "deeplda.estimators",
    "RDLDALoss": "deeplda.losses",
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
