"""`deeplda sweep`: run a grid or a search with any number of workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from cyclopts import Parameter

from deeplda.cli.shared_options import DataSource, Json, OutputPath, Quiet, Recipe, WholeNumber, flag
from deeplda.errors import InputError, StoppedError, TrainingError, code_not_run
from deeplda.extras import require
from deeplda.printing import say, say_json
from deeplda.training.config import HOW_TO_RUN, LDA_OBJECTIVES, OBJECTIVES, TrainConfig, merged, with_absolute_paths
from deeplda.user_code import CODE_SETTINGS, is_code, require_named, short_name

if TYPE_CHECKING:
    from deeplda.experiments.sweep_definition import Grid, PaperTable, SweepDefinition, TrialSettings
    from deeplda.experiments.sweep_folder import Sweep

_TENTHS = "0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1"
# The scales of the paper's tables; `sweep_definition` is imported only when a sweep runs.
Scale = Literal["full", "long", "quick"]
# The order of the axes in a grid.
_AXES = ("objective", "subclasses", "statistic", "alpha", "seed")


class SharedSettings(TrainConfig):
    """The settings that all trials share: the `deeplda train` settings except the axes of a sweep."""

    objective: Annotated[Any, Parameter(parse=False)] = "lda"
    alpha: Annotated[Any, Parameter(parse=False)] = 1.0
    subclasses: Annotated[Any, Parameter(parse=False)] = 1
    seed: Annotated[Any, Parameter(parse=False)] = 0


def sweep(
    data: DataSource = None,
    /,
    *,
    table: Annotated[
        Literal["stl10", "cifar10", "subclasses", "1", "2", "3"] | None,
        Parameter(
            help="Reproduce one of the paper's tables: stl10, cifar10 or subclasses (on CIFAR-10). The numbers 1 to 3 "
            "are deprecated names of these."
        ),
    ] = None,
    scale: Annotated[
        Scale | None,
        Parameter(
            help="Scale of --table. quick: a narrower network, fewer epochs and fewer values of alpha; long (only "
            "stl10): the paper's schedule of 400 epochs, with a narrower network and images of 32 pixels."
        ),
    ] = None,
    objectives: Annotated[
        str | None,
        Parameter(
            help=f"Any of {', '.join(OBJECTIVES)}, or your own as module.path:name. "
            "[default: the recipe's objective (lda without a recipe) and cce]"
        ),
    ] = None,
    alphas: Annotated[
        str | None, Parameter(help=f"Values of alpha for lda, rdlda, joint. [default: {_TENTHS}]")
    ] = None,
    subclasses: Annotated[str | None, Parameter(help="Numbers of subclasses per class.")] = None,
    seeds: Annotated[
        str | None, Parameter(help="Seeds; every setting is run with each of them. [default: 0,1,2]")
    ] = None,
    search: Annotated[
        WholeNumber | None,
        Parameter(help="Instead of a grid, search over alpha, lam, learning rate and statistic in this many trials."),
    ] = None,
    recipe: Recipe = None,
    folder: Annotated[
        OutputPath | None,
        Parameter(name="--sweep", help="Folder for the sweep. [default: in sweeps/, named after the data]"),
    ] = None,
    workers: Annotated[WholeNumber, Parameter(help="Number of worker processes; they share the CPU threads.")] = 1,
    storage: Annotated[
        str | None,
        Parameter(
            help="URL of a database shared by the workers, or a file that contains it. [default: $DEEPLDA_STORAGE, or "
            "else a file in the sweep folder]"
        ),
    ] = None,
    retry: Annotated[bool, flag("Run failed trials again.")] = False,
    json_: Json = False,
    quiet: Quiet = False,
    config: Annotated[SharedSettings, Parameter(name="*", negative_iterable=())] = SharedSettings(),  # noqa: B008  # frozen
) -> None:
    """Run a grid or a search. Run the same command again to add workers to a running sweep or to resume a stopped one.

    For a folder or an .npz file of images, without --recipe and --epochs, the settings depend on the images.

    Examples: deeplda sweep cifar10 --recipe quick --alphas 0,0.5,1;  deeplda sweep --table cifar10 --scale quick
    """
    require("sweep", "sweep")
    if workers < 1:
        raise InputError(f"--workers is {workers}, need at least 1: omit --workers to use one")

    from deeplda.experiments.storage_url import storage_url
    from deeplda.experiments.sweep_storage import reporting_lost_storage

    url = storage_url(storage, os.environ)
    axes = given_axes(objectives, subclasses, alphas, seeds)
    chosen: TrialSettings = config.model_dump(mode="json", include=config.model_fields_set)
    if data is not None:
        chosen["data"] = data
    # A network alone does not define a sweep; it only permits an existing sweep to run this code.
    defines = bool(axes or recipe or table or scale or search or chosen.keys() - {"network"})
    if folder is not None and not defines:
        _require_existing(folder, chosen.get("network"))
        definition = None
    else:
        definition = _definition(chosen, axes, recipe, table=table, scale=scale, trials=search)
    if folder is None:
        assert definition is not None
        folder = Path("sweeps") / _default_name(definition)
    with reporting_lost_storage(url):
        sweep, stopped = _run(folder, definition, url, workers, retry=retry, quiet=quiet)
        _conclude(sweep, stopped=stopped, as_json=json_)


def _definition(
    chosen: TrialSettings, axes: Grid, recipe: str | None, *, table: str | None, scale: Scale | None, trials: int | None
) -> SweepDefinition:
    """Return the sweep that the options define: one of the paper's tables, a grid, or a search of `trials` trials."""
    from deeplda.experiments.recipes import read_recipe

    if table is not None:
        for name, value in {"data": chosen.get("data"), "recipe": recipe, "search": trials}.items():
            if value is not None:
                raise InputError(f"--table {table} has its own data and settings: omit {name} {value}")
        return _paper_sweep(_named_table(table), scale or "full", chosen, axes)
    if scale is not None:
        do = "pass --table, or choose settings such as --width and --epochs"
        raise InputError(f"--scale {scale} needs --table: {do}")
    base = read_recipe(recipe) if recipe else _automatic(chosen)
    objective = base.get("objective")
    named = {"objective": objective} if objective in axes.get("objective", ()) else {}
    require_named(recipe, merged(base, chosen), {**chosen, **named})
    return _grid(base, chosen, axes) if trials is None else _search(base, chosen, axes, trials)


