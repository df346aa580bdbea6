"""The definition of a sweep: the contents of sweep.toml, and the trials that they define."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from itertools import chain, product
from math import prod
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from deeplda.errors import InputError
from deeplda.experiments.recipes import read_recipe
from deeplda.io import read_toml
from deeplda.output_folder import write_file
from deeplda.training.config import DECISION_SETTINGS, RunConfig, Settings, as_toml, merged, with_absolute_paths
from deeplda.training.idle_settings import unused_settings
from deeplda.user_code import is_code

# More than anyone would run. A few lines of TOML can define more trials than fit in memory.
_MOST_TRIALS = 100_000
# Most file systems limit names to 255 bytes.
_LONGEST_NAME = 200
# Axes that an objective does not have, besides settings without effect: dlda has alpha 1, and the opponents of LDA are
# trained once, on classes. For an objective of the user's, alpha would only change the predictors.
_WITHOUT_AXES: dict[object, set[str]] = {"dlda": {"alpha"}, "cce": {"subclasses"}, "gce": {"subclasses"}}

# The paper's results tables by their data, and the scales at which they are defined; see paper_tables/.
PaperTable = Literal["stl10", "cifar10", "subclasses"]
Scale = Literal["full", "long", "quick"]
# The tables by the numbers that they had before version 0.3.
NUMBERED_TABLES: dict[object, PaperTable] = {1: "stl10", 2: "cifar10", 3: "subclasses"}

_VALUES = str | bool | int | float | None
# Settings by their names in run.toml, and the values on each axis of a grid.
TrialSettings = dict[str, object]
Grid = dict[str, list[object]]


class SearchPlan(Settings):
    """A search: the number of trials, and the seed for both the search and every training run."""

    trials: int = Field(ge=1, le=_MOST_TRIALS)
    seed: int = Field(0, ge=0, lt=2**31)


class SweepDefinition(Settings):
    """One or more grids, or a search, together with the settings that all trials share.

    Attributes:
        table: the paper's table that this sweep reproduces.
        scale: the scale of such a table: "full" is the paper's, "long" has its schedule but a smaller network and
            smaller images, "quick" is reduced, and "changed" means that the user changed settings.
        storage: URL, without user and password, of the database that holds the state of the trials, if there is one.
        settings: settings for all trials. If they include an objective, their alpha and statistic belong to it and do
            not apply to trials with a different objective.
        grids: the values on each axis, written as `[grid]` or as several `[[grid]]` sections in the file.
    """

    table: PaperTable | None = None
    scale: Scale | Literal["changed"] | None = None
    storage: str | None = None
    settings: TrialSettings = Field(default_factory=dict)
    grids: tuple[Grid, ...] = Field((), alias="grid")
    search: SearchPlan | None = None

    @field_validator("table", mode="before")
    @classmethod
    def _named(cls, found: object) -> object:
        return NUMBERED_TABLES.get(found, found) if isinstance(found, int) else found

    @field_validator("grids", mode="before")
    @classmethod
    def _one_or_several(cls, found: object) -> object:
        return (found,) if isinstance(found, dict) else found

    @model_validator(mode="after")
    def _grid_or_search(self) -> Self:
        if bool(self.grids) == (self.search is not None):
            raise ValueError("a sweep is either a grid or a search: define exactly one of the two")
        if self.search is not None and self.settings.get("objective", "lda") not in ("lda", "rdlda", "joint"):
            raise ValueError(f"a search draws alpha and statistic, which {self.settings['objective']} does not have")
        for name, values in self.axes():
            if not values:
                raise ValueError(f"the grid has no values for {name}")
            if any(isinstance(value, list | dict) for value in values):
                raise ValueError(f"the grid has a nested list for {name}: write its values in one list")
        shared = (
            (name, value if isinstance(value, list) and name in DECISION_SETTINGS else [value])
            for name, value in self.settings.items()
        )
        for name, values in (*shared, *self.axes()):
            if strange := [value for value in values if not isinstance(value, _VALUES)]:
                raise ValueError(f"{name} is {strange[0]!r}: need text, a number or a boolean")
        if sum(prod(map(len, grid.values())) for grid in self.grids) > _MOST_TRIALS:
            raise ValueError(f"the grid has more than {_MOST_TRIALS:,} trials: give fewer values")
        return self

    @model_validator(mode="after")
    def _storage_without_password(self) -> Self:
        # The value is not shown, because it may contain the password.
        if self.storage is not None and "@" in self.storage:
            raise ValueError("storage contains a user name or a password: omit them from the file")
        return self

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a TOML file, in which `recipe` may name a recipe to start from. Raises InputError if it is invalid."""
        found = read_toml(file)
        recipe = found.pop("recipe", None)
        if not isinstance(recipe, str | None):
            raise InputError(f"{file}: recipe is {recipe!r}, need the name of a recipe or of a TOML file")
        # Validate before merging in the recipe, because the file may contain values of any type.
        own = cls.parse(found, str(file))
        if recipe is None:
            return own
        base = {name: value for name, value in read_recipe(recipe).items() if not own._replaces(name)}
        return own.model_copy(update={"settings": merged(base, own.settings)})

    def axes(self) -> Iterator[tuple[str, list[object]]]:
        """Yield every axis of every grid: the name of the setting and its values."""
        for grid in self.grids:
            yield from grid.items()

    def _replaces(self, name: str) -> bool:
        """Return whether a setting is an axis of every grid, so that its shared value is never used.

        The shared objective is always used: it decides which trials use the shared alpha and statistic.
        """
        return bool(self.grids) and name != "objective" and all(name in grid for grid in self.grids)

    @property
    def data(self) -> str:
        """The name or path of the data source."""
        return str(self.settings.get("data", RunConfig.model_fields["data"].default))

    def trials(self) -> dict[str, TrialSettings]:
        """Return each trial's own settings, keyed by trial name.

        The settings of a search trial are drawn when the trial starts, so they are empty here. In a grid, the seed
        varies slowest, so that every combination has one result before any has two.
        """
        if self.search is not None:
            return {f"search-{number:03}": {} for number in range(self.search.trials)}
        found: dict[str, TrialSettings] = {}
        for settings in self._points():
            if found.setdefault(trial_name(settings), settings) != settings:
                raise InputError(f"two trials of the grid would be named {trial_name(settings)}: change a value")
        return found

    def config(self, own: TrialSettings) -> RunConfig:
        """Return all settings of a trial, given its own settings. Raises InputError if they are invalid together."""
        shared, objective = dict(self.settings), own.get("objective")
        if objective in ("dlda", "cce", "gce"):
            shared.pop("alpha", None)
        applies = "objective" in shared and objective not in ("cce", "gce")
        chosen = merged(shared, own) if applies else {**shared, **own}
        config = RunConfig.parse(with_absolute_paths(chosen), "the settings")
        if config.start_from is not None or config.extended_to is not None:
            raise InputError("trials of a sweep start from scratch: omit start_from and extended_to")
        return config

    def states_objectives(self) -> bool:
        """Return whether no trial relies on the default objective, or on an objective's default alpha or statistic."""
        shared = self.settings.get("objective")
        for grid in self.grids:
            for objective in grid.get("objective", [shared]):
                stated = {*grid, *(self.settings if shared in (None, objective) else ())}
                needed = {"cce": set(), "gce": set(), "dlda": {"statistic"}}.get(str(objective), {"alpha", "statistic"})
                if objective is None or not needed <= stated:
                    return False
        return True

    def _points(self) -> Iterator[TrialSettings]:
        seeds = [grid.get("seed", [self.settings.get("seed", 0)]) for grid in self.grids]
        for seed in dict.fromkeys(chain.from_iterable(seeds)):
            for grid, its_seeds in zip(self.grids, seeds, strict=True):
                if seed in its_seeds:
                    yield from self._points_of(grid, seed)

    def _points_of(self, grid: Grid, seed: object) -> Iterator[TrialSettings]:
        objectives = grid.get("objective", [self.settings.get("objective", "lda")])
        if "rdlda" in objectives and 1 in grid.get("alpha", []):
            # rdlda with alpha 1 is dlda.
            objectives = [name for name in objectives if name != "dlda"]
        inner = [name for name in grid if name not in ("objective", "seed")]
        for objective in objectives:
            without = unused_settings(objective) | _WITHOUT_AXES.get(
                objective, {"alpha"} if is_code(objective) else set()
            )
            axes = [name for name in inner if name not in without]
            for values in product(*(grid[name] for name in axes)):
                yield {"objective": objective, **dict(zip(axes, values, strict=True)), "seed": seed}

    def difference(self, other: SweepDefinition) -> str | None:
        """Return the first difference from `other`, such as "epochs 4, not 5", or None if there is none."""
        mine, its = self._flat(), other._flat()
        for name in mine | its:
            here, there = mine.get(name), its.get(name)
            if here is None and there is not None:
                return f"no {name}, which is now {_shown(there)}"
            if here != there:
                return f"{name} {_shown(here)}, " + ("now missing" if there is None else f"not {_shown(there)}")
        return None

    def _flat(self) -> TrialSettings:
        flat: TrialSettings = {"table": self.table, "scale": self.scale, "storage": self.storage, **self.settings}
        for number, grid in enumerate(self.grids, 1):
            which = "grid" if len(self.grids) == 1 else f"grid {number}"
            flat |= {f"{which} of {name}": values for name, values in grid.items()}
        return flat | {f"search {name}": value for name, value in (self.search or ())}

    def write(self, file: Path) -> None:
        """Write the definition as TOML, atomically."""
        head = {"table": self.table, "scale": self.scale, "storage": self.storage}
        lines = [f"{name} = {as_toml(value)}" for name, value in head.items() if value is not None]
        lines += _section("[settings]", self.settings)
        for grid in self.grids:
            lines += _section("[grid]" if len(self.grids) == 1 else "[[grid]]", grid)
        if self.search is not None:
            lines += _section("[search]", dict(self.search))
        write_file(file, "\n".join(lines).lstrip("\n") + "\n")


