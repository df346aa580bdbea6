"""The code in README.md and docs/ works: it is run or, for commands that take too long, parsed by the command line.

A page runs from top to bottom in one namespace and one empty folder: Python blocks, the new side of diffs, and shell
blocks after `<!-- run -->`. Python that begins with `# NAME.py` is also written to that file. Blocks that cannot run
here follow `<!-- not run: REASON -->` and are listed below.
"""

import re
import shlex
import sys
from collections.abc import Iterator
from doctest import DocTestFinder, DocTestRunner
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import pytest
import yaml
from cyclopts import App
from markdown_it import MarkdownIt
from markdown_it.token import Token

import deeplda
from deeplda.cli import app
from deeplda.cli.sweep import given_axes
from deeplda.experiments.recipes import read_recipe
from deeplda.extras import EXTRAS

ROOT = Path(__file__).parents[1]
PAGES = {page.name: page for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]}
NOT_RUN = {
    (
        "pretrained-backbones.md",
        "it downloads a model; examples/huggingface_backbone.py builds one from its config, and is run",
    ),
    ("scaling.md", "it takes two hosts; make test-hosts runs this job on two network namespaces"),
    ("scaling.md", "it takes GPUs and torchrun; examples/ddp_your_loop.py is this loop, and is run"),
    ("scaling.md", "it takes a Slurm cluster"),
    ("scaling.md", "it takes a Kubernetes cluster"),
    ("sweeps.md", "it takes a PostgreSQL server; make test-services runs sweeps against one"),
}
# Text and Sphinx directives contain nothing to run.
NO_CODE = re.compile(r"text|\{(toctree|eval-rst)\}")
# Options of other programs that the pages mention.
OTHERS = {"--local-addr", "--logdir", "--max-restarts", "--nproc-per-node", "--output"}


def loop_names() -> dict[str, Any]:
    """The names that a reader's training loop has."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    return {
        "nn": nn,
        "torch": torch,
        "network": network,
        "criterion": deeplda.DeepLDALoss(),
        "optimizer": torch.optim.SGD(network.parameters(), 0.1),
        "loader": [(torch.randn(150, 64), torch.arange(150) % 10) for _ in range(2)],
        "x_train": torch.randn(150, 64),
        "y_train": torch.arange(150) % 10,
        "x_test": torch.randn(10, 64),
    }


# The names that a page assumes; the other pages define all of theirs.
NAMES = {"scaling.md": loop_names, "your-loop.md": loop_names}


class Block(NamedTuple):
    """A fenced block: its language, its text, the line it starts at, and the comment right before it."""

    language: str
    text: str
    line: int
    comment: str


def tokens_of(file: Path) -> list[Token]:
    return MarkdownIt("commonmark", {"html": True}).enable("table").parse(file.read_text())


def blocks_of(page: str) -> Iterator[Block]:
    comment = ""
    for token in tokens_of(PAGES[page]):
        if token.type == "fence":
            yield Block(token.info, token.content, token.map[0] + 1, comment)
        found = re.fullmatch(r"<!-- (.*) -->", token.content.strip()) if token.type == "html_block" else None
        comment = found[1] if found else ""


def inline_code_of(page: str) -> Iterator[str]:
    for token in tokens_of(PAGES[page]):
        yield from (part.content for part in token.children or () if part.type == "code_inline")


def shell_lines(text: str) -> Iterator[list[str]]:
    """Yield the words of each command, without comments; a backslash joins lines, and && separates commands."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while "&&" in words:
            yield words[: words.index("&&")]
            words = words[words.index("&&") + 1 :]
        if words:
            yield words


def command(line: str) -> None:
    """Run a deeplda command in this process; a mistake in it raises."""
    app(shlex.split(line), exit_on_error=False, print_error=False)


def read_command(words: list[str]) -> None:
    """Parse the words after `deeplda`, as far as possible without doing the work; a mistake raises."""
    function, bound, _ = app.parse_args([w for w in words if w != "..."], exit_on_error=False, print_error=False)
    assert function.__module__.startswith("deeplda.cli."), f"{words} is not a command"
    given = bound.arguments
    if given.get("recipe"):
        read_recipe(given["recipe"])
    if function.__name__ == "sweep":
        given_axes(*(given.get(axis) for axis in ("objectives", "subclasses", "alphas", "seeds")))


