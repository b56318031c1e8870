"""What the programs share: a loop for some seconds that prints its own rate."""

import sys
import time


def seconds(default: float = 15.0) -> float:
    """Length of the loop: the first argument."""
    return float(sys.argv[1]) if len(sys.argv) > 1 else default


def loop(step, wait, length: float) -> None:
    """Call ``step`` for ``length`` seconds; print the rate of the second half."""
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
