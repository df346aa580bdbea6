"""Arguments that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, Token

from deeplda.errors import InputError
from deeplda.io import expanded, is_text


def flag(text: str, name: str | None = None) -> Parameter:
    """Return the parameter for an option that can only be switched on and has no `--no-` form."""
    return Parameter(name=name, negative="", help=text)


def _to_integer(_type: object, tokens: Sequence[Token]) -> int:
    return int(tokens[0].value)


def _to_path(_type: object, tokens: Sequence[Token]) -> Path:
    return expanded(tokens[0].value)


def _to_output(_type: object, tokens: Sequence[Token]) -> Path:
    path = expanded(tokens[0].value)
    if not is_text(path):
        raise InputError(f"the path {path} is not valid UTF-8: choose another one")
    return path


# By default, cyclopts would round 1.5.
WholeNumber = Annotated[int, Parameter(converter=_to_integer)]
# Paths in which ~ is the home folder; the shell does not replace it in --run=~/x.
InputPath = Annotated[Path, Parameter(converter=_to_path)]
# A path that is written to files such as run.toml, so it must be text.
OutputPath = Annotated[Path, Parameter(converter=_to_output)]

DataSource = Annotated[
    str | None,
    Parameter(
        help="A known data set, a folder of images, a pack, a table, an .npz file, or your own function as "
        "module.path:name. [default: digits]"
    ),
]
DataDir = Annotated[InputPath | None, Parameter(help="Folder with the known data sets, if it has moved.")]
FinishedRun = Annotated[InputPath, Parameter(help="Folder of a finished run.")]
RunOrModel = Annotated[InputPath, Parameter(help="Folder of a finished run or a model.")]
OwnNetwork = Annotated[
    str | None, Parameter(help="For a model with a custom network: the module.path:callable it was trained with.")
]
OwnData = Annotated[
    str | None,
    Parameter(name="--data", help="For a run on data from your own code: the module.path:name it was trained on."),
]
Device = Annotated[str, Parameter(help="cpu, cuda, cuda:1, ...")]
Recipe = Annotated[str | None, Parameter(help="Base settings: a recipe name or a TOML file.")]
Tta = Annotated[
    Literal["mirror", "views"] | None,
    Parameter(
        help="Average embeddings over each image and its mirror image (mirror), or also over both, shifted by a pixel "
        "(views)."
    ),
]
Quiet = Annotated[bool, flag("Do not show progress or notes.")]
Json = Annotated[bool, flag("Print one JSON object to stdout.", name="--json")]


def check_files(files: Sequence[Path], *, csv_: bool, json_: bool) -> None:
    """Raise InputError if a command has no files to work on, or two output formats."""
    if not files:
        raise InputError("no files were given: pass image files or folders, or a table, after the run")
    if csv_ and json_:
        raise InputError("--csv and --json were both given: omit one of them")
