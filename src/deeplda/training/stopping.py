"""Being asked to stop: by Ctrl-C, or by who started us."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def asked_to_stop(
    *numbers: signal.Signals, say: Callable[[str], None] = lambda _words: None
) -> Iterator[Callable[[], bool]]:
    """Whether one of the signals came; `say` gets the words for it. A second one raises KeyboardInterrupt at once."""
    asked = False

    def ask(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        say("finishing the step, then saving; once more to stop at once")

    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
