"""`deeplda train`: from data to a trained, scored and saved model."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

from cyclopts import Parameter

from deeplda.errors import InputError, StoppedError
from deeplda.training.config import RunConfig, TrainConfig


def train(
    data: Annotated[
        str | None, Parameter(help="A known name, a folder of images, or an .npz. [default: digits]")
    ] = None,
    /,
    *,
    recipe: Annotated[str | None, Parameter(help="Settings to start from: a recipe's name or a TOML file.")] = None,
    run: Annotated[Path | None, Parameter(help="Folder of the run. [default: a new one under runs/]")] = None,
    resume: Annotated[bool, Parameter(negative="", help="Go on with the run where it stopped.")] = False,
    json_: Annotated[bool, Parameter(name="--json", negative="", help="The summary as one JSON object.")] = False,
    quiet: Annotated[bool, Parameter(negative="", help="No progress.")] = False,
    config: Annotated[TrainConfig, Parameter(name="*")] = TrainConfig(),  # noqa: B008  # frozen
) -> None:
    """Train a network and its predictors, keep the best epoch by validation, score it on the test part.

    Example: deeplda train photos/ --image-size 64 --class-weight balanced --run runs/photos
    """
    chosen = {name: getattr(config, name) for name in config.model_fields_set}
    if data is not None:
        chosen["data"] = data
    settings = _settings(chosen, recipe)
    folder = run or _default_folder(settings, resume=resume)
    settings = _agree_with(folder, settings, chosen, recipe, resume=resume)

    from deeplda.training.run_folder import summary_row

    summary = summary_row(folder)
    if summary is None:
        summary = _train(folder, settings, quiet=quiet)
    elif not quiet:
        _say(f"{folder} is finished already")
    if json_:
        print(json.dumps({"run": str(folder), **summary}))
    else:
        _show(folder, summary, settings)


def _settings(chosen: dict[str, Any], recipe: str | None) -> RunConfig:
    """Defaults, then the recipe, then what was given on the command line."""
    from deeplda.experiments.recipes import read_recipe

    base = read_recipe(recipe) if recipe else {}
    if chosen.get("objective") in ("dlda", "cce") and "alpha" not in chosen:
        base.pop("alpha", None)
    settings = RunConfig.parse(base | chosen, "the settings")
    path = Path(settings.data).expanduser()
    # A run is read again from anywhere, so what is a path is written whole.
    return settings.model_copy(update={"data": str(path.resolve())}) if path.exists() else settings


def _default_folder(settings: RunConfig, *, resume: bool) -> Path:
    """runs/DATA-OBJECTIVE, numbered where it exists; to resume, the last one there is."""
    stem = f"{Path(settings.data).stem}-{settings.objective}"
    number, folder = 1, Path("runs") / stem
    while (following := Path("runs") / (stem if number == 1 else f"{stem}-{number}")).exists():
        number, folder = number + 1, following
    return folder if resume else following


def _agree_with(
    folder: Path, settings: RunConfig, chosen: dict[str, Any], recipe: str | None, *, resume: bool
) -> RunConfig:
    """The settings of the run that is there, where there is one and it may go on; else `settings`."""
    there = (folder / "run.toml").exists()
    if not resume and (there or (folder / "checkpoints").exists()):
        raise InputError(f"{folder} holds a run already: pass --resume to go on with it, or choose another --run")
    if not there:
        return settings
    existing = RunConfig.read(folder / "run.toml")
    names = set(chosen) if recipe is None else set(RunConfig.model_fields)
    for name in sorted(names):
        if (before := getattr(existing, name)) != (now := getattr(settings, name)):
            raise InputError(
                f"{folder} was started with {name} {before}, not {now}: leave it out, or choose another --run"
            )
    return existing


def _train(folder: Path, settings: RunConfig, *, quiet: bool) -> dict[str, Any]:
    from deeplda.training.assembly import check_settings, read_data
    from deeplda.training.loop import train as run_loop
    from deeplda.training.progress import Progress
    from deeplda.training.run_folder import open_run

    progress = Progress("quiet" if quiet else "auto")
    with progress.console.status(f"reading {settings.data}"):
        data = read_data(settings)
    check_settings(settings, data)
    with open_run(folder, settings, data.fingerprint) as run, _asked_to_stop(progress.console.print) as stop:
        try:
            return run_loop(settings, data, run, progress, stop)[1]
        except StoppedError as error:
            raise StoppedError(f"{error}; to go on: deeplda train --resume --run {folder}") from None
        finally:
            progress.close()


@contextmanager
def _asked_to_stop(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C or SIGTERM came. The step under way is finished first; a second Ctrl-C stops at once."""
    asked = False

    def ask(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        say("finishing the step, then saving; once more to stop at once")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(folder: Path, summary: dict[str, Any], settings: RunConfig) -> None:
    from deeplda.cli.tables import print_scores

    print_scores(summary["test"], summary["class_names"], title=f"{settings.data}, test part")
    print(f"best epoch {summary['best_epoch']} of {summary['epochs']} by validation, {summary['seconds']:.0f} s")
    print(f"the run is in {folder}; next:")
    print(f"  deeplda evaluate {folder}")
    print(f"  deeplda predict {folder} FILES-OR-FOLDERS...")


def _say(text: str) -> None:
    import sys

    print(text, file=sys.stderr)
