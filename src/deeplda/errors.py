"""Errors that say what came, what is needed and what to do.

The command line shows each of these as one sentence, without a traceback.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

_LONGEST = 2_000
_CANNOT_WRITE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS, errno.EPERM, errno.EEXIST, errno.ENOTDIR}
)


class InputError(ValueError):
    """Something the user gave cannot be used: a file, a folder, an option. Exit code 2.

    Its text is one printable line, whatever names and values of a file are in it.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(one_line(sentence))


class TrainingError(RuntimeError):
    """Training cannot go on. Exit code 1."""


@contextmanager
def while_training() -> Iterator[None]:
    """What goes wrong with the numbers of a training within it, such as NaN in them, is a TrainingError."""
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        raise TrainingError(f"training cannot go on: {error}") from None


class StoppedError(Exception):
    """The user asked to stop, and the state was saved. Exit code 130."""


def got(what: str, *, need: str, do: str) -> str:
    """The sentence of an error: `got("labels has shape (64, 1)", need="(64,)", do="pass labels.squeeze(1)")`."""
    return f"{what}, need {need}: {do}"


def code_not_run(folder: object, network: str, do: str) -> InputError:
    """The refusal of code that a folder names and the user does not: it is not run on the folder's word."""
    return InputError(got(f"the network of {folder} is the code {network!r}", need="your word that it may run", do=do))


def too_long(path: object) -> InputError:
    """The refusal of a path that no file system takes."""
    return InputError(got(f"{path} is longer than the name of a file can be", need="a path", do="check it"))


def one_line(text: str) -> str:
    """The text with all that would break the line, or speak to the terminal, written as escapes; its middle left out
    where it is very long."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def unwritten(error: OSError) -> str | None:
    """What to say where a disk is full or a folder may not be used; None for errors of another kind."""
    if error.errno not in _CANNOT_WRITE:
        return None
    where = f" ({error.filename})" if error.filename else ""
    # Python's own looks at a folder fail like this too, also where nothing was to be written.
    what = "not allowed" if error.errno in (errno.EACCES, errno.EPERM) else "cannot write"
    return f"{what}: {error.strerror}{where}; what was saved before is whole"