def given_axes(objectives: str | None, subclasses: str | None, alphas: str | None, seeds: str | None) -> Grid:
    """Parse lists such as 0,0.5,1, and return the values of each given axis by the name of its setting."""
    given: dict[str, tuple[str, str | None, Callable[[str], object]]] = {
        "objective": ("objectives", objectives, _objective),
        "subclasses": ("subclasses", subclasses, lambda text: text if text == "auto" else int(text)),
        "alpha": ("alphas", alphas, float),
        "seed": ("seeds", seeds, int),
    }
    axes: Grid = {}
    for axis, (option, text, convert) in given.items():
        try:
            if text is not None:
                axes[axis] = [convert(part.strip()) for part in text.split(",")]
        except InputError:
            raise
        except ValueError:
            what = f"--{option} is {text!r}, need values separated by commas"
            raise InputError(f"{what}: for example, --{option} 0,1,2") from None
    return axes


def _objective(text: str) -> str:
    if text not in OBJECTIVES and not is_code(text):
        need = f"any of {', '.join(OBJECTIVES)}, or your own as module.path:name"
        raise InputError(f"--objectives contains {text!r}, need {need}: for example, --objectives lda,cce")
    return text


def _named_table(given: str) -> PaperTable:
    """Return the name of a table, and print a note if it was given by a number."""
    from deeplda.experiments.sweep_definition import NUMBERED_TABLES

    if not given.isdecimal():
        return cast("PaperTable", given)
    name = NUMBERED_TABLES[int(given)]
    say(f"note: --table {given} is deprecated, use --table {name}", file=sys.stderr)
    return name


def _paper_sweep(table: PaperTable, scale: Scale, chosen: TrialSettings, axes: Grid) -> SweepDefinition:
    """Return the sweep for one of the paper's tables, with the given axes and settings replaced."""
    from deeplda.experiments.sweep_definition import paper_table

    there = paper_table(table, scale)
    (grid,) = there.grids
    settings = with_absolute_paths({**there.settings, **chosen})
    changed = {"scale": "changed"} if chosen.keys() - HOW_TO_RUN else {}
    return there.model_copy(update={"settings": settings, "grids": (grid | axes,), **changed})


