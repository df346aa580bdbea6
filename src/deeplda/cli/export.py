"""`deeplda export RUN`: export the model to one file for other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from deeplda.cli.shared_options import DataDir, OutputPath, OwnData, OwnNetwork, RunOrModel, flag
from deeplda.formatting import counted
from deeplda.printing import say

if TYPE_CHECKING:
    from deeplda.export import Verification


def export(
    run: RunOrModel,
    /,
    *,
    format_: Annotated[
        Literal["onnx", "torch"],
        Parameter(
            name="--format", help="onnx, or torch for torch.export.load, which must only be used on trusted files."
        ),
    ] = "onnx",
    output: Annotated[
        OutputPath | None, Parameter(help="File to write. [default: model.onnx or model.pt2 in the model's folder]")
    ] = None,
    verify_all: Annotated[bool, flag("Verify on the whole test set instead of 1,000 of its samples.")] = False,
    data_dir: DataDir = None,
    network: OwnNetwork = None,
    data: OwnData = None,
) -> None:
    """Export the normalisation, network and predictor as one graph, and verify it on samples of the model's data."""
    from deeplda.export import export_run
    from deeplda.training.progress import TerminalProgress

    with TerminalProgress().status(f"exporting {run}"):
        exported = export_run(
            run,
            format=format_,
            output=output,
            verify_all=verify_all,
            data_dir=data_dir,
            network=network,
            named=data,
        )
    say(f"verified on {exported.samples}: {_findings(exported.verification)}")
    if exported.table is not None:
        say(f"the graph takes encoded rows, {len(exported.table.outputs)} numbers each:")
        for line in exported.table.describe():
            say(f"  {line}")
    say(f"the model is in {exported.file}")


def _findings(found: Verification) -> str:
    decisions = f"{counted(found.different, 'decision')} {'differs' if found.different == 1 else 'differ'}"
    words = [f"probabilities differ by at most {found.difference:.1e}", decisions]
    if found.different:
        words.append(f"{found.clearly_different:,} of them with the two highest probabilities more than 0.0001 apart")
    if not found.close:
        words.append("because the scores are so large that rounding errors in the embedding matter")
    return ", ".join(words)
