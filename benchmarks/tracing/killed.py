"""Kills a program under ``jouletrace run`` at drawn moments: is the Run whole, and how much of it is lost?

    killed.py ROUNDS DEVICE PROGRAM [ARGUMENTS...]

Moments are drawn from the first three seconds of the program. Prints each kill, with the time from the end of the last
known kernel to it, and in the end the worst.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jouletrace.run import load


def child_of(process, program):
    """The process that runs the program, once it does."""
    until = time.time() + 30
    while time.time() < until and process.poll() is None:
        for children in Path(f"/proc/{process.pid}/task").glob("*/children"):
            for child in children.read_text().split():
                try:
                    if os.readlink(f"/proc/{child}/exe") == program:
                        return int(child)
                except OSError:
                    pass
        time.sleep(0.002)
    raise RuntimeError(process.stderr.read())


def main():
    rounds, device, program = int(sys.argv[1]), sys.argv[2], os.path.realpath(sys.argv[3])
    moments, losses, whole = random.Random(1), [], 0
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "run"
            words = [sys.executable, "-m", "jouletrace", "run", "-d", device, "-o", str(place), program, *sys.argv[4:]]
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            child, wait = child_of(process, program), moments.uniform(0, 3)
            time.sleep(wait)
            killed_ns = time.time_ns()
            os.kill(child, signal.SIGKILL)
            process.communicate(timeout=120)
            run = load(place)
            ends = run.activity["end_ns"].to_pylist()
            loss = (killed_ns - max(ends)) / 1e6 if ends else None
            whole += process.returncode == 137 and not list(place.glob("rows-*"))
            losses += [loss] if loss is not None else []
            print(
                f"killed after {wait:.3f} s: exit code {process.returncode}, {len(ends)} kernels, lost {loss} ms",
                flush=True,
            )
    print(f"{whole} of {rounds} Runs whole, {len(losses)} with kernels, worst loss {max(losses, default=0):.0f} ms")


if __name__ == "__main__":
    main()
