"""Recipes: settings that work well together, stored as TOML files in this folder."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from deeplda.errors import InputError
from deeplda.io import expanded
from deeplda.training.config import RunConfig, settings_in

RECIPES = tuple(sorted(file.stem for file in Path(__file__).parent.glob("*.toml")))


def read_recipe(name: str) -> dict[str, object]:
    """Read a recipe: one of RECIPES, or the path of your own TOML file.

    Raises InputError if there is no such recipe or file, or if one of its settings is invalid.
    """
    file = Path(__file__).parent / f"{name}.toml" if name in RECIPES else expanded(name)
    if not file.is_file():
        nearest = get_close_matches(name, RECIPES, n=1)
        raise InputError(
            f"recipe {name!r} is unknown",
            need=f"one of {', '.join(RECIPES)}, or a TOML file",
            do=f"did you mean {nearest[0]!r}?" if nearest else "choose one of these",
        )
    settings = settings_in(file)
    RunConfig.parse(settings, str(file))
    return settings
