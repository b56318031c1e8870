"""SIGTERM and SIGHUP as an exception that can't get lost.

The handler of a signal raises its exception wherever the main thread is. In a call from C whose errors are dropped (a
``__hash__`` during a look-up, the callback of a weak reference at each import, ``__del__``) the exception goes no
further, and the program would continue as if no signal had come. So a thread watches it: while it is being handled, it
exists. If it is gone without a call of ``taken``, the signal is sent again.

The command line imports this before anything else: it needs almost no modules.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import weakref
from _thread import start_new_thread

from jouletrace.errors import TerminatedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType

_LOOK_S = 0.05
"""Seconds between looks whether the exception exists."""


class _State:
    """Exceptions raised in this process that are not settled yet, and if the command has ended."""

    raised: list[weakref.ref[TerminatedError]] = []  # noqa: RUF012  # one per process
    owner: int | None = None
    watched = False
    over = False


def terminated(number: int, frame: FrameType | None) -> None:
    """The handler: raises ``TerminatedError``; once the command is over, the signal ends the process."""
    if _State.over:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    if not _State.watched and _State.owner == os.getpid():  # not in a fork, which ends in its own way
        _State.watched = True
        start_new_thread(_watch, (number, signal.getsignal(number)))
    error = TerminatedError()
    _State.raised.append(weakref.ref(error))
    try:
        raise error
    finally:
        del error  # with it this frame, which the traceback holds, would keep it alive


def taken() -> None:
    """Declare that the signals so far are answered: call it where the exception is caught, while it exists."""
    _State.raised.clear()


def command_begins() -> None:
    """Let signals to this process raise the exception from now on."""
    _State.owner, _State.over = os.getpid(), False
    taken()


def command_is_over() -> None:
    """Let the next signal end the process: nothing is left that would have to be undone.

    So does Ctrl-C, which otherwise prints the traceback of whatever Python does at its end.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _State.over = True
    taken()


class interrupts_taken:
    """A block that an interrupt may end, after which the program continues."""

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        if not isinstance(error, KeyboardInterrupt):
            return False
        taken()
        return True


def _watch(number: int, handler: object) -> None:
    """Send the signal again whenever its exception has vanished."""
    main = threading.main_thread().ident
    assert main is not None
    while True:
        time.sleep(_LOOK_S)
        raised = _State.raised.copy()
        if raised and all(error() is None for error in raised) and signal.getsignal(number) is handler:
            _State.raised.clear()  # before the handler adds the next
            signal.pthread_kill(main, number)
