"""`deeplda data list|fetch|check`."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from deeplda.errors import InputError, one_line

DataDir = Annotated[Path | None, Parameter(help="Where known data is. [default: DEEPLDA_DATA or the cache]")]
Json = Annotated[bool, Parameter(name="--json", negative="", help="One JSON object on stdout.")]


def list_known(*, data_dir: DataDir = None, json_: Json = False) -> None:
    """List the known data sets, and which are here."""
    from deeplda.data import KNOWN, check_data

    here = {}
    for name in KNOWN:
        try:
            here[name] = all(row.whole for row in check_data(name, data_dir))
        except InputError:
            here[name] = False
    if json_:
        print(json.dumps({"data": here}))
        return
    for name, there in here.items():
        print(f"{name:15} {'here' if there else f'not here: deeplda data fetch {name}{_option(data_dir)}'}")


def fetch(
    name: Annotated[str, Parameter(help="cifar10, stl10, mnist or fashion-mnist.")], /, *, data_dir: DataDir = None
) -> None:
    """Download a known data set, check it and unpack it; a download that was cut goes on."""
    from deeplda.data import fetch as download

    folder = download(name, data_dir, progress=sys.stderr.isatty())
    print(f"{name} is in {folder}; next: deeplda train {name}{_option(data_dir)}")


def check(
    source: Annotated[str, Parameter(help="A known name, a folder of images, or an .npz.")],
    /,
    *,
    data_dir: DataDir = None,
    json_: Json = False,
) -> None:
    """Tell what is there and whether it is whole; exit code 2 where it is not."""
    from deeplda.data import check_data

    rows = check_data(source, data_dir)
    if json_:
        files = [{"file": str(row.file), "found": row.found, "whole": row.whole} for row in rows]
        print(json.dumps({"whole": all(row.whole for row in rows), "files": files}))
    else:
        for row in rows:
            print(one_line(f"{'whole ' if row.whole else 'BROKEN'}  {row.file}: {row.found}"))
    broken = sum(not row.whole for row in rows)
    if broken:
        raise InputError(f"{broken} of {len(rows)} entries are not whole")


def _option(data_dir: Path | None) -> str:
    return "" if data_dir is None else f" --data-dir {shlex.quote(str(data_dir))}"
