"""Errors that say what came, what is needed and what to do.

The command line shows each of these as one sentence, without a traceback.
"""


class InputError(ValueError):
    """Something the user gave cannot be used: a file, a folder, an option. Exit code 2."""


class TrainingError(RuntimeError):
    """Training cannot go on. Exit code 1."""


class StoppedError(Exception):
    """The user asked to stop, and the state was saved. Exit code 130."""


def got(what: str, *, need: str, do: str) -> str:
    """The sentence of an error: `got("labels has shape (64, 1)", need="(64,)", do="pass labels.squeeze(1)")`."""
    return f"{what}, need {need}: {do}"
