"""Names from earlier versions that still work."""

from __future__ import annotations

import inspect
import warnings
from typing import Any, Literal

from deeplda.estimators import DeepLDAClassifier


def subclass_classifier(stacklevel: int) -> type[DeepLDAClassifier]:
    """Return `SubclassDeepLDAClassifier`, and warn at the line that imports it, `stacklevel` frames up."""
    warnings.warn(
        "SubclassDeepLDAClassifier is deprecated: use DeepLDAClassifier(subclasses=2)",
        DeprecationWarning,
        stacklevel=stacklevel + 1,
    )
    return SubclassDeepLDAClassifier


class SubclassDeepLDAClassifier(DeepLDAClassifier):
    """`DeepLDAClassifier` with two subclasses per class by default.

    Deprecated: use `DeepLDAClassifier(subclasses=2)`.
    """

    def __init__(self, *, subclasses: int | Literal["auto"] = 2, **parameters: Any) -> None:
        super().__init__(subclasses=subclasses, **parameters)


# scikit-learn reads the parameters from the signature.
_SIGNATURE = inspect.signature(DeepLDAClassifier.__init__)
_PARAMETERS = _SIGNATURE.parameters | {"subclasses": _SIGNATURE.parameters["subclasses"].replace(default=2)}
setattr(  # noqa: B010  # mypy does not know the attribute
    SubclassDeepLDAClassifier.__init__, "__signature__", _SIGNATURE.replace(parameters=list(_PARAMETERS.values()))
)
