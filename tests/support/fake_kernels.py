"""A log of kernels that a test's program launches itself, in place of CUPTI's."""

import time

import numpy as np

from jouletrace.tracer.process_trace import Launched

current = None


class FakeLog:
    """As ``tracing.log.KernelLog``."""

    def __init__(self):
        global current  # noqa: PLW0603 (the program under test launches into it)
        current = self
        self.dropped = self.kernels = 0
        self._names, self._rows, self._marks, self._next = {}, [], [], 1

    def launch(self, name, seconds=1e-4, device=0):
        """Run a kernel now, on the device of a number."""
        begin = time.time_ns()
        time.sleep(seconds)
        self._rows.append((self._names.setdefault(name, len(self._names)), begin, time.time_ns(), self._next, device))
        self._next += 1
        self.kernels += 1

    def mark(self, meaning):
        self._marks.append((self._next, meaning))
        self._next += 1
        return True

    def launched(self):
        name, start, end, number, device = np.array(self._rows, np.int64).reshape(-1, 5).T
        work = Launched(tuple(self._names), name, start, end, number, device)
        return work, np.array([n for n, _ in self._marks], np.int64), [m for _, m in self._marks]

    def syncs(self):
        return np.empty((0, 2), np.int64)

    def start(self):
        pass

    stop = pause = resume = start


def launch(name, seconds=1e-4, device=0):
    """Run a kernel, in whatever program is recorded."""
    current.launch(name, seconds, device)