def sweep_file(folder: Path) -> Path:
    """Return the path of a sweep's definition; a folder that contains this file is a sweep folder."""
    return folder / "sweep.toml"


def paper_table(name: PaperTable, scale: Scale) -> SweepDefinition:
    """Return the sweep for one of the paper's tables. Raises InputError if it is not defined at this scale."""
    file = Path(__file__).parent / "paper_tables" / f"{name}{'' if scale == 'full' else f'-{scale}'}.toml"
    if not file.exists():
        raise InputError(f"table {name} has no scale {scale}: use --scale quick, or omit --scale for the paper's")
    return SweepDefinition.read(file)


def trial_name(settings: TrialSettings) -> str:
    """Return the name of a trial and its folder, such as `rdlda-alpha0.2-seed0`."""
    parts = [str(settings.get("objective", "lda"))]
    parts += [f"{name}{_short(value)}" for name, value in settings.items() if name != "objective"]
    name = re.sub(r"[^A-Za-z0-9._-]", "_", "-".join(parts))
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_LONGEST_NAME]}-{hashlib.blake2b(name.encode(), digest_size=6).hexdigest()}"


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def _section(heading: str, values: Mapping[str, object]) -> list[str]:
    return ["", heading, *(f"{name} = {as_toml(value)}" for name, value in values.items())]


def _shown(value: object) -> str:
    return ", ".join(map(_short, value)) if isinstance(value, list) else _short(value)