def _automatic(chosen: TrialSettings) -> TrialSettings:
    """Return the settings that `deeplda train` would choose for images of your own, with a fixed number of epochs."""
    if "epochs" in chosen:
        return {}
    from deeplda.experiments.automatic_recipe import automatic_settings

    return automatic_settings(chosen, fixed_epochs=True) or {}


def _grid(base: TrialSettings, chosen: TrialSettings, axes: Grid) -> SweepDefinition:
    """Return a grid based on a recipe's settings and the chosen ones."""
    from deeplda.experiments.sweep_definition import SweepDefinition

    settings = with_absolute_paths(merged(base, chosen))
    objectives = dict.fromkeys((settings.get("objective", "lda"), "cce"))
    grid: Grid = {"objective": list(objectives), "seed": [0, 1, 2], **axes}
    if {"lda", "rdlda", "joint"} & set(grid["objective"]):
        grid.setdefault("alpha", list(map(float, _TENTHS.split(","))))
    elif "alpha" in axes:
        raise InputError("--alphas applies only to lda, rdlda and joint: omit it, or add one of them to --objectives")
    if "statistic" in chosen:
        # As an axis, it applies to every objective; a shared statistic applies only to the recipe's objective.
        grid["statistic"] = [chosen["statistic"]]
    settings = {name: value for name, value in settings.items() if name == "objective" or name not in grid}
    grid = {name: grid[name] for name in _AXES if name in grid}
    return SweepDefinition.parse({"settings": settings, "grid": grid}, "the sweep")


def _search(base: TrialSettings, chosen: TrialSettings, axes: Grid, trials: int) -> SweepDefinition:
    """Return a search over alpha, lam, learning rate and statistic for objective lda or joint."""
    from deeplda.experiments.sweep_definition import SweepDefinition

    settings = with_absolute_paths({**base, **chosen})
    # With scatter dorfer, a compatible statistic must be given, although the search draws others.
    drawn = {"lam"} if settings.get("scatter") == "dorfer" else {"lam", "statistic"}
    for name in sorted(drawn & chosen.keys()):
        raise InputError(f"a search draws {name} itself: omit --{name}, or run a grid without --search")
    if (objective := settings.get("objective", "lda")) not in LDA_OBJECTIVES:
        what = f"a search draws alpha, lam and statistic, which objective {objective} does not have"
        raise InputError(f"{what}: choose another recipe, or run a grid without --search")
    # A search draws alpha and statistic, so the paper's objectives are the same as the general one.
    if objective != "joint":
        settings.pop("objective", None)
    for name in ("objective", "alpha", "subclasses"):
        if name in axes:
            raise InputError(f"a search has no axis {name}: omit it, or run a grid without --search")
    (seed, *more) = axes.get("seed", [0])
    if more:
        raise InputError(
            "a search uses a single seed: pass one value to --seeds, then run a grid around the best trial"
        )
    settings = {name: value for name, value in settings.items() if name not in ("alpha", "lam", "seed")}
    return SweepDefinition.parse({"settings": settings, "search": {"trials": trials, "seed": seed}}, "the search")


def _default_name(definition: SweepDefinition) -> str:
    """Return a folder name that depends only on the definition, so that the same command finds it again."""
    if definition.table is not None:
        return f"table-{definition.table}" + ("" if definition.scale == "full" else f"-{definition.scale}")
    stem = Path(short_name(definition.data)).stem
    return f"{stem}-search" if definition.search else stem


