"""`deeplda train`: train, score and save a model."""

from __future__ import annotations

import signal
import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from deeplda.cli.launcher import is_in_job, is_silent, run_job
from deeplda.cli.shared_options import DataSource, Json, Quiet, Recipe, WholeNumber, flag
from deeplda.errors import InputError, StoppedError, code_not_run
from deeplda.extras import require
from deeplda.formatting import duration, flops
from deeplda.printing import say, say_json
from deeplda.training.config import RunConfig, TrainConfig, merged, with_absolute_paths, without_effect

if TYPE_CHECKING:
    from deeplda.training.metrics import SummaryRow
    from deeplda.training.parallel import World
    from deeplda.training.pipeline import Finished
    from deeplda.training.progress import Progress


def train(
    data: DataSource = None,
    /,
    *,
    recipe: Recipe = None,
    run: Annotated[Path | None, Parameter(help="Folder for the run. [default: runs/DATA-OBJECTIVE]")] = None,
    resume: Annotated[bool, flag("Resume the run from its last checkpoint.")] = False,
    processes: Annotated[WholeNumber, Parameter(help="Number of processes; each batch is split among them.")] = 1,
    json_: Json = False,
    quiet: Quiet = False,
    tensorboard: Annotated[bool, flag("Also log each epoch for TensorBoard.")] = False,
    config: Annotated[TrainConfig, Parameter(name="*")] = TrainConfig(),  # noqa: B008  # frozen
) -> None:
    """Train a network and its predictors, select the best epoch by validation, and score it on the test set."""
    if processes < 1:
        raise InputError(f"--processes must be at least 1, got {processes}")
    if tensorboard:
        require("tensorboard", "train --tensorboard")

    from deeplda.experiments.recipes import read_recipe

    base = read_recipe(recipe) if recipe else {}
    chosen = {name: getattr(config, name) for name in config.model_fields_set}
    if data is not None:
        chosen["data"] = data
    settings = RunConfig.parse(with_absolute_paths(merged(base, chosen)), "the settings")
    if processes > 1 and not is_in_job():
        raise SystemExit(run_job(processes))

    from deeplda.training.parallel import joined_world, restart_count

    resume = resume or restart_count() > 0
    with joined_world(settings.device) as world:
        folder = world.from_first(run or _default_folder(settings, resume=resume))
        # The first process decides for all of them; if it raises an error, they all do.
        decide = partial(_settings_for, folder, settings, base, chosen, resume=resume)
        settings = world.from_first(world.together(decide if world.first else lambda: settings))
        if world.first:
            for name, other in without_effect(settings, chosen).items():
                option, value = name.replace("_", "-"), str(getattr(settings, other)).lower()
                say(f"note: --{option} has no effect on training with {other} {value}", file=sys.stderr)
        progress = _progress(folder, silent=quiet or is_silent(), tensorboard=tensorboard and world.first)
        finished = _train(folder, settings, progress, world)
        if not world.first:
            return
    if not (folder / "report.html").exists():
        from deeplda.report.report_files import write_report, write_subclass_figures

        write_subclass_figures(folder, progress, data=finished.data)
        write_report(folder, network=settings.network, model=finished.model, data=finished.data, progress=progress)
    if json_:
        say_json({"run": str(folder), **finished.summary.model_dump(exclude_unset=True)})
    else:
        _print_summary(folder, finished.summary, settings)


def _default_folder(settings: RunConfig, *, resume: bool) -> Path:
    """Return runs/DATA-OBJECTIVE, numbered if that exists already; to resume, return the last one that exists."""
    stem = f"{Path(settings.data).stem}-{settings.objective}"
    number, folder = 1, Path("runs") / stem
    while (following := Path("runs") / (stem if number == 1 else f"{stem}-{number}")).exists():
        number, folder = number + 1, following
    return folder if resume else following


def _settings_for(
    folder: Path, settings: RunConfig, base: Collection[str], chosen: Collection[str], *, resume: bool
) -> RunConfig:
    """Return the settings of the run to resume in `folder`, or `settings` for a new run.

    Raises InputError if the folder cannot be used, or if a setting in `base` or `chosen` differs from the run's.
    """
    if folder.is_file():
        raise InputError(f"{folder} is a file: pass a folder as --run")
    if (folder / "report.html").is_dir():
        raise InputError(f"{folder / 'report.html'} is a folder, need a file: remove or rename it")
    exists = (folder / "run.toml").exists()
    if not resume and (exists or (folder / "checkpoints").exists()):
        raise InputError(f"{folder} already contains a run: pass --resume to resume it, or choose another --run folder")
    if (folder / "model.json").exists():
        raise InputError(f"{folder} contains a model, not a run: choose another --run folder")
    if not exists:
        if resume:
            say(f"note: there is no run in {folder} to resume; starting one on {settings.data}", file=sys.stderr)
        return settings
    existing = RunConfig.read(folder / "run.toml")
    if ":" in (existing.network or "") and settings.network != existing.network:
        raise code_not_run(folder, str(existing.network), f"pass --network {existing.network}")
    for name in sorted({*base, *chosen}):
        if (before := getattr(existing, name)) != (now := getattr(settings, name)):
            do = f"omit {name}" if name in chosen else f"resume it with deeplda train --resume --run {folder}"
            what = f"{folder} was started with {name} {before}, not {now}"
            raise InputError(f"{what}: {do}, or choose another --run folder")
    return existing


def _progress(folder: Path, *, silent: bool, tensorboard: bool) -> Progress:
    from deeplda.training.progress import Progress, TensorBoardProgress, TerminalProgress

    shown = Progress() if silent else TerminalProgress()
    return TensorBoardProgress(folder / "tensorboard", shown) if tensorboard else shown


def _train(folder: Path, settings: RunConfig, progress: Progress, world: World) -> Finished:
    from deeplda.training.pipeline import asked_to_stop, run_to_end
    from deeplda.training.run_folder import summary_row

    if world.first and summary_row(folder) is not None:
        progress.note(f"{folder} is already finished")

    with asked_to_stop(signal.SIGINT, signal.SIGTERM, say=progress.note) as stop:
        try:
            return run_to_end(settings, folder, progress, stop, world=world)
        except StoppedError as error:
            command = f"deeplda train --resume --run {folder}{_network_option(settings)}"
            raise StoppedError(f"{error}; to resume: {command}") from None


def _network_option(settings: RunConfig) -> str:
    """Return the option that permits a custom network to be run again."""
    return f" --network {settings.network}" if ":" in (settings.network or "") else ""


def _print_summary(folder: Path, summary: SummaryRow, settings: RunConfig) -> None:
    from deeplda.cli.terminal import print_scores
    from deeplda.training.metrics import Scores

    assert isinstance(summary.test, Scores)
    assert summary.class_names is not None
    title = f"{settings.data}, test set"
    print_scores(summary.test, summary.class_names, title=title, mirrored=summary.mirrored.get("test"))
    reason = "best validation score" if summary.validation else "the last"
    # Runs from early versions did not count operations.
    compute = f", {flops(summary.flops)}" if summary.flops else ""
    say(f"selected epoch {summary.best_epoch} of {summary.epochs} ({reason}); {duration(summary.seconds)}{compute}")
    say(f"the run is in {folder}, and its report is {folder / 'report.html'}; next:")
    say(f"  deeplda evaluate {folder}{_network_option(settings)}")
    say(f"  deeplda predict {folder} FILES-OR-FOLDERS...{_network_option(settings)}")
