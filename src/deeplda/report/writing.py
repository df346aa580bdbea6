"""From run folders to report files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deeplda.io import write_text
from deeplda.report.comparison import MOST_DRAWN, check_comparable, comparison_page
from deeplda.report.contents import RunRecord, read_contents, read_many
from deeplda.report.page import run_page
from deeplda.training.progress import Progress, TerminalProgress

# Of each run in a comparison; a page of one run shows up to 10,000.
_POINTS_COMPARED = 2_000


def write_report(
    folder: Path,
    *,
    output: Path | None = None,
    figures: bool = False,
    data_dir: Path | None = None,
    network: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write the report of a finished run, by default to report.html in its folder, and return where it is.

    Args:
        figures: also write the figures, as PNG and SVG, into figures/ of the run.
        data_dir: where known data is, if it has moved.
        network: for a network of your own, as in `deeplda.load`.
        progress: sees the work go on; by default a terminal shows it.

    Raises InputError where the run is not finished, or its model or data cannot be had.
    """
    progress = progress or TerminalProgress()
    file = output or folder / "report.html"
    with progress.status(f"writing the report of {folder}"):
        contents = read_contents(folder, data_dir=data_dir, network=network)
        write_text(file, run_page(contents))
        if figures:
            from deeplda.report.run_figures import write_figures

            write_figures(contents, folder / "figures")
    return file


def write_comparison(
    title: str,
    records: Sequence[RunRecord],
    output: Path,
    *,
    data_dir: Path | None = None,
    network: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write the page that sets runs side by side to `output`, and return it. Raises InputError as `write_report`."""
    progress = progress or TerminalProgress()
    check_comparable(records)
    with progress.status(f"comparing {len(records)} runs"):
        first = records[:MOST_DRAWN]
        drawn = read_many(first, points=_POINTS_COMPARED, data_dir=data_dir, network=network)
        write_text(output, comparison_page(title, records, drawn))
    return output
