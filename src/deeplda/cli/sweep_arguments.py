"""What `deeplda sweep` is asked to run, from its arguments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from deeplda.errors import InputError, got
from deeplda.training.config import with_absolute_paths

if TYPE_CHECKING:
    from deeplda.experiments.sweeps.definition import Definition

Value = TypeVar("Value")
TENTHS = "0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1"
_AXES = ("objective", "subclasses", "alpha", "seed")
# Where and how a trial is run, not what is run.
_CIRCUMSTANCES = {"data_dir", "device", "checkpoint_seconds", "skip_unreadable"}


def axes_of(
    objectives: str | None, subclasses: str | None, alphas: str | None, seeds: str | None
) -> dict[str, list[Any]]:
    """The values of each axis that was given, by the setting's name."""
    axes: dict[str, list[Any] | None] = {
        "objective": _values("objectives", objectives, _objective),
        "subclasses": _values("subclasses", subclasses, _count),
        "alpha": _values("alphas", alphas, float),
        "seed": _values("seeds", seeds, int),
    }
    return {name: values for name, values in axes.items() if values is not None}


def paper_sweep(
    table: Literal[1, 2, 3],
    scale: Literal["full", "quick"],
    chosen: dict[str, Any],
    axes: dict[str, Any],
    *,
    recipe: str | None,
    search: int | None,
) -> Definition:
    """One of the paper's tables, with other values of its axes and other settings where they are given."""
    from deeplda.experiments.sweeps.definition import paper_table

    for name, value in {"data": chosen.get("data"), "recipe": recipe, "search": search}.items():
        if value is not None:
            raise InputError(f"--table {table} brings its own data and settings: leave {name} {value} out")
    there = paper_table(table, scale)
    if chosen.keys() - _CIRCUMSTANCES:
        there = there.model_copy(update={"scale": "changed"})
    (grid,) = there.grids
    return there.model_copy(update={"settings": with_absolute_paths(there.settings | chosen), "grids": (grid | axes,)})


def own_sweep(
    chosen: dict[str, Any], axes: dict[str, Any], *, recipe: str | None, search: int | None, scale: str | None
) -> Definition:
    """A grid or a search of the user's."""
    from deeplda.experiments.recipes import read_recipe
    from deeplda.experiments.sweeps.definition import Definition

    if scale is not None:
        raise InputError(f"--scale {scale} goes with --table: choose settings such as --width and --epochs yourself")
    settings = with_absolute_paths((read_recipe(recipe) if recipe else {}) | chosen)
    if search is not None:
        return _search(settings, chosen, axes, search)
    grid = axes_of("rdlda,cce", None, TENTHS, "0,1,2") | axes
    if "rdlda" not in grid["objective"]:
        if "alpha" in axes:
            raise InputError("--alphas is for objective rdlda: leave it out, or add rdlda to --objectives")
        del grid["alpha"]
    settings = {name: value for name, value in settings.items() if name not in grid}
    return Definition.parse({"settings": settings, "grid": {n: grid[n] for n in _AXES if n in grid}}, "the sweep")


def _search(settings: dict[str, Any], chosen: dict[str, Any], axes: dict[str, Any], trials: int) -> Definition:
    """A search around `settings`, of which the user has `chosen` some."""
    from deeplda.experiments.sweeps.definition import Definition

    # A scatter that was chosen has to suit a statistic, though that is drawn too.
    its_own = {"lam"} if settings.get("scatter") == "dorfer" else {"lam", "statistic"}
    for name in sorted(its_own & chosen.keys()):
        raise InputError(f"a search draws {name} itself: leave --{name} out, or run a grid without --search")
    if (objective := settings.get("objective", "rdlda")) != "rdlda":
        raise InputError(
            got(
                f"a search with objective {objective}",
                need="rdlda, whose alpha, lam and statistic it draws",
                do="choose another recipe, or run a grid without --search",
            )
        )
    for name in ("objective", "alpha", "subclasses"):
        if name in axes:
            raise InputError(f"a search has no axis {name}: leave it out, or run a grid without --search")
    (seed, *more) = axes.get("seed", [0])
    if more:
        raise InputError("a search trains with one seed: give --seeds one value, and run a grid on what it finds")
    drawn = ("alpha", "lam", "seed")
    settings = {name: value for name, value in settings.items() if name not in drawn}
    return Definition.parse({"settings": settings, "search": {"trials": trials, "seed": seed}}, "the search")


def default_name(definition: Definition) -> str:
    """Of the folder, by what is in it: the same command finds it again."""
    if definition.table is not None:
        return f"table{definition.table}" + ("" if definition.scale == "full" else f"-{definition.scale}")
    stem = Path(definition.data).stem
    return f"{stem}-search" if definition.search else stem


def _values(name: str, text: str | None, kind: Callable[[str], Value]) -> list[Value] | None:
    """The values of a list such as 0,0.5,1."""
    if text is None:
        return None
    try:
        return [kind(part.strip()) for part in text.split(",")]
    except InputError:
        raise
    except ValueError:
        raise InputError(
            got(f"{name} is {text!r}", need="values with commas between", do=f"write --{name} as 0,1,2")
        ) from None


def _objective(text: str) -> str:
    if text not in ("rdlda", "dlda", "cce"):
        raise InputError(got(f"objectives has {text!r}", need="rdlda, dlda or cce", do="write --objectives rdlda,cce"))
    return text


def _count(text: str) -> int | str:
    return "auto" if text == "auto" else int(text)
