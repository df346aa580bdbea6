"""Errors that state what was received, what is needed and what to do.

The command line prints each of them as one sentence, without a traceback.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["InputError", "StoppedError", "TrainingError"]

_LONGEST_LINE = 2_000
_WRITE_FAILURES = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EEXIST, errno.ENOTDIR})


class InputError(ValueError):
    """The user passed a file, folder or option that cannot be used. Exit code 2.

    The message is always one printable line, even if it quotes names or values from a file. If `need` and `do` are
    passed, `got` composes the message.
    """

    def __init__(self, what: str, *, need: str | None = None, do: str | None = None) -> None:
        super().__init__(one_line(what if need is None or do is None else got(what, need=need, do=do)))


class NotFiniteError(InputError):
    """A model computes NaN or infinity, because its weights are damaged or its training diverged."""

    def __init__(self) -> None:
        super().__init__("the model computes NaN or infinity: train it again")


class FailedError(RuntimeError):
    """The input can be used, but the command did not succeed. Exit code 1."""


class TrainingError(FailedError):
    """Training cannot continue. Exit code 1."""


class StoppedError(Exception):
    """The user asked to stop, and the state was saved. Exit code 130."""


@contextmanager
def while_training() -> Iterator[None]:
    """Convert numerical errors raised in this block, such as those about NaN, to TrainingError."""
    try:
        yield
    except NotFiniteError:
        raise TrainingError("training failed because the model is not finite: lower --learning-rate") from None
    except InputError:
        raise
    except ValueError as error:
        raise TrainingError(f"training cannot continue: {error}") from None


def got(what: str, *, need: str, do: str) -> str:
    """Compose an error message, e.g. `got("labels has shape (64, 1)", need="(64,)", do="pass labels.squeeze(1)")`."""
    return f"{what}, need {need}: {do}"


def code_not_run(folder: object, code: str, do: str, *, kind: str = "network") -> InputError:
    """Return the error for a folder that names code which the user did not name; such code is never run."""
    what = f"the {kind} in {folder} is the code {code!r}, which is not run without your permission"
    return InputError(f"{what}: {do}")


def too_long(path: object) -> InputError:
    """Return the error for a path that is too long for the file system."""
    return InputError(f"the path {path} is too long for the file system: check it")


def unreadable(file: object, error: OSError, do: str) -> InputError:
    """Return the error for a file that cannot be opened. `do` is the advice, unless permission is missing."""
    advice = "ask its owner for read access" if isinstance(error, PermissionError) else do
    return InputError(f"{file} cannot be read ({error.strerror or error}): {advice}")


def one_line(text: str) -> str:
    """Return text as one printable line, with control characters escaped and the middle of a very long text cut out."""
    if len(text) > _LONGEST_LINE:
        text = f"{text[: _LONGEST_LINE // 2]} ... {text[-_LONGEST_LINE // 2 :]}"
    return printable(text)


def printable(text: str) -> str:
    """Return text with control characters, including line breaks, escaped."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def print_warning(message: Warning | str, *_where: object, **_more: object) -> None:
    """Print a warning as one line on stderr, without its source location; this replaces warnings.showwarning."""
    print(one_line(f"deeplda: {message}"), file=sys.stderr)


def unwritten(error: OSError) -> str | None:
    """Return the message for an error of the system, such as a full or failing disk; None if it has no error number."""
    if error.errno is None:
        return None
    where = f" ({error.filename})" if error.filename else ""
    # The other errors can also come from reading.
    what = "cannot write" if error.errno in _WRITE_FAILURES else "failed"
    if error.errno in (errno.EACCES, errno.EPERM):
        what = "not allowed"
    return f"{what}: {error.strerror}{where}; everything saved before is intact"
