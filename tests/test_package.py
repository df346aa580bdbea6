"""The public names, the direction of the imports, and an install without extras."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import deeplda
from deeplda.extras import EXTRAS
from missing_modules import run_without

SOURCE = Path(deeplda.__file__).parent
# A part may import itself and the parts listed before it.
LAYERS = [
    ["errors", "_lazy"],
    ["extras", "output_folder", "memory", "device", "formatting", "printing"],
    ["io", "user_code"],
    ["batch_rule"],
    ["core"],
    ["losses", "predictors", "sampling"],
    ["classical"],
    ["objective"],
    ["networks", "subclasses", "data", "views"],
    ["model_card", "new_samples", "audit", "normalisation"],
    ["model_inputs", "model_predictors", "rejection"],
    ["model"],
    ["loading"],
    ["training"],
    ["estimator_files", "estimator_inputs"],
    ["estimator_row_space"],
    ["estimator_training"],
    ["estimators"],
    ["_deprecated"],
    ["experiments", "report", "export"],
    ["cli"],
]
# A user's script without the command line.
TRAIN = """
import torch
from sklearn.datasets import load_iris
from deeplda import DeepLDAClassifier, RDLDALoss, load

X, y = load_iris(return_X_y=True)
features = torch.from_numpy(X).requires_grad_()
RDLDALoss()(features, torch.from_numpy(y)).backward()
classifier = DeepLDAClassifier(max_epochs=5, random_state=0).fit(X, y)
classifier.save("classifier")
again = DeepLDAClassifier.load("classifier")
assert (again.predict(X) == classifier.predict(X)).all()
assert load("classifier").predict(X).tolist() == [str(name) for name in classifier.predict(X)]
"""
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def imports_of(file: Path) -> set[str]:
    """Return the parts of deeplda that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{file} has a relative import"
            found |= {deeplda._HOME.get(alias.name, f"{node.module}.{alias.name}") for alias in node.names}
    parts = {name.split(".")[1] for name in found if name.startswith("deeplda.")}
    # Deprecated names are looked up lazily by the modules that had them.
    return parts - {"__version__", "_deprecated"}


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


def test_file_names_are_unique():
    # A command's file has the name of the command, wherever its work is done.
    commands = {SOURCE / "cli" / f"{name}.py" for name in EXTRAS["cli"].commands}
    stems = [file.stem for file in SOURCE.rglob("*.py") if file.stem != "__init__" and file not in commands]
    assert [stem for stem, count in Counter(stems).items() if count > 1] == []


def test_an_estimator_trains_without_fcntl_and_without_extras(tmp_path):
    """As on Windows, with `pip install deeplda` alone."""
    hidden = {"fcntl", *(module for extra in EXTRAS.values() for module in extra.modules)}
    done = run_without(hidden, TRAIN, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
