"""`deeplda sweep`: many runs of one question, by any number of workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from deeplda.cli.options import WholeNumber
from deeplda.cli.sweep_arguments import TENTHS, axes_of, default_name, own_sweep, paper_sweep
from deeplda.errors import InputError, StoppedError, TrainingError, code_not_run, got
from deeplda.extras import require
from deeplda.training.config import TrainConfig

if TYPE_CHECKING:
    from deeplda.experiments.sweeps.definition import Definition
    from deeplda.experiments.sweeps.status import SweepStatus
    from deeplda.experiments.sweeps.sweep import Sweep


class SharedSettings(TrainConfig):
    """Settings of every trial: those of `deeplda train`, but for the axes of a sweep."""

    objective: Annotated[Any, Parameter(parse=False)] = "rdlda"
    alpha: Annotated[Any, Parameter(parse=False)] = 1.0
    subclasses: Annotated[Any, Parameter(parse=False)] = 1
    seed: Annotated[Any, Parameter(parse=False)] = 0


def sweep(
    data: Annotated[
        str | None, Parameter(help="A known name, a folder of images, or an .npz. [default: digits]")
    ] = None,
    /,
    *,
    table: Annotated[
        Literal[1, 2, 3] | None,
        Parameter(help="Of the paper's tables of results, with its data: 1 is STL-10, 2 CIFAR-10, 3 subclasses."),
    ] = None,
    scale: Annotated[
        Literal["full", "quick"] | None, Parameter(help="Of a table; quick: less width, epochs and values of alpha.")
    ] = None,
    objectives: Annotated[str | None, Parameter(help="rdlda, dlda, cce. [default: rdlda,cce]")] = None,
    alphas: Annotated[str | None, Parameter(help=f"Of rdlda. [default: {TENTHS}]")] = None,
    subclasses: Annotated[str | None, Parameter(help="Numbers of subclasses of a class.")] = None,
    seeds: Annotated[str | None, Parameter(help="A run with each. [default: 0,1,2]")] = None,
    search: Annotated[
        WholeNumber | None,
        Parameter(help="Instead of a grid, so many trials that search alpha, lam, rate and statistic."),
    ] = None,
    recipe: Annotated[str | None, Parameter(help="Settings to start from: a recipe's name or a TOML file.")] = None,
    folder: Annotated[
        Path | None, Parameter(name="--sweep", help="Folder of the sweep. [default: under sweeps/, by its contents]")
    ] = None,
    workers: Annotated[WholeNumber, Parameter(help="Processes to start here, which share the threads.")] = 1,
    storage: Annotated[
        str | None, Parameter(help="URL of a database for workers to meet in. [default: a file in the folder]")
    ] = None,
    retry: Annotated[bool, Parameter(negative="", help="Try failed trials again.")] = False,
    json_: Annotated[bool, Parameter(name="--json", negative="", help="One JSON object on stdout.")] = False,
    quiet: Annotated[bool, Parameter(negative="", help="No progress.")] = False,
    config: Annotated[SharedSettings, Parameter(name="*")] = SharedSettings(),  # noqa: B008  # frozen
) -> None:
    """Run a grid or a search. The same command joins in while it runs, and goes on with it after a stop.

    Examples: deeplda sweep cifar10 --recipe quick --alphas 0,0.5,1 --workers 2;  deeplda sweep --table 2 --scale quick
    """
    require("sweep", "sweep")
    from deeplda.experiments.sweeps.definition import sweep_file
    from deeplda.experiments.sweeps.storage import while_it_answers

    if workers < 1:
        raise InputError(got(f"workers is {workers}", need="at least 1", do="leave it out for one"))
    axes = axes_of(objectives, subclasses, alphas, seeds)
    chosen = config.model_dump(mode="json", include=config.model_fields_set)
    if data is not None:
        chosen["data"] = data
    others = {name: value for name, value in chosen.items() if name != "network"}
    told = axes or recipe or table or scale or search
    there = folder is not None and sweep_file(folder).exists()
    if folder is not None and not (others or told or there):
        do = "check the name; for a new sweep say of what, as in deeplda sweep digits"
        raise InputError(got(f"{folder}, which has no {sweep_file(folder).name}", need="a sweep's folder", do=do))
    if folder is not None and there and not (others or told):
        _allow_code(folder, chosen.get("network"))
        definition = None
    elif table is not None:
        definition = paper_sweep(table, scale or "full", chosen, axes, recipe=recipe, search=search)
    else:
        definition = own_sweep(chosen, axes, recipe=recipe, search=search, scale=scale)
    if folder is None:
        assert definition is not None
        folder = Path("sweeps") / default_name(definition)
    with while_it_answers():
        sweep, stopped = _run(folder, definition, storage, workers, retry=retry, quiet=quiet)
        _conclude(sweep, stopped=stopped, as_json=json_)


def _allow_code(folder: Path, network: str | None) -> None:
    """Raise InputError where the sweep in `folder` names code and the user does not: it is not run on its word."""
    from deeplda.experiments.sweeps.definition import Definition, sweep_file

    there = Definition.read(sweep_file(folder))
    named = {str(there.settings.get("network"))}
    named |= {str(value) for axis, values in there.axes() if axis == "network" for value in values}
    allowed = set() if network is None else set(network.split(","))
    if strange := allowed - named:
        raise InputError(f"{folder} was defined with other networks than {min(strange)}: leave it out")
    code = sorted(name for name in named if ":" in name)
    for name in code:
        if name not in allowed:
            raise code_not_run(folder, name, f"pass --network {','.join(code)}")


def _run(
    folder: Path, definition: Definition | None, storage: str | None, workers: int, *, retry: bool, quiet: bool
) -> tuple[Sweep, bool]:
    """Run what is left of the sweep; whether it was stopped before the end."""
    import signal

    from deeplda.experiments.sweeps.crew import run_crew
    from deeplda.experiments.sweeps.definition import sweep_file
    from deeplda.experiments.sweeps.display import Display
    from deeplda.experiments.sweeps.sweep import open_sweep
    from deeplda.experiments.sweeps.worker import record, work
    from deeplda.training.pipeline import asked_to_stop

    if definition is not None and not sweep_file(folder).exists():
        _check(definition)
    sweep = open_sweep(folder, definition, storage, retry=retry)
    with (
        Display(sweep, quiet=quiet) as display,
        asked_to_stop(signal.SIGINT, signal.SIGTERM, say=display.console.print) as stop,
    ):
        if not sweep.settled():
            if workers == 1:
                work(sweep, stop)
            else:
                run_crew(folder, storage, workers, stop)
        # A worker may have been killed between the end of a trial and its row.
        record(sweep)
        return sweep, stop()


def _check(definition: Definition) -> None:
    """Raise InputError for data or settings that no trial could use, before anything is written."""
    from deeplda.experiments.sweeps.worker import require_validation
    from deeplda.training.preparation import check_settings, read_data

    config = next(definition.config(own) for own in definition.trials().values())
    data = read_data(config)
    require_validation(config, data)
    check_settings(config, data)


def _conclude(sweep: Sweep, *, stopped: bool, as_json: bool) -> None:
    """Say how it went; raise what gives the exit code where not all is done."""
    from deeplda.experiments.sweeps.display import summary_lines
    from deeplda.experiments.sweeps.status import sweep_status

    status = sweep_status(sweep)
    if as_json:
        print(json.dumps(_as_json(sweep, status)))
    else:
        if sweep.definition.scale == "quick":
            print("QUICK SCALE: a narrower network, fewer epochs and a smaller grid than the paper's")
        print("\n".join(summary_lines(status)))
        elsewhere = sum(not sweep.run_folder(name).exists() for name in status.done)
        if elsewhere:
            print(f"{elsewhere} were run elsewhere: for the table, copy their folders to {sweep.folder / 'trials'}")
        if status.done:
            print(f"the sweep is in {sweep.folder}, a row a trial in {sweep.folder / 'trials.csv'}; next:")
            print(f"  deeplda table {sweep.folder}")
    left = status.waiting + len(status.running)
    if stopped and left:
        raise StoppedError(f"stopped with {left} of {status.trials} trials left; to go on: the same command")
    if status.failed:
        (name, sentence), *_ = status.failed.items()
        raise TrainingError(
            f"{len(status.failed)} of {status.trials} trials failed, first {name}: {sentence}; "
            "to try them again: the same command with --retry"
        )
    if left:
        raise TrainingError(f"{left} of {status.trials} trials are left, their workers ended: start the same command")


def _as_json(sweep: Sweep, status: SweepStatus) -> dict[str, Any]:
    best = status.best
    return {
        "sweep": str(sweep.folder),
        "table": sweep.definition.table,
        "scale": sweep.definition.scale,
        "trials": status.trials,
        "done": status.done,
        "pruned": list(status.pruned),
        "failed": status.failed,
        "left": status.waiting + len(status.running),
        "best": best
        and {"name": best.name, "settings": best.settings, "validation": best.validation, "seeds": best.seeds},
    }
