"""Run the command line in a process of its own, as its users do."""

import subprocess
import sys

# A training that takes seconds and still learns something.
QUICK = ("--epochs", "2", "--width", "0.25", "--learning-rate", "0.1")


def deeplda(*arguments, cwd, check=None):
    command = [sys.executable, "-m", "deeplda", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    if check is not None:
        assert done.returncode == check, done.stderr
    return done


def only_sentence(done):
    """The answer to a mistake: exit code 2, one line on stderr, no traceback."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("deeplda: ")
    return line
