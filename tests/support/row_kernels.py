"""Kernels of a program under test, in the files that the native tracer writes of it: imported by the program itself.

Beside tests, it needs what ``jouletrace run`` puts into the environment. A fork has files of its own.
"""

import atexit
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from row_writer import Writer

_writers = {}
_ranges = [0]


def writer():
    """The files of this process."""
    if os.getpid() not in _writers:
        one = _writers[os.getpid()] = Writer(Path(os.environ["JOULETRACE_TRACE"]), os.getpid())
        one.fact("cmdline", "\x1f".join(sys.orig_argv))
        if "RANK" in os.environ:
            one.fact("rank", os.environ["RANK"])
        one.traced([(time.time_ns(), None)])
        atexit.register(one.close)
    return _writers[os.getpid()]


def launch(name, seconds=1e-3, device=0):
    """Run a kernel now, on the device of a number; it is in the file when this returns."""
    one, begin = writer(), time.time_ns()
    time.sleep(seconds)
    one.row(begin, time.time_ns(), name, range=_ranges[-1], correlation=begin % 2**32, device=device)
    one.flush()


@contextmanager
def marked(name):
    """A range."""
    _ranges.append(writer().mark(_ranges[-1], "r", name))
    try:
        yield
    finally:
        _ranges.pop()
