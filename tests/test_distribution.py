"""Wheel and sdist: built offline, complete, usable outside the repository, and light without extras."""

import ast
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import deeplda
from deeplda.experiments.published import published_tables
from deeplda.experiments.recipes import RECIPES
from deeplda.extras import EXTRAS
from deeplda.report.markup import assets

ROOT = Path(__file__).parents[1]
# At least one file of everything that a contributor needs.
IN_SDIST = """
    CHANGELOG.md CITATION.cff CONTRIBUTING.md LICENSE Makefile README.md SECURITY.md constraints.txt pyproject.toml
    benchmarks/loss.py docs/conf.py docs/index.md examples/loss_in_your_loop.py results/tabular.csv tests/conftest.py
"""
# The packages whose modules have another name.
_PACKAGES = {"PIL": "pillow", "pi_heif": "pi-heif"}
# Reads every data file of the package and prints where it found them.
READ_DATA = """
import json, deeplda
from deeplda.experiments.published import published_tables
from deeplda.experiments.recipes import RECIPES, read_recipe
from deeplda.experiments.sweep_definition import paper_table
from deeplda.report.markup import assets
print(json.dumps({
    "package": deeplda.__file__,
    "recipes": [name for name in RECIPES if read_recipe(name)],
    "sweeps": [paper_table(*which).scale for which in (("stl10", "full"), ("stl10", "long"), ("subclasses", "quick"))],
    "published": [len(table.cells) for table in published_tables()],
    "assets": [len(text) for text in assets()],
}))
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command and return its output."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """The sdist, and the wheel built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def metadata(built) -> Message:
    """The metadata of the wheel."""
    with zipfile.ZipFile(built[1]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(wheel.read(name).decode())


def package_files() -> set[str]:
    files = {file.relative_to(ROOT / "src") for file in (ROOT / "src" / "deeplda").rglob("*") if file.is_file()}
    return {str(file) for file in files if "__pycache__" not in file.parts}


def test_the_wheel_is_the_package(built, metadata):
    with zipfile.ZipFile(built[1]) as wheel:
        assert {name for name in wheel.namelist() if ".dist-info/" not in name} == package_files()
    assert metadata["Version"] == deeplda.__version__
    assert metadata["License-Expression"] == "MIT"


def test_changelog_and_citation_have_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    released = re.search(r"^## \[(.+)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released.groups() == (citation["version"], str(citation["date-released"]))
    assert citation["version"] == deeplda.__version__


def packages(metadata: Message, extra: str) -> set[str]:
    """Return the packages that an extra adds to the core, or those of the core for ""."""
    found = [Requirement(line) for line in metadata.get_all("Requires-Dist")]
    if not extra:
        return {one.name for one in found if one.marker is None}
    return {one.name for one in found if one.marker is not None and one.marker.evaluate({"extra": extra})}


def test_the_extras_have_the_modules_that_commands_need(metadata):
    """pyproject.toml and deeplda.extras agree."""
    for name, extra in EXTRAS.items():
        needed = (*extra.modules, *(EXTRAS["cli"].modules if name == "sweep" else ()))
        assert packages(metadata, name) == {_PACKAGES.get(module, module) for module in needed}
    for name in metadata.get_all("Provides-Extra"):
        assert packages(metadata, name) <= packages(metadata, "dev")


def test_the_core_is_light_and_what_src_imports_is_declared(metadata):
    core = packages(metadata, "")
    assert core == {"numpy", "pydantic", "safetensors", "scikit-learn", "scipy", "threadpoolctl", "torch"}
    declared = {"sklearn" if name == "scikit-learn" else name for name in core}
    declared |= {module for extra in EXTRAS.values() for module in extra.modules}
    imported = {name for file in (ROOT / "src").rglob("*.py") for name in imports_of(file)}
    assert imported - sys.stdlib_module_names - {"deeplda"} <= declared


def imports_of(file: Path) -> set[str]:
    """Return the top-level modules that a file imports, wherever in it."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {name.partition(".")[0] for name in names}


def test_every_requirement_admits_the_tested_version(metadata):
    lines = (ROOT / "constraints.txt").read_text().lower().replace("_", "-").splitlines()
    tested = dict(line.split("==") for line in lines if "==" in line)
    for wanted in map(Requirement, metadata.get_all("Requires-Dist")):
        if wanted.name != "deeplda":
            assert wanted.specifier.contains(tested[wanted.name]), f"{wanted}: {tested[wanted.name]}"


def test_the_workflows_test_what_is_promised(metadata):
    folder = ROOT / ".github" / "workflows"
    steps = re.findall(r"run: make (\S+)", "".join(file.read_text() for file in folder.glob("*.yml")))
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    assert {"lint", "docs", "coverage"} <= set(steps) <= set(targets)
    matrix = yaml.safe_load((folder / "tests.yml").read_text())["jobs"]["test"]["strategy"]["matrix"]
    lowest = matrix["python"][0]
    assert metadata["Requires-Python"] == f">={lowest}"
    assert matrix["versions"] == ["highest"]
    assert matrix["include"] == [{"python": lowest, "versions": "lowest-direct"}]


def test_the_sdist_has_everything_in_a_clone(built):
    with tarfile.open(built[0]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {f"src/{name}" for name in package_files()} <= names
    assert set(IN_SDIST.split()) <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith((".venv", "docs/_build", "runs"))]


def test_the_wheel_works_outside_the_repository(built, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet", built[1], cwd=tmp_path)
    # It borrows the dependencies of this environment, but not the editable install: a .pth does not apply others.
    site_packages = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    (site_packages / "dependencies.pth").write_text(
        "\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    )

    assert "deeplda train" in run(tmp_path / "venv" / "bin" / "deeplda", "--help", cwd=tmp_path)
    found = json.loads(run(python, "-I", "-c", READ_DATA, cwd=tmp_path))
    assert Path(found["package"]).is_relative_to(site_packages)
    assert found["recipes"] == list(RECIPES)
    assert found["sweeps"] == ["full", "long", "quick"]
    assert found["published"] == [len(table.cells) for table in published_tables()]
    assert found["assets"] == [len(text) for text in assets()]
