"""How fast this machine is, so that bounds on work are ratios: a slow or busy machine moves both sides alike."""

import time
from contextlib import contextmanager
from dataclasses import dataclass

_ADDITIONS = 1_000_000
_LEAST_S = 3e-3
"""No machine adds a million times in Python in less than this, a tenth of what a core of 2024 takes."""


@dataclass
class Work:
    """Time of a block.

    Attributes:
        loops: Processor time of this process in the block, over that of a loop of a million additions in
            Python, which takes about 30 ms on a core of 2024.
    """

    loops: float = 0.0


@contextmanager
def worked():
    """Count the work of a block: processor time alone, since the wall clock of a busy machine says nothing of it."""
    work = Work()
    began = time.process_time()
    yield work
    spent = time.process_time() - began
    work.loops = spent / loop_s()


def within(spent_s, loops):
    """True if processor time is less than that of so many loops; none is run where the fastest machine says so."""
    return spent_s < loops * _LEAST_S or spent_s < loops * loop_s()


def loop_s():
    """Seconds of processor that a million additions take here and now, the best of three."""
    return min(_loop() for _ in range(3))


def _loop():
    began, total = time.process_time(), 0
    for i in range(_ADDITIONS):
        total += i
    return time.process_time() - began