def after_torchrun(words: list[str]) -> list[str]:
    """Return the words that torchrun passes on to deeplda."""
    at = words.index("-m")
    assert words[at : at + 3] == ["-m", "deeplda", "--"]
    return words[at + 3 :]


def runs(block: Block) -> bool:
    if block.comment.startswith("not run: "):
        return False
    return block.language in ("python", "diff") or block.comment == "run"


def run_block(block: Block, page: str, namespace: dict[str, Any]) -> None:
    if block.language == "bash":
        for words in shell_lines(block.text):
            assert words[0] == "deeplda", f"{page}, line {block.line}: only deeplda commands are run"
            command(shlex.join(words[1:]))
        return
    text = block.text
    if block.language == "diff":
        text = "\n".join(line[1:] for line in text.splitlines() if not line.startswith("-"))
    if name := re.match(r"# (\w+\.py)\n", text):
        Path(name[1]).write_text(text)
    # The blank lines make a traceback show the line of the page.
    exec(compile("\n" * block.line + text, PAGES[page], "exec"), namespace)


@pytest.mark.parametrize("page", [page for page in PAGES if any(map(runs, blocks_of(page)))])
def test_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch, request):
    if "export_model(" in PAGES[page].read_text(encoding="utf-8"):
        request.getfixturevalue("onnx_conversion")
    monkeypatch.chdir(tmp_path)
    modules = set(sys.modules)
    namespace = {"__name__": "page"} | (NAMES[page]() if page in NAMES else {})
    for block in blocks_of(page):
        if runs(block):
            run_block(block, page, namespace)
    for name in set(sys.modules) - modules:
        if (tmp_path / f"{name}.py").exists():
            del sys.modules[name]


def test_blocks_that_do_not_run_are_listed():
    comments = {(page, block.comment) for page in PAGES for block in blocks_of(page) if block.comment}
    assert {(page, words.removeprefix("not run: ")) for page, words in comments if words != "run"} == NOT_RUN


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_of_a_known_kind(page):
    for block in blocks_of(page):
        known = block.language in ("python", "diff", "bash", "yaml") or NO_CODE.fullmatch(block.language)
        assert known, f"{page}, line {block.line}: {block.language!r}"


@pytest.mark.parametrize("page", [page for page in PAGES if any(b.language == "bash" for b in blocks_of(page))])
def test_shell_commands_are_real(page):
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    for block in blocks_of(page):
        for words in shell_lines(block.text) if block.language == "bash" else ():
            match words:
                case ["deeplda", *rest]:
                    read_command(rest)
                case ["srun", "torchrun", *rest]:
                    read_command(after_torchrun(rest))
                case ["make", *names]:
                    assert set(names) <= set(targets)
                case ["pip", "install", "-c", "constraints.txt", source]:
                    extras = re.fullmatch(r"\.(?:\[(.+)\])?", source)[1]
                    assert extras is None or set(extras.split(",")) <= set(EXTRAS)
                case ["python" | "pytest", file, *_]:
                    assert (ROOT / file.partition("::")[0]).exists()
                case _:
                    assert block.comment.startswith("not run: "), f"{page}, line {block.line}: {words}"


def test_commands_in_yaml_are_real():
    found = 0
    for block in [block for page in PAGES for block in blocks_of(page) if block.language == "yaml"]:
        for document in yaml.safe_load_all(block.text):
            for container in document["spec"].get("template", {}).get("spec", {}).get("containers", ()):
                read_command(after_torchrun(container["command"]))
                found += 1
    assert found


@cache
def options() -> dict[str, set[str]]:
    """Return the options of each command; those of `data` are the options of all its subcommands."""
    return {name: options_of(app[name]) for name in app if not name.startswith("-")}


def options_of(one: App) -> set[str]:
    if one.default_command is None:
        return set().union(*(options_of(one[name]) for name in one if not name.startswith("-")))
    return {name for argument in one.assemble_argument_collection() for name in argument.names} | set(one.help_flags)


