"""The command line. One file a command; each imports what it runs when it runs, so that help is instant."""

from __future__ import annotations

import errno
import io
import sys
import warnings
from collections.abc import Sequence

from cyclopts import App
from cyclopts.exceptions import CycloptsError

from deeplda import __version__
from deeplda.cli.processes import is_silent
from deeplda.errors import InputError, StoppedError, TrainingError, one_line, too_long, unwritten

_HELP = """Deep linear discriminant analysis: networks whose output is compact and linearly separable.

Start with `deeplda train`: it trains on scikit-learn's digits in half a minute.
"""
_EXAMPLES = """Examples:

    deeplda train
    deeplda train photos/ --image-size 64
    deeplda train cifar10 --recipe quick
    deeplda evaluate runs/digits-rdlda
    deeplda predict runs/photos-rdlda scans/
"""

app = App(
    name="deeplda",
    help=_HELP,
    help_epilogue=_EXAMPLES,
    help_format="plaintext",
    version=__version__,
    result_action="return_value",
)


def _add(parent: App, target: str, words: str, example: str, name: str | None = None) -> None:
    """Add a command by where it is. Its help is said here, so that listing the commands imports none of them."""
    parent.command(f"deeplda.cli.{target}", name=name, help=words, help_epilogue=f"Example: {example}")


_add(
    app,
    "train:train",
    "Train a network and its predictors, score and save them.",
    "deeplda train photos/ --image-size 64 --class-weight balanced --run runs/photos",
)
_add(
    app,
    "evaluate:evaluate",
    "Score the model of a run on a part of its data.",
    "deeplda evaluate runs/digits-rdlda --json",
)
_add(
    app,
    "predict:predict",
    "Classify images: file, class and probability of each.",
    "deeplda predict runs/photos scans/ one.jpg --csv",
)
_add(
    app,
    "sweep:sweep",
    "Run a grid or a search, or a table of the paper, by many workers.",
    "deeplda sweep --table 2 --scale quick --workers 2",
)
_add(
    app,
    "table:table",
    "Show a sweep's results beside the paper's numbers.",
    "deeplda table sweeps/table2-quick --format markdown",
)
_add(
    app,
    "report:report",
    "Write a run, or several side by side, as a page to look at.",
    "deeplda report runs/digits-rdlda --open",
)
_add(
    app,
    "export:export",
    "Write the model as one ONNX or PyTorch graph, for use without deeplda.",
    "deeplda export runs/digits-rdlda --format onnx",
)
_add(app, "doctor:doctor", "Say what is wrong with a run, and what to do.", "deeplda doctor runs/digits-rdlda")
_add(
    app,
    "network:network",
    "Show layers, shapes, parameters and FLOPs of a network.",
    "deeplda network dorfernet --input 3x96x96",
)
_data = App(
    name="data",
    help="List, fetch and check data.",
    help_epilogue="Example: deeplda data check photos/",
    help_format="plaintext",
)
_add(_data, "data:list_known", "List the known data sets, and which are here.", "deeplda data list", name="list")
_add(_data, "data:fetch", "Download a known data set, check it and unpack it.", "deeplda data fetch cifar10")
_add(_data, "data:check", "Tell what is there and whether it is whole.", "deeplda data check photos/")
app.command(_data)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 success, 1 failure, 2 bad input, 130 Ctrl-C."""
    warnings.showwarning = _show_warning
    # Names of files may be of bytes that are no text.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        _leave(2, _sentence(error))
    except InputError as error:
        _leave(2, str(error))
    except TrainingError as error:
        _leave(1, str(error))
    except StoppedError as error:
        _leave(130, str(error))
    except KeyboardInterrupt:
        _leave(130, "stopped")
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            _leave(2, str(too_long(error.filename)))
        if (sentence := unwritten(error)) is None:
            raise
        _leave(1, sentence)


def _sentence(error: CycloptsError) -> str:
    """What is wrong with the arguments, on one line."""
    from pydantic import ValidationError

    from deeplda.training.config import first_mistake

    cause = error.__cause__ or error.__context__
    text = first_mistake(cause) if isinstance(cause, ValidationError) else str(error)
    return " ".join(text.split())


def _leave(code: int, sentence: str) -> None:
    if not is_silent():
        print(f"deeplda: {one_line(sentence)}", file=sys.stderr)
    sys.exit(code)


def _show_warning(message: Warning | str, *_where: object, **_more: object) -> None:
    """A warning as one line for a person, without the place in the code."""
    if not is_silent():
        print(f"deeplda: {message}", file=sys.stderr)
