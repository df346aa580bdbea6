"""Being asked to stop: by Ctrl-C, or by who started us."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def asked_to_stop(*numbers: signal.Signals, say: Callable[[], None] = lambda: None) -> Iterator[Callable[[], bool]]:
    """Whether one of the signals came; `say` is called then. A second one raises KeyboardInterrupt at once."""
    asked = False

    def ask(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        say()

    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
