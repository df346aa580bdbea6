"""The entry point of the command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import deeplda


@pytest.mark.parametrize("module", ["cyclopts", "csv"])
def test_ctrl_c_while_modules_are_imported_prints_one_line(tmp_path, module):
    (tmp_path / f"{module}.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    source = Path(deeplda.__file__).parents[1]
    # The package `cyclopts` is found first in tmp_path, and so is `csv`, which deeplda.printing imports.
    done = subprocess.run(
        [sys.executable, "-m", "deeplda", "--version"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [tmp_path, source]))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "deeplda: stopped\n")
