"""HTML elements built in Python, with all text escaped, and the self-contained document around them."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from html import escape
from importlib.resources import files

_VOID = frozenset({"img", "input", "link", "meta", "wbr"})
_SCRIPTS = ("packing.js", "classes.js", "names.js", "scatter.js", "densities.js", "tables.js", "start.js")
# The script of the page of an audit, which has no plots.
AUDIT_SCRIPTS = ("decisions.js",)


class Html(str):
    """Text that is already HTML and is not escaped again."""

    __slots__ = ()


Child = str | int | Iterable["Child"]


def element(tag: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Html:
    """Return an HTML element.

    For example, `element("a", "x < y", class_="b", aria_label="c")` returns
    `<a class="b" aria-label="c">x &lt; y</a>`. Attributes that are None or False are omitted; attributes that are True
    are written without a value.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if tag in _VOID:
        return Html(f"<{tag}{written}>")
    return Html(f"<{tag}{written}>{together(*children)}</{tag}>")


def together(*children: Child) -> Html:
    """Concatenate elements and texts."""
    return Html("".join(_markup(child) for child in children))


def data_block(identifier: str, data: object) -> Html:
    """Return a script element that contains `data` as JSON. No text in it can close the element or run as a script."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return Html(f'<script type="application/json" id="{escape(identifier)}">{text}</script>')


def document(title: str, data: object, *body: Child, scripts: tuple[str, ...] = _SCRIPTS) -> str:
    """Return the complete page in ASCII, with `data` for its script, which consists of these files.

    The page's security policy allows only this style sheet, this script and inline images. The page therefore never
    uses the network, and markup in a class name has no effect.
    """
    style, script = assets(scripts)
    policy = (
        f"default-src 'none'; img-src data:; style-src {_checksum(style)}; script-src {_checksum(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("link", rel="icon", href="data:,"),
        element("style", Html(style)),
    )
    content = element("body", element("main", body), data_block("data", data), element("script", Html(script)))
    page = together(Html("<!doctype html>\n"), element("html", head, Html("\n"), content, lang="en"), Html("\n"))
    return page.encode("ascii", "xmlcharrefreplace").decode()


@cache
def assets(scripts: tuple[str, ...] = _SCRIPTS) -> tuple[str, str]:
    """Return the style sheet and the script."""
    folder = files("deeplda.report") / "assets"
    parts = [(folder / name).read_text(encoding="ascii") for name in scripts]
    return (folder / "report.css").read_text(encoding="ascii"), '"use strict";\n{\n' + "\n".join(parts) + "}\n"


def _checksum(text: str) -> str:
    """Return the checksum with which the security policy allows an inline style sheet or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _attribute(key: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def _markup(child: Child) -> str:
    if isinstance(child, Html):
        return child
    if isinstance(child, str | int):
        return escape(str(child))
    return together(*child)
