"""Code that a user names as "module.path:name": networks, statistics, objectives, data sources and loggers.

Importing a module runs its code. So only a name that the user wrote is imported, never one from a file alone, because
the folder of a run may be untrusted: `require_named` compares both.
"""

from __future__ import annotations

import importlib
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from traceback import walk_tb
from typing import Any, TypeGuard

from deeplda.errors import InputError, code_not_run, one_line

# The settings in run.toml that can be code.
CODE_SETTINGS = ("data", "objective", "statistic", "network")
# Files in these folders are not the user's: deeplda itself and the standard library. Packages are found by their names.
_LIBRARIES = (Path(__file__).parent, Path(sysconfig.get_path("stdlib")))
_PACKAGES = {"site-packages", "dist-packages"}


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
            if is_code(other := named.get(setting)):
                raise InputError(f"the {setting} in {folder} is the code {code!r}, and cannot become {other!r}: {do}")
            raise code_not_run(folder, code, do, kind=setting)


def find_code(name: str, kind: str) -> Any:
    """Import "module.path:name", from the current directory or Python's path, and return the object.

    Args:
        kind: what it is for, such as "network", for messages.

    Raises InputError if the module cannot be imported or has no such name. If the module's own code fails, the message
    has its file and line.
    """
    module_name, _, attribute = name.partition(":")
    if not (module_name and attribute) or module_name.startswith("."):
        raise InputError(f"{kind} is {name!r}", need="module.path:name", do=f"for example, my_code:{kind}")
    if module_name.endswith(".py"):
        do = f"leave out .py, as in {module_name.removesuffix('.py')}:{attribute}"
        raise InputError(f"{kind} is {name!r}", need="module.path:name", do=do)
    # Importing runs the user's file, which can raise anything; the cause stays attached for debugging.
    try:
        with importable_here():
            module = importlib.import_module(module_name)
    except Exception as error:
        if _place(error, module_name):
            raise InputError(code_failure("module", module_name, error)) from error
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
def own_code(kind: str, name: str, failure: Callable[[str], Exception] = InputError) -> Iterator[None]:
    """Convert any error of "module.path:name", which this block runs, to a `failure` with the file and line of it."""
    try:
        yield
    except Exception as error:
        raise failure(code_failure(kind, name, error)) from error


def code_failure(kind: str, name: str, error: Exception) -> str:
    """Return a sentence about an error that "module.path:name" raised, with the file and line of the user's code."""
    return one_line(f"{kind} {name!r} failed{_place(error, name)}: {type(error).__name__}: {error}")


def _place(error: Exception, name: str) -> str:
    """Return " in FILE, line N", the innermost line of the user's code that an error passed through, or ""."""
    for frame, line in reversed(list(walk_tb(error.__traceback__))):
        file, module = Path(frame.f_code.co_filename), str(frame.f_globals.get("__name__"))
        is_named = module.partition(".")[0] == name.partition(":")[0].partition(".")[0]
        if is_named or not (_PACKAGES & {*file.parts} or any(map(file.is_relative_to, _LIBRARIES))):
            if not file.is_file():  # code without a file, such as that of a generated function
                continue
            with suppress(ValueError):
                file = file.relative_to(Path.cwd())
            return f" in {file}, line {line}"
    return ""


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
