"""The command line. One file a command; each imports what it runs when it runs, so that help is instant."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence

from cyclopts import App
from cyclopts.exceptions import CycloptsError

from deeplda import __version__
from deeplda.errors import InputError, StoppedError, TrainingError

_HELP = """Deep linear discriminant analysis: networks whose output is compact and linearly separable.

Start with `deeplda train`: it trains on scikit-learn's digits in about a minute.
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
# The help is said here, so that listing the commands imports none of them.
app.command("deeplda.cli.train:train", help="Train a network and its predictors, score and save them.")
app.command("deeplda.cli.evaluate:evaluate", help="Score the model of a run on a part of its data.")
app.command("deeplda.cli.predict:predict", help="Classify images: file, class and probability of each.")
app.command("deeplda.cli.network:network", help="Show layers, shapes, parameters and FLOPs of a network.")
_data = App(name="data", help="List, fetch and check data.", help_format="plaintext")
_data.command("deeplda.cli.data:list_known", name="list", help="List the known data sets, and which are here.")
_data.command("deeplda.cli.data:fetch", help="Download a known data set, check it and unpack it.")
_data.command("deeplda.cli.data:check", help="Tell what is there and whether it is whole.")
app.command(_data)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 success, 1 failure, 2 bad input, 130 Ctrl-C."""
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
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EPERM):
            raise
        where = f" ({error.filename})" if error.filename else ""
        _leave(1, f"cannot write: {error.strerror}{where}; what was saved before is whole")


def _sentence(error: CycloptsError) -> str:
    """What is wrong with the arguments, on one line."""
    from pydantic import ValidationError

    from deeplda.training.config import first_mistake

    cause = error.__cause__ or error.__context__
    text = first_mistake(cause) if isinstance(cause, ValidationError) else str(error)
    return " ".join(text.split())


def _leave(code: int, sentence: str) -> None:
    print(f"deeplda: {sentence}", file=sys.stderr)
    sys.exit(code)
