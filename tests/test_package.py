"""The public surface, and the direction of the imports."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import deeplda

SOURCE = Path(deeplda.__file__).parent
# Each may import itself and what stands before it.
LAYERS = [
    ["errors"],
    ["io", "memory", "device", "formatting"],
    ["core"],
    ["losses", "predictors", "sampling"],
    ["objective"],
    ["networks", "subclasses", "data"],
    ["model"],
    ["loading"],
    ["training"],
    ["estimator_files"],
    ["estimators"],
    ["_deprecated"],
    ["experiments", "report", "export"],
    ["cli"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def imports_of(file: Path) -> set[str]:
    """The parts of deeplda that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{file} has a relative import"
            found |= {deeplda._HOME.get(alias.name, f"{node.module}.{alias.name}") for alias in node.names}
    parts = {name.split(".")[1] for name in found if name.startswith("deeplda.")}
    return parts - {"__version__"}


def test_imports_point_one_way():
    for file in SOURCE.rglob("*.py"):
        part = file.relative_to(SOURCE).parts[0].removesuffix(".py")
        if part.startswith("__"):
            continue
        for imported in imports_of(file):
            assert imported == part or RANK[imported] < RANK[part], f"{file} imports deeplda.{imported}"


def test_public_names():
    assert set(deeplda.__all__) <= set(dir(deeplda))
    assert all(getattr(deeplda, name) is not None for name in deeplda.__all__)
    with pytest.raises(AttributeError, match="no attribute 'RDLDALos'"):
        _ = deeplda.RDLDALos


def test_import_costs_no_torch():
    code = "import sys, deeplda; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
