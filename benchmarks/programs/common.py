"""The loop of the programs: turns on the GPU, which ``benchmarks/slowdown.py`` gives."""

import math
import os
import socket
import time


class Turns:
    """When to work, by ``benchmarks/slowdown.py``, at the socket that ``TURNS`` names.

    The first turn is the program's own start: it ends with the first call of ``more``.
    """

    def __init__(self, wait) -> None:
        self.wait, self.count, self.begin, self.until = wait, 0, math.nan, -math.inf
        self.line = socket.socket(socket.AF_UNIX)
        self.line.connect(os.environ["TURNS"])
        self.orders = self.line.makefile("r")

    def more(self) -> bool:
        """True if another step is to be made; returns late, when it is this program's turn again."""
        if time.perf_counter() >= self.until:
            self.wait()
            self.line.sendall(f"{self.count} {time.perf_counter() - self.begin:.6f}\n".encode())
            if not (length := self.orders.readline()):
                return False
            self.count, self.begin = 0, time.perf_counter()
            self.until = self.begin + float(length)
        self.count += 1
        return True


def loop(step, wait) -> None:
    """Call ``step`` in the program's turns; ``wait`` returns when the GPU is done."""
    turns = Turns(wait)
    while turns.more():
        step()
