"""User code that calls ``os._exit``, which would end the process silently and successfully."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class ExitRefused(SystemExit):
    """A call of ``os._exit`` that would have ended a measurement."""


@contextmanager
def no_silent_exit() -> Iterator[None]:
    """Make ``os._exit`` raise in this process, so that the recording is kept and the end is reported.

    A forked child may still call it. Another thread can't be unwound from here: its call ends the process, but never
    with code 0.

    Raises:
        ExitRefused: If the thread inside the context calls it.
    """
    owner, thread, really = os.getpid(), threading.get_ident(), os._exit

    def refuse(status: int) -> NoReturn:
        if os.getpid() != owner:
            really(status)
        text = f"os._exit({status}) ends the process before it is measured"
        if threading.get_ident() != thread:
            print(f"jouletrace: {text}", file=sys.stderr, flush=True)
            really(status or 1)
        raise ExitRefused(text)

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = really
