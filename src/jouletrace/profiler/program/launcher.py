"""Runs a program beside us as a shell would: no failure of ours ends it, changes it or its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:  # the program starts before what only its Run needs is imported
    from jouletrace.devices.base import Clock
    from jouletrace.profiler.program.command import ProgramCommand
    from jouletrace.run import Run

LOOK_S = 0.25
"""Longest time between looks whether the program runs."""

_ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]

_PASSED_ON = [*_ENDING, *(getattr(signal, name) for name in ("SIGQUIT", "SIGUSR1", "SIGUSR2") if hasattr(signal, name))]

_KEYS = [getattr(signal, name) for name in ("SIGINT", "SIGQUIT") if hasattr(signal, name)]
"""Signals that a terminal sends, to the program too."""

_SAYS = b"jouletrace: the program has ended, and its Run is being saved: once more to stop that\n"


class Launcher:
    """The context in which a program runs and its Run is saved.

    Signals go on to the program while it runs, and the first after its end is no more than a line on stderr; until
    ``start`` they do what they did. The outcome is that of the program, which had ended before the signal came, and the
    second signal does what it did. What is ignored, as HUP under nohup, stays ignored. Other threads than the main one,
    which no signal interrupts, are left alone.

    Args:
        program: The program, checked.

    Attributes:
        begin_ns, end_ns: When it began and ended, by the clock of ``start``.
        failure: Why looks at it ended before it did; None if they didn't.
    """

    def __init__(self, program: ProgramCommand) -> None:
        self.program = program
        self.begin_ns = self.end_ns = 0
        self.failure: Exception | None = None
        self._before: dict[int, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._waiting: threading.Thread | None = None
        self._early: list[int] = []
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._restore(_PASSED_ON)

    def start(self, clock: Clock, variables: Mapping[str, str] | None = None, stdout: int | None = None) -> None:
        """Start the program, whose signals are its own from now on.

        Args:
            clock: Of its begin and end.
            variables: Added to its environment.
            stdout: Descriptor that its output goes to; None for ours.

        Raises:
            BadInputError: If it can't be started.
        """
        self._take()
        self.begin_ns = clock.time_ns()
        process = self._process = self.program.start(variables or {}, stdout)

        def wait() -> None:  # in a thread of its own: the end has a time even while the main one imports
            process.wait()
            self.end_ns = clock.time_ns()

        self._waiting = threading.Thread(target=wait, name="jouletrace-program", daemon=True)
        self._waiting.start()
        for number in self._early:
            _send(process, number)

    def wait(self, look: Callable[[], object] | None = None, every_s: float = LOOK_S) -> int:
        """Wait for the end of the program, with looks until one fails; returns its status, negative for a signal.

        Signals come at the latest after ``LOOK_S``: one that another thread gets doesn't end a call of the main one.
        """
        assert self._process is not None, "it has been started"
        assert self._waiting is not None, "it has been started"
        due = time.monotonic() + every_s
        while self._waiting.is_alive():
            self._waiting.join(min(LOOK_S, max(due - time.monotonic(), 0.0)))
            if time.monotonic() < due:
                continue
            due = time.monotonic() + every_s
            try:
                if look is not None and self.failure is None:
                    look()
            except Exception as error:  # the program goes on, whatever fails here
                self.failure = error
        self._end()
        return int(self._process.returncode)

    @property
    def code(self) -> int | None:
        """The exit code of the program by the convention of shells, after its end; None if it wasn't started."""
        if self._process is None:
            return None
        status = self.wait()
        return status if status >= 0 else 128 - status

    def warn(self, run: Run) -> None:
        """Say in a Run how its program ended, unless that was with code 0."""
        code, status = self.code, self.wait()
        if code in (128 + signal.SIGINT, 128 + signal.SIGTERM):
            name = signal.Signals(code - 128).name
            run.warn("program_ended", f"the program was ended by {name}; figures are of what ran until then")
        elif code:
            ended = f"ended with exit code {code}" if status > 0 else f"was killed by {_name(-status)}"
            run.warn("program_failed", f"the program {ended}; figures are of what ran until then")

    def _take(self) -> None:
        """Keep the signals that come from now on for a program that is about to start."""
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.getsignal(number) for number in _PASSED_ON}
            self._before = {number: old for number, old in before.items() if old not in (signal.SIG_IGN, None)}
            for number in self._before:
                signal.signal(number, self._received)

    def _end(self) -> None:
        """The program has ended, and its Run is about to be saved."""
        if not self._ended:
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
        elif self._process is None:
            self._early.append(number)
        elif number not in _KEYS or not _at_terminal():
            _send(self._process, number)


def _name(number: int) -> str:
    """The name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:  # one of those for real time
        return f"signal {number}"


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
