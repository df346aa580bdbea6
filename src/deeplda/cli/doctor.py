"""`deeplda doctor RUN`: what is wrong with a run and what to do, in words."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import Annotated

from cyclopts import Parameter

from deeplda.errors import InputError, one_line
from deeplda.training.config import RunConfig


def doctor(
    run: Annotated[Path, Parameter(help="Folder of a run, finished or not.")],
    /,
    *,
    json_: Annotated[bool, Parameter(name="--json", negative="", help="One JSON object on stdout.")] = False,
) -> None:
    """Read the metrics of a run and say what is wrong, why we think so and what to do."""
    from deeplda.report.doctor import diagnose
    from deeplda.report.doctor.record import count_classes
    from deeplda.training.run_folder import read_metrics

    rows = read_metrics(run)
    if any("error" in (row["validation"] or {}) for row in rows):
        raise InputError(f"{run} is the autoencoder of a run: give the folder of the run itself")
    findings = diagnose(rows, RunConfig.of(run), count_classes(rows))
    if json_:
        print(json.dumps({"run": str(run), "findings": [asdict(finding) for finding in findings]}))
        return

    for finding in findings:
        print(f"{finding.severity}: {one_line(finding.what)}")
        for sentences in (finding.why, finding.do):
            print(_paragraph(one_line(sentences)))


def _paragraph(sentences: str) -> str:
    """Indented, in lines as wide as the terminal; the names of options stay whole."""
    width = get_terminal_size().columns
    return fill(sentences, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
