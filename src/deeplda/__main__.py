"""The entry point for the `deeplda` command and `python -m deeplda`."""

from __future__ import annotations

import sys

# All other imports are in a function: they can take seconds, and Ctrl-C during them must not show a traceback.


def main() -> None:
    """Run the command line, or print the extra to install if it is missing."""
    try:
        _run()
    except KeyboardInterrupt:
        print("deeplda: stopped", file=sys.stderr)
        sys.exit(130)


def _run() -> None:
    import signal

    from deeplda.errors import InputError
    from deeplda.extras import EXTRAS, require
    from deeplda.printing import say

    command = next((word for word in sys.argv[1:] if word in EXTRAS["cli"].commands), "the command line")
    try:
        require("cli", command)
    except InputError as error:
        say(f"deeplda: {error}", file=sys.stderr)
        sys.exit(2)

    from deeplda.cli import main as run_command_line

    try:
        run_command_line()
    finally:
        # The decision to exit is made; a further Ctrl-C would only interrupt the cleaning up.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()
