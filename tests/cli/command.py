"""Run the command line: in this process, which is fast, or in one of its own, as its users do."""

import io
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout

from deeplda.cli import main

# A training that takes seconds and still learns something.
QUICK = ("--epochs", "2", "--width", "0.25", "--learning-rate", "0.1")


def deeplda(*arguments, cwd, check=None):
    """Run a command in this process, in the folder `cwd`; its exit code has to be `check`, if that is given."""
    with chdir(cwd), redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as errors:
        code = exit_code(*arguments)
    done = subprocess.CompletedProcess(arguments, code, out.getvalue(), errors.getvalue())
    return checked(done, check)


def in_a_process(*arguments, cwd, check=None):
    """Run a command like `deeplda`, but in a process of its own."""
    command = [sys.executable, "-m", "deeplda", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    return checked(done, check)


def in_this_process(capsys, *arguments):
    """Run a command in this process and folder, and return its exit code, stdout and stderr."""
    code = exit_code(*arguments)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def exit_code(*arguments):
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as stopped:
        return stopped.code
    return 0


def checked(done, code):
    if code is not None:
        assert done.returncode == code, done.stderr
    return done


def only_sentence(done):
    """The answer to a mistake: exit code 2, one line on stderr, no traceback."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("deeplda: ")
    return line
