"""`deeplda doctor RUN`: diagnose a run in plain words."""

from __future__ import annotations

from dataclasses import asdict
from shutil import get_terminal_size
from textwrap import wrap
from typing import Annotated

from cyclopts import Parameter

from deeplda.cli.shared_options import InputPath, Json
from deeplda.errors import InputError, printable
from deeplda.printing import say, say_json


def doctor(
    run: Annotated[InputPath, Parameter(help="Folder of a run, finished or not.")],
    /,
    *,
    json_: Json = False,
) -> None:
    """Read the metrics of a run and print each problem, the evidence for it and what to do."""
    from deeplda.report.diagnosis import diagnose
    from deeplda.training.config import RunConfig
    from deeplda.training.metrics import ReconstructionScores
    from deeplda.training.run_folder import read_metrics

    rows = read_metrics(run)
    if any(isinstance(row.validation, ReconstructionScores) for row in rows):
        raise InputError(f"{run} is the autoencoder of a run: pass the folder of the run itself")
    findings = diagnose(rows, RunConfig.of(run))
    if json_:
        say_json({"run": str(run), "findings": [asdict(finding) for finding in findings]})
        return

    width = get_terminal_size().columns
    for finding in findings:
        say(f"{finding.severity}: {finding.what}")
        for text in (finding.why, finding.do):
            # Lines do not break at hyphens, so that option names stay intact.
            for line in wrap(printable(text), width - 2, break_on_hyphens=False):
                say(f"  {line}")
