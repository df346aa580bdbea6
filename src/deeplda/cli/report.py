"""`deeplda report`: write a page about a run, or a comparison of several runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from deeplda.cli.shared_options import DataDir, InputPath, OutputPath, OwnData, OwnNetwork, flag
from deeplda.errors import InputError
from deeplda.printing import say


def report(
    *runs: Annotated[InputPath, Parameter(help="Folders of finished runs, or the folder of a sweep.")],
    output: Annotated[
        OutputPath | None,
        Parameter(
            help="File to write. [default: report.html in the run folder; for several runs, report-compare.html, or "
            "report-compare-2.html and so on if it exists]"
        ),
    ] = None,
    open_: Annotated[bool, flag("Open the page in a browser.", name="--open")] = False,
    figures: Annotated[
        bool, flag("Also write the figures of a single run to its figures/ folder, as PNG and SVG.")
    ] = False,
    data_dir: DataDir = None,
    network: OwnNetwork = None,
    data: OwnData = None,
) -> None:
    """Write an HTML page with the scores, curves and embedding of a run, or one that compares runs or a sweep."""
    if not runs:
        raise InputError("no run was given: pass the folder of a finished run, or several to compare them")
    file = output or (runs[0] / "report.html" if len(runs) == 1 else Path("report-compare.html"))
    unnamed = output is None and len(runs) > 1
    if file.is_dir() and not unnamed:
        raise InputError(f"{file} is a folder: pass a file as --output")
    # In a run or sweep folder, a link is replaced; elsewhere, it belongs to the user.
    if output is not None and file.is_symlink():
        raise InputError(f"{file} is a link: name the file itself")
    if output is not None and not output.parent.is_dir():
        raise InputError(f"{output.parent} does not exist: pass a file in an existing folder as --output")

    from deeplda.report.record import finished_trials, is_sweep, read_record
    from deeplda.report.report_files import write_comparison, write_report

    single = len(runs) == 1 and not is_sweep(runs[0])
    if figures and not single:
        raise InputError("--figures needs a single run: pass one run, or omit --figures")
    if single:
        write_report(runs[0], output=output, figures=figures, data_dir=data_dir, network=network, named=data)
    else:
        records = [record for run in runs for record in (finished_trials(run) if is_sweep(run) else [read_record(run)])]
        title = Path(os.path.realpath(runs[0])).name if len(runs) == 1 else "Comparison"
        file = write_comparison(title, records, file, unused=unnamed, data_dir=data_dir, network=network, named=data)
    say(f"wrote {file}")
    if open_:
        import webbrowser

        if not webbrowser.open(file.absolute().as_uri()):
            say("could not start a browser; open the file yourself")
