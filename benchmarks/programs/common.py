"""The loop of the programs: turns on the GPU, which ``benchmarks/slowdown.py`` gives at the socket ``TURNS``."""

import os
import socket
import time


def loop(step, wait) -> None:
    """Call ``step`` for as long as each turn lasts, and state iterations and seconds; ``wait`` ends with all work.

    A line is sent before the first turn: the program has loaded.
    """
    wait()
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(os.environ["TURNS"])
        line.sendall(b"ready\n")
        for length in line.makefile("r"):
            count, begin = 0, time.perf_counter()
            while time.perf_counter() < begin + float(length):
                step()
                count += 1
            wait()
            line.sendall(f"{count} {time.perf_counter() - begin:.6f}\n".encode())
