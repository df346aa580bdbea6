"""Figures as files and as text."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from deeplda.io import write_bytes
from deeplda.report.figures.style import in_style

# Without what says when and by which version it was drawn, the same data gives the same bytes.
_NAMELESS = {"Creator": None, "Date": None, "Format": None, "Type": None}


def save(figure: Figure, folder: Path, name: str) -> tuple[Path, Path]:
    """Write NAME.png (150 dpi) and NAME.svg into `folder`, each whole or not at all; return the two paths."""
    folder.mkdir(parents=True, exist_ok=True)
    png, drawing = folder / f"{name}.png", folder / f"{name}.svg"
    write_bytes(png, _drawn(figure, "png"))
    write_bytes(drawing, _drawn(figure, "svg"))
    return png, drawing


def svg(figure: Figure) -> str:
    """The figure as an <svg> element, to be put into a page: text is text, the same data gives the same words."""
    text = _drawn(figure, "svg").decode()
    return text[text.index("<svg") :]


@in_style
def _drawn(figure: Figure, kind: str) -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings():
        # A letter our font has not is a box in the PNG; in the SVG the reader's own fonts show it.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
            # Laid out once: every drawing would move things a little further.
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
        figure.savefig(stream, format=kind, metadata=_NAMELESS if kind == "svg" else {"Software": None})
    return stream.getvalue()
