"""`deeplda train`: from data to a trained, scored and saved model."""

from __future__ import annotations

import json
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from deeplda.cli.numbers import WholeNumber
from deeplda.cli.processes import in_a_job, is_silent, run_together
from deeplda.errors import InputError, StoppedError, code_not_run
from deeplda.training.config import RunConfig, TrainConfig, merged, with_absolute_paths, without_effect

if TYPE_CHECKING:
    from deeplda.training.metrics import SummaryRow
    from deeplda.training.parallel import World
    from deeplda.training.progress import Progress


def train(
    data: Annotated[
        str | None, Parameter(help="A known name, a folder of images, or an .npz. [default: digits]")
    ] = None,
    /,
    *,
    recipe: Annotated[str | None, Parameter(help="Settings to start from: a recipe's name or a TOML file.")] = None,
    run: Annotated[Path | None, Parameter(help="Folder of the run. [default: a new one under runs/]")] = None,
    resume: Annotated[bool, Parameter(negative="", help="Go on with the run where it stopped.")] = False,
    processes: Annotated[WholeNumber, Parameter(help="Train in so many processes, which share each batch.")] = 1,
    json_: Annotated[bool, Parameter(name="--json", negative="", help="The summary as one JSON object.")] = False,
    quiet: Annotated[bool, Parameter(negative="", help="No progress.")] = False,
    tensorboard: Annotated[bool, Parameter(negative="", help="Write the epochs for TensorBoard too.")] = False,
    config: Annotated[TrainConfig, Parameter(name="*")] = TrainConfig(),  # noqa: B008  # frozen
) -> None:
    """Train a network and its predictors, keep the best epoch by validation, score it on the test part."""
    if processes < 1:
        raise InputError(f"--processes {processes}: at least one has to do the work")
    if tensorboard and find_spec("tensorboard") is None:
        raise InputError("TensorBoard is not installed: install deeplda[tensorboard], or leave --tensorboard out")
    chosen = {name: getattr(config, name) for name in config.model_fields_set}
    if data is not None:
        chosen["data"] = data
    settings = _settings(chosen, recipe)
    if processes > 1 and not in_a_job():
        raise SystemExit(run_together(processes))

    from deeplda.training.parallel import is_restarted, joined_world

    resume = resume or is_restarted()
    with joined_world(settings.device) as world:
        folder = world.from_first(run or _default_folder(settings, resume=resume))
        decided = world.together(
            lambda: _agree_with(folder, settings, chosen, recipe, resume=resume) if world.first else None
        )
        settings = world.from_first(decided) or settings
        if world.first:
            _say_what_is_idle(settings, chosen)
        progress = _progress(folder, silent=quiet or is_silent(), tensorboard=tensorboard and world.first)
        summary = _train(folder, settings, progress, world)
        if not world.first:
            return
    if not (folder / "report.html").exists():
        _draw(folder, settings, progress)
    if json_:
        print(json.dumps({"run": str(folder), **summary.model_dump(exclude_unset=True)}))
    else:
        _show(folder, summary, settings)


def _settings(chosen: dict[str, Any], recipe: str | None) -> RunConfig:
    """Defaults, then the recipe, then what was given on the command line."""
    from deeplda.experiments.recipes import read_recipe

    base = read_recipe(recipe) if recipe else {}
    return RunConfig.parse(with_absolute_paths(merged(base, chosen)), "the settings")


def _progress(folder: Path, *, silent: bool, tensorboard: bool) -> Progress:
    from deeplda.training.progress import Progress, TensorBoardProgress, TerminalProgress

    shown = Progress() if silent else TerminalProgress()
    return TensorBoardProgress(folder / "tensorboard", shown) if tensorboard else shown


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
    from deeplda.experiments.recipes import read_recipe

    if folder.is_file():
        raise InputError(f"{folder} is a file: name the folder of the run as --run")
    there = (folder / "run.toml").exists()
    if not resume and (there or (folder / "checkpoints").exists()):
        raise InputError(f"{folder} holds a run already: pass --resume to go on with it, or choose another --run")
    if (folder / "model.json").exists():
        raise InputError(f"{folder} holds a model and no run: choose another --run")
    if not there:
        if resume:
            print(f"note: no run is in {folder}: a new one is begun, on {settings.data}", file=sys.stderr)
        return settings
    existing = RunConfig.read(folder / "run.toml")
    if ":" in (existing.network or "") and settings.network != existing.network:
        raise code_not_run(folder, str(existing.network), f"pass --network {existing.network}")
    for name in sorted({*chosen, *(read_recipe(recipe) if recipe else ())}):
        if (before := getattr(existing, name)) != (now := getattr(settings, name)):
            do = "leave it out" if name in chosen else f"go on with deeplda train --resume --run {folder}"
            raise InputError(f"{folder} was started with {name} {before}, not {now}: {do}, or choose another --run")
    return existing


def _say_what_is_idle(settings: RunConfig, chosen: dict[str, Any]) -> None:
    for name, other in without_effect(settings, chosen).items():
        option, value = name.replace("_", "-"), str(getattr(settings, other)).lower()
        print(f"note: --{option} has no effect on training with {other} {value}", file=sys.stderr)


def _train(folder: Path, settings: RunConfig, progress: Progress, world: World) -> SummaryRow:
    from deeplda.training.pipeline import asked_to_stop, run_to_end
    from deeplda.training.run_folder import summary_row

    if world.first and summary_row(folder) is not None:
        progress.note(f"{folder} is finished already")

    with asked_to_stop(signal.SIGINT, signal.SIGTERM, say=progress.note) as stop:
        try:
            return run_to_end(settings, folder, progress, stop, world=world).summary
        except StoppedError as error:
            raise StoppedError(f"{error}; to go on: deeplda train --resume --run {folder}{_code(settings)}") from None


def _code(settings: RunConfig) -> str:
    """The option by which the user gives their word for code of their own again."""
    return f" --network {settings.network}" if ":" in (settings.network or "") else ""


def _draw(folder: Path, settings: RunConfig, progress: Progress) -> None:
    from deeplda.report.report_files import write_report, write_subclass_figures

    write_subclass_figures(folder, progress)
    write_report(folder, network=settings.network, progress=progress)


def _show(folder: Path, summary: SummaryRow, settings: RunConfig) -> None:
    from deeplda.cli.tables import print_scores
    from deeplda.formatting import flops
    from deeplda.report.wording import kept_epoch

    mirrored = summary["mirrored"]["test"] if "mirrored" in summary else None
    print_scores(summary["test"], summary["class_names"], title=f"{settings.data}, test part", mirrored=mirrored)
    spent = f"{summary['seconds']:.0f} s, {flops(summary.flops)}"
    print(f"epoch {summary['best_epoch']} {kept_epoch(summary)}, was kept; {spent}")
    print(f"the run is in {folder}; to look at: {folder / 'report.html'}; next:")
    print(f"  deeplda evaluate {folder}{_code(settings)}")
    print(f"  deeplda predict {folder} FILES-OR-FOLDERS...{_code(settings)}")
