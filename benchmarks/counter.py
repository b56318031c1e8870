"""The GPU's energy counter, polled by a separate process: the reference of several benchmarks."""

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from brackets import Bracket, CounterSteps, bracket, find_steps

POLL_S = 0.002


def poll(uuid: str, target: str) -> None:
    """Read the counter as fast as it is useful until stdin closes: time before, mJ, time after."""
    import select
    import time

    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    rows = []
    print("polling", flush=True)
    while not select.select([sys.stdin], [], [], POLL_S)[0]:
        before = time.time_ns()
        millijoules = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        rows.append((before, millijoules, time.time_ns()))
    np.save(target, np.array(rows, np.int64))


class PolledCounter:
    """Polls from ``with`` to its end, into a file."""

    def __init__(self, uuid: str, target: Path) -> None:
        self._target = target
        self._command = [sys.executable, __file__, uuid, str(target)]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.communicate(b"")

    def steps(self) -> CounterSteps:
        """The counter's own steps, once polling has ended."""
        return steps_of(self._target)


def readings(target: Path) -> tuple[np.ndarray, np.ndarray]:
    """Times (ns, middle of the call) and joules of the reads in a file; an ``.npz`` has those at changes."""
    polled = np.load(target)
    if isinstance(polled, np.lib.npyio.NpzFile):
        polled = polled["reads"]
    return (polled[:, 0] + polled[:, 2]) // 2, polled[:, 1] / 1e3


def steps_of(target: Path) -> CounterSteps:
    """The counter's own steps in a file of reads."""
    return find_steps(*readings(target))


def inner_bracket(steps: CounterSteps, start_ns: int, end_ns: int) -> Bracket | None:
    """The widest pair of located steps within [start, end]."""
    inside = np.flatnonzero((steps.before_ns >= start_ns) & (steps.time_ns <= end_ns))
    if len(inside) < 3:
        return None
    return bracket(steps, int(steps.time_ns[inside[0]]), int(steps.before_ns[inside[-1]]))


if __name__ == "__main__":
    poll(sys.argv[1], sys.argv[2])
