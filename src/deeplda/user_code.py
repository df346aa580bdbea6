"""Code that a user names as "module.path:name": networks, statistics, objectives, data sources and loggers.

Importing a module runs its code. So only a name that the user wrote is imported, never one from a file alone, because
the folder of a run may be untrusted: `require_named` compares both.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeGuard

from deeplda.errors import InputError, code_not_run

# The settings in run.toml that can be code.
CODE_SETTINGS = ("data", "objective", "statistic", "network")


def is_code(name: object) -> TypeGuard[str]:
    """Return whether a setting is "module.path:name" rather than a built-in name or a path with a colon."""
    return isinstance(name, str) and ":" in name and not {"/", "\\"} & set(name)


def short_name(name: str) -> str:
    """Return the part of "module.path:name" after the colon; any other name is returned unchanged."""
    return name.rpartition(":")[2] if is_code(name) else name


def code_options(settings: Mapping[str, object], names: Collection[str] = CODE_SETTINGS) -> str:
    """Return the words that name the code in these settings again, such as " my_data:read --network my_nets:build"."""
    code = {name: settings.get(name) for name in names}
    return "".join(
        f" {'' if name == 'data' else f'--{name} '}{found}" for name, found in code.items() if is_code(found)
    )


def require_named(folder: object, stored: Mapping[str, object], named: Mapping[str, object]) -> None:
    """Raise InputError if the settings in a folder name code that the user has not named for the same setting.

    Args:
        stored: settings from the folder; only those in CODE_SETTINGS count.
        named: settings that the user gave.
    """
    for setting in CODE_SETTINGS:
        code = stored.get(setting)
        if is_code(code) and named.get(setting) != code:
            do = f"pass{code_options({setting: code})}" + (" as DATA or --data" if setting == "data" else "")
            raise code_not_run(folder, code, do, kind=setting)


def find_code(name: str, kind: str) -> Any:
    """Import "module.path:name", from the current directory or Python's path, and return the object.

    Args:
        kind: what it is for, such as "network", for messages.

    Raises InputError if the module cannot be imported or has no such name.
    """
    module_name, _, attribute = name.partition(":")
    if not (module_name and attribute) or module_name.startswith("."):
        raise InputError(f"{kind} is {name!r}", need="module.path:name", do=f"for example, my_code:{kind}")
    # Importing runs the user's file, which can raise anything; the cause stays attached for debugging.
    try:
        with importable_here():
            module = importlib.import_module(module_name)
    except Exception as error:
        raise InputError(
            f"module {module_name!r} cannot be imported ({type(error).__name__}: {error})",
            need=f"a module in the current directory ({Path.cwd()}) or an installed one",
            do="check the name, and check that Python can import the module",
        ) from error
    try:
        return attrgetter(attribute)(module)
    except AttributeError:
        where = f"module {module_name} ({getattr(module, '__file__', None) or 'built in'})"
        raise InputError(f"{where} has no {attribute!r}: check the spelling") from None


def find_callable(name: str, kind: str, need: str) -> Any:
    """Return what `find_code` finds. Raises InputError, with `need`, if it cannot be called."""
    found = find_code(name, kind)
    if not callable(found):
        raise InputError(f"{kind} {name!r} is of type {type(found).__name__}, need {need}")
    return found


@contextmanager
def importable_here() -> Iterator[None]:
    """Put the current directory first on the import path, as `python -m` does but an installed command does not."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    # Otherwise, a file written a moment ago (in a notebook, for example) might not be found.
    importlib.invalidate_caches()
    try:
        yield
    finally:
        # Remove only our entry: the user's module may have added entries itself.
        with suppress(ValueError):
            sys.path.remove(here)
