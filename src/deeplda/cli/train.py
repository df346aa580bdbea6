"""`deeplda train`: train, score and save a model."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from deeplda.cli.automatic_choice import DEFAULT_MINUTES, Automatic
from deeplda.cli.launcher import is_in_job, is_silent, run_job, stop_with_launcher
from deeplda.cli.run_choice import RunChoice, chosen_run
from deeplda.cli.shared_options import DataSource, Json, OutputPath, Quiet, Recipe, WholeNumber, flag
from deeplda.data.table_formats import table_format
from deeplda.errors import InputError, StoppedError
from deeplda.extras import require
from deeplda.formatting import duration, flops
from deeplda.io import expanded
from deeplda.printing import say, say_json
from deeplda.training.config import RunConfig, TrainConfig, merged, with_absolute_paths
from deeplda.training.idle_settings import without_effect
from deeplda.user_code import code_options, is_code, require_named

if TYPE_CHECKING:
    from deeplda.data.dataset import Data
    from deeplda.report.diagnosis import Finding
    from deeplda.training.loggers import LoggerBuilder
    from deeplda.training.metrics import SummaryRow
    from deeplda.training.parallel import World
    from deeplda.training.pipeline import Finished
    from deeplda.training.progress import Progress


def train(
    data: DataSource = None,
    /,
    *,
    recipe: Recipe = None,
    run: Annotated[OutputPath | None, Parameter(help="Folder for the run. [default: runs/DATA-OBJECTIVE]")] = None,
    resume: Annotated[bool, flag("Resume the run from its last checkpoint.")] = False,
    minutes: Annotated[
        float | None,
        Parameter(
            help="Time for a run on images of your own, which determines the number of epochs. "
            f"[default: {DEFAULT_MINUTES:g}]"
        ),
    ] = None,
    processes: Annotated[WholeNumber, Parameter(help="Number of processes; each batch is split among them.")] = 1,
    json_: Json = False,
    quiet: Quiet = False,
    tensorboard: Annotated[bool, flag("Also log each epoch for TensorBoard.")] = False,
    logger: Annotated[
        str | None, Parameter(help="Also log each epoch with your own code: module.path:name of a logger.")
    ] = None,
    config: Annotated[TrainConfig, Parameter(name="*", negative_iterable=())] = TrainConfig(),  # noqa: B008  # frozen
) -> None:
    """Train a network and its predictors, select the best epoch by validation, and score it on the test set.

    For a folder or an .npz file of images, without --recipe and --epochs, the settings depend on the images. They are
    printed as a command.
    """
    started = time.monotonic()
    if processes < 1:
        raise InputError(f"--processes must be at least 1, got {processes}")
    if tensorboard:
        require("tensorboard", "train --tensorboard")

    from deeplda.experiments.recipes import read_recipe

    base = read_recipe(recipe) if recipe else {}
    chosen = {name: getattr(config, name) for name in config.model_fields_set}
    if data is not None:
        chosen["data"] = data
    require_named(recipe, merged(base, chosen), chosen)
    automatic = Automatic(chosen, recipe, minutes, processes, started)
    is_there = resume and run is not None and (run / "run.toml").exists()
    inherited = {} if is_there else _inherited(merged(base, chosen))
    settings = RunConfig.parse(with_absolute_paths(merged(merged(inherited, base), chosen)), "the settings")
    if processes > 1 and not is_in_job():
        raise SystemExit(run_job(processes))
    stop_with_launcher()

    from deeplda.training.loggers import TensorBoardLogger, find_logger
    from deeplda.training.parallel import joined_world

    loggers: list[LoggerBuilder] = [TensorBoardLogger] if tensorboard else []
    loggers += [find_logger(logger)] if logger else []

    with joined_world(settings.device) as world, ExitStack() as stack:

        def note(text: str) -> None:
            if not quiet:
                say(f"note: {text}", file=sys.stderr)

        def choose() -> RunChoice:
            found = chosen_run(run, settings, base, chosen, resume=resume, note=note)
            return automatic.applied(stack.enter_context(found))

        choice = world.in_first(choose)
        folder, settings = choice.folder, choice.settings
        if world.first:
            _note_options_without_effect(choice, chosen, minutes, note)
        progress = _progress(folder, loggers if world.first else [], silent=quiet or is_silent())
        complete = automatic.completion(folder, progress, world) if choice.settings_are_open else None
        if choice.is_new and settings.network == "identity" and "lam" not in settings.model_fields_set:
            complete = _ridge_choice(progress)
        logging = " --tensorboard" * tensorboard + (f" --logger {logger}" if logger else "")
        finished = _train(choice, progress, world, complete, logging)
        if not world.first:
            return
    if not (folder / "report.html").exists():
        _write_report(folder, settings, finished, progress)
    if json_:
        say_json({"run": str(folder), **finished.summary.model_dump(exclude_unset=True)})
    else:
        _print_summary(folder, finished.summary, settings)


def _note_options_without_effect(
    choice: RunChoice, given: Collection[str], minutes: float | None, note: Callable[[str], None]
) -> None:
    settings = choice.settings
    for name, other in without_effect(settings, given).items():
        option, value = name.replace("_", "-"), str(getattr(settings, other)).lower()
        note(f"--{option} has no effect on training with {other} {value}")
    if minutes is not None and not choice.is_new:
        note(f"--minutes has no effect on {choice.folder}, which was started before")


def _ridge_choice(progress: Progress) -> Callable[[RunConfig, Data], RunConfig]:
    """Return a function that completes the settings of a run without layers by the ridge that suits the data."""

    def complete(config: RunConfig, data: Data) -> RunConfig:
        from deeplda.training.ridge_choice import with_chosen_ridge

        found, note = with_chosen_ridge(config, data, progress.watch)
        progress.note(note)
        return found

    return complete


def _inherited(given: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of the run that a new one starts from; none if it starts anew, or repeats such a run."""
    start = given.get("start_from")
    if not isinstance(start, str | Path) or "start_hash" in given:
        return {}
    from deeplda.training.start_from import inherited_settings

    return inherited_settings(expanded(start), given)


