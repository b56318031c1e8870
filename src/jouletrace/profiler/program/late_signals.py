"""A signal that comes while the Run of an ended program is being saved doesn't lose it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_NUMBERS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]

_SAYS = b"jouletrace: the program has ended, and its Run is being saved: once more to stop that\n"


@contextmanager
def first_signal_noted() -> Iterator[None]:
    """Let the first INT, TERM or HUP be no more than a line on stderr; the second does what it did before.

    The outcome is that of the program then, which had ended before the signal came. Other threads than the main one,
    which no signal interrupts, are left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _NUMBERS}
    before = {number: handler for number, handler in before.items() if callable(handler)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        restore()
        with suppress(OSError):
            os.write(2, _SAYS)  # what print does may be what was interrupted

    for number in before:
        signal.signal(number, note)
    try:
        yield
    finally:
        restore()
