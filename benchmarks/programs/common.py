"""The loop of the programs: for some seconds that prints its own rate, or takes turns with other programs."""

import math
import os
import socket
import sys
import time


def seconds(default: float = 15.0) -> float:
    """Length of the loop: the first argument."""
    return float(sys.argv[1]) if len(sys.argv) > 1 else default


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


def loop(step, wait, length: float) -> None:
    """Call ``step`` for ``length`` seconds; print the rate of the second half."""
    if "TURNS" in os.environ:
        turns = Turns(wait)
        while turns.more():
            step()
        return
    begin = time.perf_counter()
    count, since, half = 0, begin, 0
    while time.perf_counter() - begin < length:
        step()
        count += 1
        if not half and time.perf_counter() - begin > length / 2:
            wait()
            half, since = count, time.perf_counter()
    wait()
    print(f"RATE {(count - half) / (time.perf_counter() - since):.3f} iterations/s", flush=True)