def _progress(folder: Path, loggers: Sequence[LoggerBuilder], *, silent: bool) -> Progress:
    from deeplda.training.loggers import LoggedProgress
    from deeplda.training.progress import Progress, TerminalProgress

    shown = Progress() if silent else TerminalProgress()
    return LoggedProgress(folder, loggers, shown) if loggers else shown


def _train(
    choice: RunChoice,
    progress: Progress,
    world: World,
    complete: Callable[[RunConfig, Data], RunConfig] | None,
    logging: str,
) -> Finished:
    """Train a run to its end. If it is stopped, the message has the command to resume it, which ends in `logging`."""
    from deeplda.training.run_folder import summary_row
    from deeplda.training.stopping import STOP_SIGNALS, asked_to_stop

    folder, settings = choice.folder, choice.settings
    if world.first and summary_row(folder, settings) is not None:
        progress.note(f"{folder} is already finished")
        if (changes := _changes_since(folder, settings)) is not None:
            do = f"to use it, train a new run, for example with --start-from {folder}"
            progress.note(f"{settings.data} has changed since ({changes}); {do}")

    # Without epochs, there is no step after which to stop and no state to save, so Ctrl-C stops at once.
    signals = STOP_SIGNALS if settings.stretches[-1] or world.size > 1 else ()
    with asked_to_stop(*signals, say=progress.note) as stop:
        # Only now, because this takes a second, and a signal in between could end one process and not the others.
        from deeplda.training.pipeline import run_to_end

        try:
            return run_to_end(settings, folder, progress, stop, world=world, new_id=choice.new_id, complete=complete)
        except StoppedError as error:
            command = f"deeplda train --resume --run {shlex.quote(str(folder))}{code_options(dict(settings))}{logging}"
            raise StoppedError(f"{error}; to resume: {command}") from None


def _write_report(folder: Path, settings: RunConfig, finished: Finished, progress: Progress) -> None:
    from deeplda.report.report_files import write_report, write_subclass_figures

    model, data = finished.model, finished.data
    write_subclass_figures(folder, progress, data=data, named=settings.data)
    write_report(folder, network=settings.network, named=settings.data, model=model, data=data, progress=progress)


def _changes_since(folder: Path, settings: RunConfig) -> str | None:
    """Return how the images of a finished run have changed, or None if they have not or cannot be compared."""
    from deeplda.data.sources import source_changes
    from deeplda.data.stored_split import StoredSplit
    from deeplda.training.run_folder import split_of

    try:
        split = split_of(folder)
        return source_changes(settings.data, split) if isinstance(split, StoredSplit) else None
    except InputError as error:
        return str(error)


def _print_summary(folder: Path, summary: SummaryRow, settings: RunConfig) -> None:
    from deeplda.cli.terminal import print_scores
    from deeplda.training.metrics import Scores

    assert isinstance(summary.test, Scores)
    assert summary.class_names is not None
    title = f"{settings.data}, test set"
    print_scores(summary.test, summary.class_names, title=title, augmented=summary.augmented_test)
    reason = "best validation score" if summary.validation else "the last"
    # Runs from early versions did not count operations.
    compute = f", {flops(summary.flops)}" if summary.flops else ""
    chosen = f"selected epoch {summary.best_epoch} of {summary.epochs} ({reason}); {duration(summary.seconds)}{compute}"
    say(chosen if summary.epochs else "the predictors were fitted without training")
    findings = _findings(folder, settings)
    for finding in findings:
        say(f"{finding.severity}: {finding.what}")
    say(f"the run is in {folder}, and its report is {folder / 'report.html'}; next:")
    for command, purpose in _next_commands(folder, settings, has_findings=bool(findings)).items():
        say(f"  {command}    {purpose}")


def _findings(folder: Path, settings: RunConfig) -> list[Finding]:
    """Return what `deeplda doctor` finds wrong with a run."""
    from deeplda.report.diagnosis import diagnose
    from deeplda.training.run_folder import read_metrics

    return [finding for finding in diagnose(read_metrics(folder), settings) if finding.severity != "good"]


def _new_samples(folder: Path) -> str:
    """Return a word for the files that the model of a run takes."""
    from deeplda.model_card import read_card

    shape = read_card(folder / "model" / "model.json").sample_shape
    return "FILES-OR-FOLDERS..." if len(shape) == 3 and shape[0] in (1, 3) else "NEW-SAMPLES.npz"


def _next_commands(folder: Path, settings: RunConfig, *, has_findings: bool) -> dict[str, str]:
    """Return the commands that a user needs after a training, with their purpose."""
    run, network = shlex.quote(str(folder)), code_options(dict(settings), ("network",))
    # The command line names code for the data by an option here, not by an argument.
    data = f" --data {settings.data}" if is_code(settings.data) else ""
    files = "NEW-ROWS.csv --csv" if table_format(settings.data) else _new_samples(folder)
    found = {f"deeplda doctor {run}": "what to do about the warnings"} if has_findings else {}
    found[f"deeplda report {run} --open{network}{data}"] = "to see the mistakes and the classes"
    found[f"deeplda predict {run} {files}{network}"] = "to classify"
    found[f"deeplda audit {run} --open{network}{data}"] = "to find wrong labels"
    return found
