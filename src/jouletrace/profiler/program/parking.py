"""Stops the threads that a program leaves behind when it has ended."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

OWN = "jouletrace-"
"""How the names of our threads begin."""


def park_threads() -> None:
    """Let the program's other threads wait for ever at their next call, for the process ends and unwinds nothing.

    Without us they would end with ``os._exit`` or as daemons. They would compete for the interpreter with what computes
    the figures: threads that launch kernels and calculate make minutes of its seconds. One that imports goes on, since
    it holds a lock. Before Python 3.12 none can be stopped.
    """
    if not hasattr(threading, "setprofile_all_threads"):
        return
    ours = {threading.get_ident(), threading.main_thread().ident}
    ours |= {one.ident for one in threading.enumerate() if one.name.startswith(OWN)}
    theirs = set(sys._current_frames()) - ours
    if not theirs:
        return

    def park(frame: FrameType, event: str, argument: Any) -> None:
        if threading.get_ident() not in theirs:
            sys.setprofile(None)
        elif not _imports(frame):
            threading.Event().wait()

    threading.setprofile_all_threads(park)
    threading.setprofile(None)  # threads that start from now on are ours
    sys.setprofile(None)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
