"""The command line, with one file per command. Commands import their dependencies only when run, so help is instant."""

from __future__ import annotations

import errno
import io
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext, suppress

from cyclopts import App
from cyclopts.exceptions import CycloptsError, UnusedCliTokensError

from deeplda import __version__
from deeplda.cli.launcher import is_in_job, is_silent
from deeplda.errors import FailedError, InputError, StoppedError, print_warning, too_long, unwritten
from deeplda.printing import say
from deeplda.training.stopping import interrupted_by_signals

_HELP = """Deep linear discriminant analysis: train networks whose outputs form compact, linearly separable classes.

Start with `deeplda train`, which trains on scikit-learn's digits in half a minute.
"""
_EXAMPLES = """Examples:

    deeplda train
    deeplda train photos/ --image-size 64
    deeplda train table.csv --target tier
    deeplda train cifar10 --recipe quick
    deeplda evaluate runs/digits-lda
    deeplda predict runs/photos-lda scans/
"""

# The help text and an example for each command, defined here so that listing the commands imports none of them.
_COMMANDS = {
    "train": (
        "Train a network and its predictors on your data, score them and save them.",
        "photos/ --image-size 64 --class-weight balanced --run runs/photos",
    ),
    "fit-features": (
        "Make a model from stored embeddings of any network, without training.",
        "embeddings.parquet --target label --run runs/birds",
    ),
    "evaluate": ("Score a trained model on one split of its data.", "runs/digits-lda --json"),
    "predict": (
        "Classify images or the rows of a table: print the class and probability of each.",
        "runs/photos scans/ one.jpg --csv",
    ),
    "similar": (
        "Find the most similar images in a folder, or rows in a table.",
        "runs/photos one.jpg --in photos/ --output similar.html",
    ),
    "report": ("Write an HTML page about a run, or one that compares several runs.", "runs/digits-lda --open"),
    "doctor": ("Diagnose a run and suggest what to change.", "runs/digits-lda"),
    "audit": (
        "Find labels that are likely to be wrong, near-duplicates and outliers, and review them on a page.",
        "runs/photos --open",
    ),
    "export": (
        "Export a model as one ONNX or PyTorch graph that runs without deeplda.",
        "runs/digits-lda --format onnx",
    ),
    "network": ("Show the layers, shapes, parameters and FLOPs of a network.", "dorfernet --input 3x96x96"),
    "sweep": (
        "Run a grid, a search or one of the paper's tables, with any number of workers.",
        "--table cifar10 --scale quick --workers 2",
    ),
    "table": (
        "Show the results of a sweep next to the paper's numbers.",
        "sweeps/table-cifar10-quick --format markdown",
    ),
}
_DATA_COMMANDS = {
    "list": ("List the known data sets and whether each is on this machine.", ""),
    "fetch": ("Download, verify and unpack a known data set.", "cifar10"),
    "check": ("Read all of the data and report what it contains.", "photos/"),
    "pack": ("Write images to a pack, to train on more of them than fit in memory.", "photos/ photos.pack"),
}

app = App(
    name="deeplda",
    help=_HELP,
    help_epilogue=_EXAMPLES,
    help_format="plaintext",
    version=__version__,
    result_action="return_value",
    suppress_keyboard_interrupt=False,  # `main` reports it
)
_data = App(
    name="data",
    help="List, download, check and pack data.",
    help_epilogue="Example: deeplda data check photos/",
    help_format="plaintext",
)
app.command(_data)


def _add(parent: App, name: str, function: str, summary: str, example: str) -> None:
    parent.command(f"deeplda.cli.{function}", name=name, help=summary, help_epilogue=f"Example: deeplda {example}")


for _name, (_summary, _example) in _COMMANDS.items():
    _add(app, _name, "{0}:{0}".format(_name.replace("-", "_")), _summary, f"{_name} {_example}")
for _name, (_summary, _example) in _DATA_COMMANDS.items():
    _add(_data, _name, f"data:{_name}_command", _summary, f"data {_name} {_example}".rstrip())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with code 0 (success), 1 (failure), 2 (invalid input) or 130 (stopped)."""
    warnings.showwarning = print_warning
    if is_silent():
        warnings.simplefilter("ignore")
    # File names may contain bytes that are not valid text.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        # The processes of a job leave this to the process that started them.
        with nullcontext() if is_in_job() else interrupted_by_signals():
            app(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        _exit(2, _argument_mistake(error))
    except InputError as error:
        _exit(2, str(error))
    except FailedError as error:
        _exit(1, str(error))
    except StoppedError as error:
        _exit(130, str(error))
    except KeyboardInterrupt:
        _exit(130, "stopped")
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            _exit(2, str(too_long(error.filename)))
        if (sentence := unwritten(error)) is None:
            raise
        _exit(1, sentence)


def _argument_mistake(error: CycloptsError) -> str:
    """Return a one-line message about the invalid argument."""
    from pydantic import ValidationError

    from deeplda.training.config import first_mistake

    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"the command takes no further argument such as {error.unused_tokens[0]!r}: see --help"
    cause = error.__cause__ or error.__context__
    if isinstance(cause, InputError):
        return str(cause)
    text = first_mistake(cause) if isinstance(cause, ValidationError) else str(error)
    return " ".join(text.split())


def _exit(code: int, sentence: str) -> None:
    if not is_silent():
        # If the terminal is closed, the exit code still matters.
        with suppress(OSError):
            say(f"deeplda: {sentence}", file=sys.stderr)
    sys.exit(code)
