"""`deeplda report`: a page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from deeplda.errors import InputError


def report(
    *runs: Annotated[Path, Parameter(help="Folders of finished runs, or of a sweep.")],
    output: Annotated[
        Path | None,
        Parameter(help="File to write. [default: report.html in the folder, report-compare.html for several]"),
    ] = None,
    open_: Annotated[bool, Parameter(name="--open", negative="", help="Show it in the browser.")] = False,
    figures: Annotated[
        bool,
        Parameter(negative="", help="Of one run: also write its figures into its figures/, as PNG and SVG."),
    ] = False,
    data_dir: Annotated[Path | None, Parameter(help="Where known data is, if it has moved.")] = None,
    network: Annotated[str | None, Parameter(help="For a network of your own: module.path:callable.")] = None,
) -> None:
    """Write a run's scores, curves and embedding as one HTML page; several runs, or a sweep's, side by side."""
    if not runs:
        raise InputError("no run was given: name the folder of a finished run, or several to compare")
    if output is not None and (output.is_dir() or not output.resolve().parent.is_dir()):
        what = f"{output} is a folder" if output.is_dir() else f"{output.parent} does not exist"
        raise InputError(f"{what}: name a file in a folder that is there as --output")

    from deeplda.report.contents import finished_trials, is_sweep, read_record
    from deeplda.report.writing import write_comparison, write_report

    if figures and (len(runs) > 1 or is_sweep(runs[0])):
        raise InputError("figures are those of one run: name one, or leave --figures out")
    if len(runs) == 1 and not is_sweep(runs[0]):
        file = write_report(runs[0], output=output, figures=figures, data_dir=data_dir, network=network)
    else:
        records = [record for run in runs for record in (finished_trials(run) if is_sweep(run) else [read_record(run)])]
        where = runs[0] / "report.html" if len(runs) == 1 else Path("report-compare.html")
        title = runs[0].resolve().name if len(runs) == 1 else "Comparison"
        file = write_comparison(title, records, output or where, data_dir=data_dir, network=network)
    print(f"the report is in {file}")
    if open_:
        import webbrowser

        if not webbrowser.open(file.resolve().as_uri()):
            print("no browser could be started: open the file yourself")
