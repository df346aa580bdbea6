"""HTML elements from Python: whatever is not an element already is text, and escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape

_VOID = frozenset({"img", "input", "link", "meta"})


class Html(str):
    """Text that is HTML already. Only `element` and its like make it."""

    __slots__ = ()


Child = str | int | Iterable["Child"]


def element(tag: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Html:
    """`element("a", "x < y", class_="b", aria_label="c")`: `<a class="b" aria-label="c">x &lt; y</a>`.

    Attributes that are None or False are left out, those that are True have no value.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if tag in _VOID:
        return Html(f"<{tag}{written}>")
    return Html(f"<{tag}{written}>{together(*children)}</{tag}>")


def together(*children: Child) -> Html:
    """Elements and texts one after the other."""
    return Html("".join(_markup(child) for child in children))


def data_block(identifier: str, data: object) -> Html:
    """A script element of JSON that no script runs from, whatever texts are in the data."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return Html(f'<script type="application/json" id="{escape(identifier)}">{text}</script>')


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
