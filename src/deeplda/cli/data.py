"""`deeplda data list|fetch|check|pack`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from deeplda.cli.shared_options import InputPath, Json, OutputPath, Quiet, WholeNumber, flag
from deeplda.errors import InputError
from deeplda.formatting import counted
from deeplda.printing import say, say_json

DataDir = Annotated[
    InputPath | None, Parameter(help="Folder with the known data sets. [default: $DEEPLDA_DATA or the user's cache]")
]


def list_command(*, data_dir: DataDir = None, json_: Json = False) -> None:
    """List the known data sets, and show which of them are on this machine."""
    from deeplda.data import KNOWN, is_here

    here = {name: is_here(name, data_dir) for name in KNOWN}
    if json_:
        say_json({"data": here})
        return
    width = max(map(len, here))
    for name, found in here.items():
        command = f"deeplda data fetch {name}{_data_dir_option(data_dir)}"
        say(f"{name:{width}}  {'available' if found else f'missing: run {command}'}")


def fetch_command(
    name: Annotated[str, Parameter(help="A known data set; deeplda data list shows their names.")],
    /,
    *,
    data_dir: DataDir = None,
) -> None:
    """Download, verify and unpack a known data set, resuming an interrupted download."""
    from deeplda.data import fetch

    folder = fetch(name, data_dir, progress=sys.stderr.isatty())
    say(f"{name} is in {folder}; next: deeplda train {name}{_data_dir_option(data_dir)}")


def check_command(
    source: Annotated[
        str, Parameter(help="A known data set, a folder of images, a pack, a table, an .npz file, or module.path:name.")
    ],
    /,
    *,
    data_dir: DataDir = None,
    json_: Json = False,
) -> None:
    """Read every file of a data source and report files that are broken or missing; if any are, exit with code 2."""
    from deeplda.data import check_data
    from deeplda.data.source_check import ignored_notes

    rows, ignored = check_data(source, data_dir), ignored_notes(source)
    for note in ignored:
        say(note, file=sys.stderr)
    broken = sum(not row.ok for row in rows)
    if json_:
        files = [{"file": str(row.file), "found": row.found, "ok": row.ok} for row in rows]
        say_json({"ok": not broken, "files": files, "ignored": list(ignored)})
    else:
        for row in rows:
            say(f"{'ok    ' if row.ok else 'BROKEN'}  {row.file}: {row.found}")
    if broken:
        raise InputError(f"{broken} of {len(rows)} entries are broken or missing")


def pack_command(
    source: Annotated[
        str,
        Parameter(help="A folder of images, Parquet files of images, a known data set, or an .npz file."),
    ],
    out: Annotated[OutputPath, Parameter(help="Folder for the pack, such as photos.pack.")],
    /,
    *,
    image_size: Annotated[WholeNumber | None, Parameter(help="Resize images to this many pixels per side.")] = None,
    data_dir: DataDir = None,
    skip_unreadable: Annotated[
        bool, flag("Skip any number of broken image files. [default: at most 5 % of a class]")
    ] = False,
    strict: Annotated[bool, flag("Stop at the first broken image file.")] = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write images to a pack, from which deeplda trains without reading it into memory.

    Run the same command again to resume it, or to append images that were added since.
    """
    if strict and skip_unreadable:
        raise InputError("--strict and --skip-unreadable were both given: omit one of them")

    from deeplda.data import pack_data
    from deeplda.training.progress import Progress, TerminalProgress

    progress = Progress() if quiet else TerminalProgress()
    packed = pack_data(
        source,
        out,
        image_size=image_size,
        data_dir=data_dir,
        skip_unreadable=skip_unreadable,
        strict=strict,
        watch=progress.watch,
    )
    for note in packed.notes:
        say(note, file=sys.stderr)
    if json_:
        say_json({"pack": str(out), "images": packed.images, "added": packed.added})
    else:
        images = counted(packed.images, "image")
        say(f"{out} has {images}, {packed.added:,} of them new; next: deeplda train {shlex.quote(str(out))}")


def _data_dir_option(data_dir: Path | None) -> str:
    return "" if data_dir is None else f" --data-dir {shlex.quote(str(data_dir))}"
