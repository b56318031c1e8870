"""Signals while a program runs in a process of its own, and while its Run is being saved."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

_ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]

_PASSED_ON = [*_ENDING, *(getattr(signal, name) for name in ("SIGQUIT", "SIGUSR1", "SIGUSR2") if hasattr(signal, name))]

_KEYS = [getattr(signal, name) for name in ("SIGINT", "SIGQUIT") if hasattr(signal, name)]
"""Signals that a terminal sends, to the program too."""

_SAYS = b"jouletrace: the program has ended, and its Run is being saved: once more to stop that\n"


class Signals:
    """Lets signals go on to the program that runs, and the first after its end be no more than a line on stderr.

    It is the context in which the program runs and its Run is saved; until ``take`` signals do what they did. The
    outcome is that of the program, which had ended before the signal came, and the second signal does what it did. What
    is ignored, as HUP under nohup, stays ignored. Other threads than the main one, which no signal interrupts, are left
    alone.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._program: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._restore(_PASSED_ON)

    def take(self) -> None:
        """Keep the signals that come from now on for a program that is about to start."""
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.getsignal(number) for number in _PASSED_ON}
            self._before = {number: old for number, old in before.items() if old not in (signal.SIG_IGN, None)}
            for number in self._before:
                signal.signal(number, self._received)

    def follow(self, program: subprocess.Popen[bytes]) -> None:
        """Send signals to this program from now on, and those that have come."""
        self._program = program
        for number in self._early:
            _send(program, number)

    def end(self) -> None:
        """The program has ended, and its Run is about to be saved."""
        self._ended = True
        noted = [number for number in _ENDING if callable(self._before.get(number))]
        self._restore([number for number in _PASSED_ON if number not in noted])

    def _restore(self, numbers: list[int]) -> None:
        for number in numbers:
            if number in self._before:
                signal.signal(number, self._before[number])

    def _received(self, number: int, _frame: FrameType | None) -> None:
        if self._ended:
            self._restore(_ENDING)
            with suppress(OSError):
                os.write(2, _SAYS)  # what print does may be what was interrupted
        elif self._program is None:
            self._early.append(number)
        elif number not in _KEYS or not _at_terminal():
            _send(self._program, number)


def _at_terminal() -> bool:
    """True if keys of a terminal reach this process and those that it starts."""
    try:
        with open("/dev/tty", "rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def _send(program: subprocess.Popen[bytes], number: int) -> None:
    with suppress(OSError):
        program.send_signal(number)
