"""`deeplda table SWEEP`: show the results of a sweep next to the paper's."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import Parameter

from deeplda.cli.shared_options import InputPath, OutputPath
from deeplda.errors import InputError
from deeplda.printing import printable_lines, say, say_lines


def table(
    sweep: Annotated[InputPath, Parameter(help="Folder of a sweep, or of published results of one.")],
    /,
    *,
    format_: Annotated[
        Literal["text", "markdown", "latex", "csv", "json"],
        Parameter(name="--format", help="Format of the table; latex needs the package booktabs."),
    ] = "text",
    output: Annotated[OutputPath | None, Parameter(help="File to write to. [default: stdout]")] = None,
) -> None:
    """Show the mean and spread over seeds next to the paper's numbers, and compare with DLDA and cross-entropy."""
    if output is not None and output.is_dir():
        raise InputError(f"{output} is a folder: pass a file as --output")

    from deeplda.experiments.result_table import format_table, result_table
    from deeplda.experiments.results import read_results
    from deeplda.output_folder import write_file

    text = format_table(result_table(read_results(sweep)), format_)
    if output is None:
        say_lines(text)
    else:
        write_file(output, printable_lines(text))
        say(f"the table is in {output}", file=sys.stderr)
