"""Code of the user's that calls ``os._exit``, which would end the process well and without a word."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class ExitRefused(SystemExit):
    """``os._exit`` was called where it would have ended a measurement."""


@contextmanager
def no_silent_exit() -> Iterator[None]:
    """Within it ``os._exit`` of this process raises, so that what was recorded is kept, and its end is said.

    A fork may end so. Another thread can't be unwound from here: it ends the process, but never with 0.

    Raises:
        ExitRefused: If it is called by the thread that is in here.
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