def _require_existing(folder: Path, network: object) -> None:
    """Raise InputError unless `folder` is a sweep that names no code, or only code that the user names too."""
    from deeplda.experiments.sweep_definition import SweepDefinition, sweep_file

    file = sweep_file(folder)
    if not file.exists():
        do = "check the name; to start a new sweep, also name the data, as in deeplda sweep digits"
        raise InputError(f"{folder} is not a sweep folder (it has no {file.name}): {do}")
    there = SweepDefinition.read(file)
    for setting, values in (*((name, [value]) for name, value in there.settings.items()), *there.axes()):
        if setting in CODE_SETTINGS and setting != "network" and (own := next(filter(is_code, values), None)):
            raise code_not_run(folder, own, "repeat the command that started the sweep", kind=setting)
    named = {str(there.settings.get("network"))}
    named |= {str(value) for axis, values in there.axes() if axis == "network" for value in values}
    allowed = set() if network is None else set(str(network).split(","))
    if strange := allowed - named:
        raise InputError(f"{folder} was not defined with the network {min(strange)}: omit it from --network")
    networks = sorted(filter(is_code, named))
    if refused := [name for name in networks if name not in allowed]:
        raise code_not_run(folder, refused[0], f"pass --network {','.join(networks)}")


def _run(
    folder: Path, definition: SweepDefinition | None, url: str | None, workers: int, *, retry: bool, quiet: bool
) -> tuple[Sweep, bool]:
    """Run the remaining trials; return the sweep and whether the user stopped it."""
    from deeplda.experiments.sweep_definition import sweep_file
    from deeplda.experiments.sweep_display import SweepDisplay
    from deeplda.experiments.sweep_folder import open_sweep, require_usable
    from deeplda.experiments.sweep_worker import run_workers, update_trials_csv, work
    from deeplda.training.stopping import STOP_SIGNALS, asked_to_stop

    require_usable(folder)
    if definition is not None and not sweep_file(folder).exists():
        _check(definition)
    sweep = open_sweep(folder, definition, url, retry=retry)
    with (
        SweepDisplay(sweep, quiet=quiet) as display,
        asked_to_stop(*STOP_SIGNALS, say=display.console.print) as stop,
    ):
        if not sweep.settled():
            if workers == 1:
                work(sweep, stop)
            else:
                run_workers(folder, url, workers, stop)
        # A worker may have been killed after finishing a trial but before writing its row.
        update_trials_csv(sweep)
        return sweep, stop()


def _check(definition: SweepDefinition) -> None:
    """Raise InputError if the first trial cannot use its data or settings, before anything is written."""
    from deeplda.experiments.sweep_worker import require_validation
    from deeplda.training.preparation import check_settings, read_data

    config = next(definition.config(own) for own in definition.trials().values())
    data = read_data(config, named=config.data)
    require_validation(data)
    check_settings(config, data)


def _conclude(sweep: Sweep, *, stopped: bool, as_json: bool) -> None:
    """Print the result; if trials are left or have failed, raise the error that sets the exit code."""
    from deeplda.experiments.sweep_display import summary_lines, sweep_status

    status = sweep_status(sweep)
    left = status.waiting + len(status.running)
    if as_json:
        found = {"sweep": str(sweep.folder), "table": sweep.definition.table, "scale": sweep.definition.scale}
        shown = ("trials", "done", "pruned", "failed", "best")
        found |= {name: value for name, value in asdict(status).items() if name in shown}
        say_json(found | {"left": left})
    else:
        if sweep.definition.scale == "quick":
            say("QUICK SCALE: a narrower network, fewer epochs and a smaller grid than in the paper")
        if sweep.definition.scale == "long":
            say("LONG SCALE: the paper's schedule, with a narrower network, smaller images and a smaller grid")
        for line in summary_lines(status):
            say(line)
        if elsewhere := sum(not sweep.run_folder(name).exists() for name in status.done):
            advice = f"to include them in the table, copy their folders to {sweep.folder}/trials"
            say(f"{elsewhere} of {len(status.done)} finished trials ran elsewhere: {advice}")
        if status.done:
            say(f"the sweep is in {sweep.folder}, with one row per trial in {sweep.folder / 'trials.csv'}; next:")
            say(f"  deeplda table {sweep.folder}")
    if stopped and left:
        raise StoppedError(f"stopped with {left} of {status.trials} trials left; to resume, run the same command again")
    if status.failed:
        (name, sentence), *_ = status.failed.items()
        what = f"{len(status.failed)} of {status.trials} trials failed; the first was {name}: {sentence}"
        raise TrainingError(f"{what}; to retry them, run the same command with --retry")
    if left:
        reason = "are left because their workers exited; to resume, run the same command again"
        raise TrainingError(f"{left} of {status.trials} trials {reason}")
