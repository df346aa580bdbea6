"""Optional dependencies: the modules that each extra installs, and the commands that need them.

Losses, predictors and estimators need none of these. pyproject.toml lists the packages in each extra.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from deeplda.errors import InputError


class Extra(NamedTuple):
    """The modules that an extra installs, and the commands that need them."""

    title: str
    modules: tuple[str, ...]
    commands: tuple[str, ...]


EXTRAS = {
    "cli": Extra(
        "command-line",
        modules=("cyclopts", "rich", "matplotlib", "PIL", "pooch", "requests", "urllib3"),
        commands=(
            "train",
            "evaluate",
            "predict",
            "similar",
            "fit-features",
            "report",
            "doctor",
            "audit",
            "export",
            "network",
            "sweep",
            "table",
            "data",
        ),
    ),
    "sweep": Extra("sweep", modules=("optuna", "sqlalchemy"), commands=("sweep",)),
    "export": Extra("export", modules=("onnx", "onnxscript", "onnxruntime"), commands=("export --format onnx",)),
    "heic": Extra("HEIC", modules=("pi_heif",), commands=()),
    "table": Extra("table", modules=("pyarrow",), commands=()),
    "tensorboard": Extra("TensorBoard", modules=("tensorboard",), commands=("train --tensorboard",)),
}


def require(extra: str, user: str) -> None:
    """Raise InputError, with the pip command, if a module of `extra` is missing. `user` names what needs the extra."""
    title, modules, _ = EXTRAS[extra]
    for module in modules:
        if not is_installed(module):
            what = f"{user} needs the {title} extra ({module} is not installed)"
            raise InputError(f"{what}: pip install 'deeplda[{extra}]'")


def is_installed(module: str) -> bool:
    """Return whether a module can be imported, without importing it."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # ValueError: its entry in sys.modules is None, which blocks the import
        return False
