"""`deeplda audit RUN`: find labels that are likely to be wrong."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

from deeplda.cli.shared_options import DataDir, Device, FinishedRun, Json, OwnData, OwnNetwork, flag
from deeplda.errors import InputError
from deeplda.printing import as_csv, say, say_json, say_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deeplda.report.audited_run import AuditedRun

# The numbers of rows in the tables on a terminal.
_MOST_SUSPECTS, _MOST_OTHERS = 20, 5


def audit(
    run: FinishedRun,
    /,
    *,
    open_: Annotated[bool, flag("Open the page in a browser.", name="--open")] = False,
    data_dir: DataDir = None,
    network: OwnNetwork = None,
    data: OwnData = None,
    device: Device = "cpu",
    csv_: Annotated[bool, flag("Print all samples as comma-separated values to stdout.", name="--csv")] = False,
    json_: Json = False,
) -> None:
    """Rank all samples of a run by how likely their labels are wrong; list near-duplicates and outliers.

    The complete list is written to audit.csv in the run folder, and the first samples to audit.html, a page on which
    you decide about each. Pass the decisions to deeplda train, with --relabel or --drop.
    """
    if csv_ and json_:
        raise InputError("--csv and --json were both given: omit one of them")

    from deeplda.device import pick_device
    from deeplda.report.audit_page import audit_page
    from deeplda.report.audited_run import COLUMNS, audit_run, write_audit
    from deeplda.training.progress import TerminalProgress

    with TerminalProgress().status(f"auditing {run}"):
        found = audit_run(run, data_dir=data_dir, network=network, named=data, device=str(pick_device(device)))
        table, page = write_audit(found, audit_page(found))
    for note in found.notes:
        say(f"note: {note}", file=sys.stderr)
    if csv_:
        say_lines(as_csv(COLUMNS, found.rows()))
    elif json_:
        say_json(_as_json(found))
    else:
        _print(found)
        say(f"all {len(found.names):,} samples are in {table}, and the first ones in {page}; next:")
        say(f"  open {page}, decide, and download {found.decisions_file} to this folder")
        say(f"  {found.command}")
    if open_:
        import webbrowser

        if not webbrowser.open(page.absolute().as_uri()):
            say("could not start a browser; open the page yourself", file=sys.stderr)


def _as_json(run: AuditedRun) -> dict[str, object]:
    audit = run.audit
    return {
        "margins_from_training": bool(audit.from_training.any()),
        "estimated_mistakes": audit.mistakes,
        "estimated_mistakes_range": audit.mistakes_range,
        "samples": run.rows(),
        "duplicates": [[run.names[i], run.names[j]] for i, j in audit.duplicates],
        "outliers": [run.names[place] for place in run.outliers],
    }


def _print(run: AuditedRun) -> None:
    """Print the most likely mistakes, near-duplicates and outliers as tables."""
    say(run.estimate)
    columns: tuple[str, ...] = ("sample", "part", "given", "suggested")
    _print_rows(run, "most likely wrong labels", run.order[:_MOST_SUSPECTS], columns)
    columns = ("sample", "part", "given", "duplicate_of")
    _print_rows(run, "near-duplicates with different labels", run.duplicates[:_MOST_OTHERS], columns)
    columns = ("sample", "part", "given", "distance")
    _print_rows(run, "outliers, far from every class", run.outliers[:_MOST_OTHERS], columns)
    say(run.rule)
    if "test" in run.parts:
        say("Training never changes the test set: correct its samples in your data.")


def _print_rows(run: AuditedRun, title: str, places: Sequence[int], columns: tuple[str, ...]) -> None:
    if not places:
        return
    from rich.box import SIMPLE
    from rich.table import Table

    from deeplda.cli.terminal import print_table

    table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
    for column in columns:
        # Wrap long paths instead of truncating them, because files in one folder differ only at the end.
        justify: Literal["left", "right"] = "right" if column == "distance" else "left"
        table.add_column(column.replace("_", " "), justify=justify, overflow="fold")
    for place in places:
        cells = (run.row(place)[column] for column in columns)
        table.add_row(*(f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in cells))
    print_table(table)
