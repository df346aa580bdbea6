"""How Sphinx builds these pages: `make docs`. Nothing is fetched, by the build or by the pages."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

import deeplda

project = "deeplda"
version = release = deeplda.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"deeplda {release}"
html_show_copyright = False
html_math_renderer = "mathml"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "none"
# Types of attributes would be markup: numpy.bytes_ is taken for a link.
napoleon_attr_annotations = False
python_maximum_signature_line_length = 100
# Single backticks in docstrings are links where there is something to link to, else code.
default_role = "py:obj"

# A reference to a name of ours must lead somewhere; other libraries' names would have to be looked up over the network.
nitpicky = True
# Words in shapes, such as (embedding_dim,), are taken for references and may match several attributes.
suppress_warnings = ["ref.python"]
nitpick_ignore_regex = [("py:.*", r"(?!deeplda\.).*")]


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", inline_renderers=(_inline_math, None), block_renderers=(_display_math, None))
    # Before napoleon, whose own markup is to stay.
    app.connect("autodoc-process-docstring", _plain_docstring, priority=400)


# MathML is what browsers show by themselves; MathJax, Sphinx's own way, is a script from another server.
def _inline_math(translator: Any, node: nodes.math) -> None:
    _write_mathml(translator, node, as_block=False)


def _display_math(translator: Any, node: nodes.math_block) -> None:
    _write_mathml(translator, node, as_block=True)


def _write_mathml(translator: Any, node: nodes.Element, *, as_block: bool) -> None:
    formula = tex2mathml(node.astext(), as_block=as_block)
    translator.body.append(f'<div style="margin: 1rem 0; overflow-x: auto">{formula}</div>' if as_block else formula)
    raise nodes.SkipNode


def _plain_docstring(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Our docstrings are plain text: stars, bars and a last underscore are no markup. A class in backticks is looked
    for wherever it is documented."""
    for at, line in enumerate(lines):
        pieces = re.split(r"(`[^`]*`)", line)
        pieces[::2] = [re.sub(r"([*|]|_(?=[,.)]|$))", r"\\\1", piece) for piece in pieces[::2]]
        pieces[1::2] = [re.sub(r"^`([A-Z]\w+)`$", r"`.\1`", piece) for piece in pieces[1::2]]
        lines[at] = "".join(pieces)
