"""Stopping a training: signals ask for it, and so does the end of the process that started this one."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

# Signals that a terminal sends to every process of a command: Ctrl-C and, except on Windows, its own end.
TERMINAL_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGHUP") if hasattr(signal, name))
STOP_SIGNALS = (signal.SIGTERM, *TERMINAL_SIGNALS)

_SECONDS_BETWEEN_CHECKS = 0.2


@contextmanager
def asked_to_stop(
    *signals: signal.Signals, say: Callable[[str], None] = lambda _text: None
) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a signal has arrived. A further SIGINT raises KeyboardInterrupt.

    Further signals of other kinds change nothing, because they are often sent twice: a closed terminal's SIGHUP comes
    from the kernel and from the shell, and a service manager's SIGTERM goes to every process of a job. SIGHUP stays
    ignored if it was ignored, for example by nohup.

    Args:
        say: called with a message for the user when the first signal arrives.
    """
    asked = False

    def ask(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not asked:
            asked = True
            # Printing fails if the terminal is closed, and the state must still be saved.
            with suppress(OSError):
                say("stopping after this step, then saving; press Ctrl-C again to stop immediately")

    ignored = {number for number in signals if signal.getsignal(number) == signal.SIG_IGN} - {signal.SIGINT}
    before = {number: signal.signal(number, ask) for number in signals if number not in ignored}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt in this block, as Ctrl-C does, so that files are cleaned up.

    Signals that are ignored stay ignored. In threads other than the main one, this has no effect.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    alone = threading.current_thread() is threading.main_thread()
    chosen = [number for number in STOP_SIGNALS if number != signal.SIGINT] if alone else []
    before = {number: signal.getsignal(number) for number in chosen}
    before = {number: handler for number, handler in before.items() if handler == signal.SIG_DFL}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def blocked_in_children(*signals: signal.Signals) -> Iterator[None]:
    """Block signals for good in the processes that are started in this block; this process gets them after the block.

    It is for signals that a terminal sends to every process of a command, so that the parent can decide what they mean.
    On Windows, which cannot block signals, it has no effect.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop_with(parent: int) -> None:
    """Watch the process that started this one, and send SIGTERM to this process once `parent` is gone."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_SECONDS_BETWEEN_CHECKS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