@pytest.mark.parametrize("page", PAGES)
def test_options_named_in_the_text_exist(page):
    """`deeplda COMMAND ... --option` names an option of that command, `--option` alone an option of any command.

    The options of a benchmark are those that its source names.
    """
    for code in inline_code_of(page):
        word, script = re.match(r"deeplda ([\w-]+)", code), re.search(r"python (benchmarks/\w+\.py)", code)
        known = options()[word[1]] if word else set().union(OTHERS, *options().values())
        if script:
            source = (PAGES["README.md"].parent / script[1]).read_text()
            known = set(re.findall(r'add_argument\("(--[\w-]+)"', source))
        assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", code)) <= known, code


def anchors_of(file: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and Sphinx make them."""
    tokens = MarkdownIt("commonmark").parse(file.read_text())
    headings = [tokens[at + 1].content for at, token in enumerate(tokens) if token.type == "heading_open"]
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("file", sorted({*PAGES.values(), *ROOT.glob("*.md")}), ids=lambda file: file.name)
def test_links_lead_to_files_and_headings(file):
    for token in tokens_of(file):
        for part in token.children or ():
            target = part.attrs.get("href") or part.attrs.get("src")
            if not target or re.match("https?:", target):
                continue
            path, _, anchor = target.partition("#")
            linked = file.parent / path if path else file
            assert linked.exists(), target
            assert not anchor or anchor in anchors_of(linked), target


@pytest.mark.parametrize("name", ["DeepLDAClassifier", "StreamingLDA", "KernelLDA", "TwoDimensionalLDA"])
def test_the_examples_in_docstrings_work(name):
    kind = getattr(deeplda if name in deeplda.__all__ else import_module("deeplda.classical"), name)
    (example,) = DocTestFinder(recurse=False).find(kind, name, globs={})
    failed, attempted = DocTestRunner().run(example)
    assert failed == 0
    assert attempted >= 4


class Entry(NamedTuple):
    """A name in docs/api.md: the module it is listed under, and the members listed for it ("" for all)."""

    module: str
    name: str
    members: set[str]

    @property
    def object(self) -> Any:
        return getattr(import_module(self.module), self.name)


def api_entries() -> list[Entry]:
    entries = []
    for section in re.split(r"^## ", PAGES["api.md"].read_text(), flags=re.MULTILINE)[1:]:
        module = section.split()[0]
        directive = r"^\.\. (?:auto\w+|py:data):: ([\w.]+)\S*(?:\n   :members:(?P<members>.*(?:\n {6}.*)*))?"
        for found in re.finditer(directive, section, re.MULTILINE):
            path, members = found[1], found["members"]
            assert path.rpartition(".")[0] == module, f"{path} is listed under {module}"
            listed = set() if members is None else {name.strip() for name in members.split(",")}
            entries.append(Entry(module, path.rpartition(".")[2], listed))
    return entries


@pytest.mark.parametrize("module", sorted({entry.module for entry in api_entries()}))
def test_the_api_page_lists_the_public_names(module):
    """Names that deeplda itself exports are documented once, there."""
    elsewhere = set() if module == "deeplda" else set(deeplda.__all__)
    public = set(import_module(module).__all__) - elsewhere - {"__version__"}
    assert public == {entry.name for entry in api_entries() if entry.module == module}


def own_methods(kind: type) -> set[str]:
    """Return the public methods and properties that deeplda adds to what a class inherits from other libraries.

    Fitted attributes, whose names end with an underscore, are documented by the docstring of the class.
    """
    ours = [base for base in kind.__mro__ if base.__module__.startswith("deeplda")]
    others = {name for base in kind.__mro__ if base not in ours for name in vars(base)}
    method = FunctionType | classmethod | staticmethod | property | cached_property
    found = {name for base in ours for name, value in vars(base).items() if isinstance(value, method)}
    fitted = {name for name in found if name.endswith("_") and f"\n    {name} : " in (kind.__doc__ or "")}
    return {name for name in found - others - fitted if not name.startswith("_")}


def test_methods_that_the_api_page_does_not_list_are_private():
    listed = {entry.object: entry.members for entry in api_entries() if isinstance(entry.object, type)}
    unlisted = {}
    for kind in listed:
        members = set().union(*(listed[base] for base in kind.__mro__ if base in listed))
        unlisted[kind.__name__] = set() if "" in members else own_methods(kind) - members
    assert {name: methods for name, methods in unlisted.items() if methods} == {}
