"""Errors that say what came, what is needed and what to do."""


class InputError(ValueError):
    """Something the user gave cannot be used: a file, a folder, an option. One plain sentence.

    The command line shows it without a traceback and ends with exit code 2.
    """


def got(what: str, *, need: str, do: str) -> str:
    """The sentence of an error: `got("labels has shape (64, 1)", need="(64,)", do="pass labels.squeeze(1)")`."""
    return f"{what}, need {need}: {do}"
