"""What a sweep is to run: the contents of sweep.toml."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from itertools import chain, product
from math import prod
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from deeplda.errors import InputError
from deeplda.experiments.recipes import read_recipe
from deeplda.io import read_toml, write_text
from deeplda.training.config import LDA_SETTINGS, RunConfig, as_toml, first_mistake, with_absolute_paths

# More than anyone runs; a few lines of a file can ask for far more than memory holds.
_MOST_TRIALS = 100_000
# Of a trial's name; file systems take 255.
_LONGEST_NAME = 200
# Axes of a grid that mean nothing to an objective: dlda is alpha 1, and cross-entropy has no scatter matrices.
_MEANINGLESS = {
    "rdlda": {"label_smoothing"},
    "dlda": {"alpha", "label_smoothing"},
    "cce": {*LDA_SETTINGS, "subclasses"},
}

Grid = dict[str, list[Any]]


class SearchPlan(BaseModel):
    """A search: how many trials, and the seed of the search and of every trial's training."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    trials: int = Field(ge=1, le=_MOST_TRIALS)
    seed: int = Field(0, ge=0, lt=2**31)


class Definition(BaseModel):
    """A grid, several grids or a search, around settings that all trials share.

    Attributes:
        table: which of the paper's tables of results this is.
        scale: for such a table: "full" as the paper, "quick" reduced, "changed" where settings were given besides.
        settings: of every trial, named as in run.toml.
        grids: of each the values of its axes, by the setting's name; `[grid]` in the file, or several `[[grid]]`.
        storage: where the trials are kept if not in the sweep's folder: a database's URL without user and password.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: Literal[1, 2, 3] | None = None
    scale: Literal["full", "quick", "changed"] | None = None
    storage: str | None = None
    settings: dict[str, Any] = {}
    grids: tuple[Grid, ...] = Field((), alias="grid")
    search: SearchPlan | None = None

    @field_validator("grids", mode="before")
    @classmethod
    def _one_or_several(cls, found: object) -> object:
        return (found,) if isinstance(found, dict) else found

    @model_validator(mode="after")
    def _grid_or_search(self) -> Self:
        if bool(self.grids) == (self.search is not None):
            raise ValueError("a sweep is a grid or a search: give one of the two")
        for name, values in self.axes():
            if not values:
                raise ValueError(f"the grid has no value of {name}")
            if any(isinstance(value, list | dict) for value in values):
                raise ValueError(f"the grid of {name} has a list within its list: write its values side by side")
        if sum(prod(map(len, grid.values())) for grid in self.grids) > _MOST_TRIALS:
            raise ValueError(f"the grid has more than {_MOST_TRIALS:,} trials: give fewer values")
        return self

    def axes(self) -> Iterator[tuple[str, list[Any]]]:
        """Every axis of every grid: the setting's name and its values."""
        for grid in self.grids:
            yield from grid.items()

    def varies(self, name: str) -> bool:
        """Whether the setting is an axis of every grid, so that no trial takes it from the shared settings."""
        return bool(self.grids) and all(name in grid for grid in self.grids)

    @classmethod
    def read(cls, file: Path) -> Self:
        """From a TOML file, whose settings may start from a `recipe`. Raises InputError where it is not one of ours."""
        found = read_toml(file)
        recipe = found.pop("recipe", None)
        if recipe is None:
            return cls.parse(found, str(file))
        if not isinstance(recipe, str):
            raise InputError(f"{file}: recipe is no text: need a recipe's name or a TOML file")
        # Checked before the recipe's settings join it: what stands in the file may be of any kind.
        own = cls.parse(found, str(file))
        start = {name: value for name, value in read_recipe(recipe).items() if not own.varies(name)}
        return own.model_copy(update={"settings": start | own.settings})

    @classmethod
    def parse(cls, found: dict[str, Any], origin: str) -> Self:
        """From a mapping; `origin` is named in the InputError for a wrong one."""
        try:
            return cls.model_validate(found)
        except ValidationError as error:
            raise InputError(f"{origin}: {first_mistake(error)}") from None

    @property
    def data(self) -> str:
        """Name or path of the data."""
        return str(self.settings.get("data", RunConfig.model_fields["data"].default))

    def trials(self) -> dict[str, dict[str, Any]]:
        """Each trial's own settings by its name; those of a search are drawn when it is its turn.

        Of a grid, the seeds take turns last: every setting has one result before any has two.
        """
        if self.search is not None:
            return {f"search-{number:03}": {} for number in range(self.search.trials)}
        found: dict[str, dict[str, Any]] = {}
        for settings in self._points():
            if found.setdefault(trial_name(settings), settings) != settings:
                raise InputError(f"two trials of the grid would be named {trial_name(settings)}: change a value")
        return found

    def config(self, own: dict[str, Any]) -> RunConfig:
        """All settings of a trial that has these of its own. Raises InputError where they do not go together."""
        shared = dict(self.settings)
        if own.get("objective") in ("dlda", "cce"):
            shared.pop("alpha", None)
        return RunConfig.parse(with_absolute_paths(shared | own), "the settings")

    def _points(self) -> Iterator[dict[str, Any]]:
        seeds = [grid.get("seed", [self.settings.get("seed", 0)]) for grid in self.grids]
        for seed in dict.fromkeys(chain.from_iterable(seeds)):
            for grid, its_seeds in zip(self.grids, seeds, strict=True):
                if seed in its_seeds:
                    yield from self._points_of(grid, seed)

    def _points_of(self, grid: Grid, seed: Any) -> Iterator[dict[str, Any]]:
        objectives = grid.get("objective", [self.settings.get("objective", "rdlda")])
        if "rdlda" in objectives and 1 in grid.get("alpha", []):
            objectives = [name for name in objectives if name != "dlda"]
        inner = [name for name in grid if name not in ("objective", "seed")]
        for objective in objectives:
            axes = [name for name in inner if name not in _MEANINGLESS.get(str(objective), set())]
            for values in product(*(grid[name] for name in axes)):
                yield {"objective": objective, **dict(zip(axes, values, strict=True)), "seed": seed}

    def difference(self, other: Definition) -> str | None:
        """What `other` has otherwise, as "epochs 4, not 5"; None where both are the same."""
        mine, its = self._flat(), other._flat()
        for name in mine | its:
            here, there = mine.get(name), its.get(name)
            if here is None and there is not None:
                return f"no {name}, which is {_words(there)} now"
            if here != there:
                return f"{name} {_words(here)}, " + ("not given now" if there is None else f"not {_words(there)}")
        return None

    def _flat(self) -> dict[str, Any]:
        flat: dict[str, Any] = {"table": self.table, "scale": self.scale, "storage": self.storage, **self.settings}
        for number, grid in enumerate(self.grids, 1):
            which = "grid" if len(self.grids) == 1 else f"grid {number}"
            flat |= {f"{which} of {name}": values for name, values in grid.items()}
        return flat | {f"search {name}": value for name, value in (self.search or ())}

    def write(self, file: Path) -> None:
        """As TOML, whole or not at all."""
        found = self.model_dump(exclude_none=True)
        lines = [f"{name} = {as_toml(found[name])}" for name in ("table", "scale", "storage") if name in found]
        lines += _section("[settings]", self.settings)
        for grid in self.grids:
            lines += _section("[grid]" if len(self.grids) == 1 else "[[grid]]", grid)
        if self.search is not None:
            lines += _section("[search]", dict(self.search))
        write_text(file, "\n".join(lines).lstrip("\n") + "\n")


def sweep_file(folder: Path) -> Path:
    """Where a sweep's definition is; a folder that has one is a sweep's."""
    return folder / "sweep.toml"


def paper_table(number: Literal[1, 2, 3], scale: Literal["full", "quick"]) -> Definition:
    """The grid of one of the paper's tables, or the same questions at a fraction of the cost."""
    name = f"table{number}-quick.toml" if scale == "quick" else f"table{number}.toml"
    return Definition.read(Path(__file__).with_name(name))


def trial_name(settings: dict[str, Any]) -> str:
    """A trial's folder: `rdlda-alpha0.2-seed0`."""
    parts = [str(settings.get("objective", "rdlda"))]
    parts += [f"{name}{_short(value)}" for name, value in settings.items() if name != "objective"]
    name = re.sub(r"[^A-Za-z0-9._-]", "_", "-".join(parts))
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_LONGEST_NAME]}-{hashlib.blake2b(name.encode(), digest_size=6).hexdigest()}"


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def _section(heading: str, values: dict[str, Any]) -> list[str]:
    return ["", heading, *(f"{name} = {as_toml(value)}" for name, value in values.items())]


def _words(value: Any) -> str:
    return ", ".join(map(_short, value)) if isinstance(value, list) else _short(value)
