"""The shell of a page: one file that needs nothing else, and may not ask for it."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from deeplda.report.elements import Child, Html, data_block, element, together

_SCRIPTS = ("packing.js", "classes.js", "scatter.js", "densities.js", "tables.js", "start.js")


def document(title: str, body: Child, data: object) -> str:
    """The page, in ASCII, with `data` for its script.

    Its security policy lets this style, this script and images within the page through, and nothing else: neither
    the network nor anything that a class name might try.
    """
    style, script = assets()
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("link", rel="icon", href="data:,"),
        element("style", Html(style)),
    )
    content = element("body", body, data_block("data", data), element("script", Html(script)))
    page = together(Html("<!doctype html>\n"), element("html", head, Html("\n"), content, lang="en"), Html("\n"))
    return page.encode("ascii", "xmlcharrefreplace").decode()


@cache
def assets() -> tuple[str, str]:
    """The style sheet and the script."""
    folder = files("deeplda.report") / "assets"
    parts = [(folder / name).read_text(encoding="ascii") for name in _SCRIPTS]
    return (folder / "report.css").read_text(encoding="ascii"), '"use strict";\n{\n' + "\n".join(parts) + "}\n"


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    """What a policy knows an inline text by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
