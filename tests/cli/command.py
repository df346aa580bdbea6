"""Run the command line: in a process of its own, as its users do, or in this one, which is faster."""

import subprocess
import sys

from deeplda.cli import main

# A training that takes seconds and still learns something.
QUICK = ("--epochs", "2", "--width", "0.25", "--learning-rate", "0.1")


def deeplda(*arguments, cwd, check=None):
    command = [sys.executable, "-m", "deeplda", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    if check is not None:
        assert done.returncode == check, done.stderr
    return done


def in_this_process(capsys, *arguments):
    """Run a command in this process, and return its exit code, stdout and stderr."""
    code = 0
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as stopped:
        code = stopped.code
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def only_sentence(done):
    """The answer to a mistake: exit code 2, one line on stderr, no traceback."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("deeplda: ")
    return line
