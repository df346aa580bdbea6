"""The code in README.md and docs/ does what it says: it is run, or where that cannot be, read by the real command line.

A page is run from top to bottom in one namespace and one empty folder: blocks of Python, the new side of diffs, and
shell blocks that follow `<!-- run -->`. Python that begins with `# NAME.py` is also written to that file. What cannot
run here follows `<!-- not run: REASON -->` and is listed below.
"""

import re
import shlex
import sys
from collections.abc import Iterator
from doctest import DocTestFinder, DocTestRunner
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from cyclopts import App
from markdown_it import MarkdownIt
from markdown_it.token import Token

import deeplda.core
import deeplda.data
import deeplda.networks
import deeplda.predictors
import deeplda.report.figures
import deeplda.subclasses
from deeplda.cli import app
from deeplda.cli.sweep_arguments import axes_of
from deeplda.experiments.recipes import read_recipe

ROOT = Path(__file__).parents[1]
PAGES = {page.name: page for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]}
NOT_RUN = {
    ("scaling.md", "it takes GPUs and torchrun; examples/ddp_your_loop.py is this loop, and is run"),
    ("scaling.md", "it takes a Slurm cluster"),
    ("scaling.md", "it takes a Kubernetes cluster"),
}
# Text and Sphinx's directives have nothing to run.
NO_CODE = re.compile(r"text|\{(toctree|eval-rst)\}")
# Options of other programs that the pages name.
OTHERS = {"--logdir", "--max-restarts", "--nproc-per-node", "--output"}


def readme_names() -> dict[str, Any]:
    """A network with its data and optimiser, a finished run, and images for its model."""
    command("train --epochs 1 --quiet")
    return loop_names() | {"images": deeplda.data.load_data("digits").test.inputs}


def loop_names() -> dict[str, Any]:
    """What the loop of a reader has."""
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


# The names that a page takes for granted; all others make theirs themselves.
NAMES = {"README.md": readme_names, "scaling.md": loop_names, "your-loop.md": loop_names}


class Block(NamedTuple):
    """A fenced block: its language, its text, the line it starts at, and the comment right before it."""

    language: str
    text: str
    line: int
    comment: str


def tokens_of(page: str) -> list[Token]:
    return MarkdownIt("commonmark", {"html": True}).enable("table").parse(PAGES[page].read_text())


def blocks_of(page: str) -> Iterator[Block]:
    comment = ""
    for token in tokens_of(page):
        if token.type == "fence":
            yield Block(token.info, token.content, token.map[0] + 1, comment)
        found = re.fullmatch(r"<!-- (.*) -->", token.content.strip()) if token.type == "html_block" else None
        comment = found[1] if found else ""


def inline_code_of(page: str) -> Iterator[str]:
    for token in tokens_of(page):
        yield from (part.content for part in token.children or () if part.type == "code_inline")


def shell_lines(text: str) -> Iterator[list[str]]:
    """The words of each command, without comments; a trailing backslash joins lines, and && parts them."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while "&&" in words:
            yield words[: words.index("&&")]
            words = words[words.index("&&") + 1 :]
        if words:
            yield words


def command(line: str) -> None:
    """Run a command of ours, in this process; a mistake in it raises."""
    app(shlex.split(line), exit_on_error=False, print_error=False)


def read_command(words: list[str]) -> None:
    """Take in the words after `deeplda` as far as it can be done before the work begins; a mistake raises."""
    function, bound, _ = app.parse_args([w for w in words if w != "..."], exit_on_error=False, print_error=False)
    assert function.__module__.startswith("deeplda.cli."), f"{words} is no command"
    given = bound.arguments
    if given.get("recipe"):
        read_recipe(given["recipe"])
    if function.__name__ == "sweep":
        axes_of(*(given.get(axis) for axis in ("objectives", "subclasses", "alphas", "seeds")))


def after_torchrun(words: list[str]) -> list[str]:
    """What torchrun hands on to us."""
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
            assert words[0] == "deeplda", f"{page}, line {block.line}: only our own commands are run"
            command(shlex.join(words[1:]))
        return
    text = block.text
    if block.language == "diff":
        text = "\n".join(line[1:] for line in text.splitlines() if not line.startswith("-"))
    if name := re.match(r"# (\w+\.py)\n", text):
        Path(name[1]).write_text(text)
    # The blank lines let a traceback tell the line of the page.
    exec(compile("\n" * block.line + text, PAGES[page], "exec"), namespace)


@pytest.mark.parametrize("page", [page for page in PAGES if any(map(runs, blocks_of(page)))])
def test_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    modules = set(sys.modules)
    namespace = {"__name__": "page"} | (NAMES[page]() if page in NAMES else {})
    for block in blocks_of(page):
        if runs(block):
            run_block(block, page, namespace)
    for name in set(sys.modules) - modules:
        if (tmp_path / f"{name}.py").exists():
            del sys.modules[name]


def test_what_is_not_run_is_listed():
    comments = {(page, block.comment) for page in PAGES for block in blocks_of(page) if block.comment}
    assert {(page, words.removeprefix("not run: ")) for page, words in comments if words != "run"} == NOT_RUN


@pytest.mark.parametrize("page", PAGES)
def test_no_block_is_of_a_kind_that_is_passed_over(page):
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
                case ["pip", "install", "-c", constraints, "."]:
                    assert (ROOT / constraints).is_file()
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
    """The options of each command; `data` has those of all its own."""
    return {name: options_of(app[name]) for name in app if not name.startswith("-")}


def options_of(one: App) -> set[str]:
    if one.default_command is None:
        return set().union(*(options_of(one[name]) for name in one if not name.startswith("-")))
    return {name for argument in one.assemble_argument_collection() for name in argument.names} | set(one.help_flags)


@pytest.mark.parametrize("page", PAGES)
def test_options_named_in_the_text_exist(page):
    """`deeplda COMMAND ... --option` has an option of that command, `--option` alone one of any."""
    for code in inline_code_of(page):
        word = re.match(r"deeplda (\w+)", code)
        known = options()[word[1]] if word else set().union(OTHERS, *options().values())
        assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", code)) <= known, code


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page):
    for token in tokens_of(page):
        for part in token.children or ():
            target = part.attrs.get("href") or part.attrs.get("src")
            if target and not re.match(r"https?:|#", target):
                assert (PAGES[page].parent / target.partition("#")[0]).exists(), target


def test_the_examples_of_docstrings_are_true():
    (example,) = DocTestFinder(recurse=False).find(deeplda.DeepLDAClassifier, "DeepLDAClassifier", globs={})
    assert DocTestRunner().run(example) == (0, 5)


@pytest.mark.parametrize(
    "module",
    [deeplda, deeplda.core, deeplda.predictors, deeplda.networks, deeplda.subclasses, deeplda.report.figures],
    ids=lambda m: m.__name__,
)
def test_every_public_name_is_in_the_api(module):
    text = PAGES["api.md"].read_text()
    for name in set(module.__all__) - {"__version__"}:
        assert re.search(rf"\b(deeplda|{re.escape(module.__name__)})\.{name}\b", text), f"{module.__name__}.{name}"
