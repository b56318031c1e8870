"""How fast the tracer's rows are read: from its files to launches with names, operators and modules, in one run.

Beside it a plain copy of the same rows, by which machines can be compared.

    python benchmarks/tracing_speed.py
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from jouletrace.tracer.labels import labels_of
from jouletrace.tracer.reader import read
from jouletrace.tracer.rows import ROW, read_rows
from row_writer import Writer

ROWS, NAMES, OPERATORS = 1_000_000, 60, 200
TRIES = 5


def write(folder: Path) -> Path:
    """Rows of a program that marks its operators for a tenth of the time; returns the folder of its process."""
    rows = np.zeros(ROWS, ROW)
    numbers = np.arange(ROWS)
    with Writer(folder, 1, 1) as writer:
        for k in range(NAMES):
            writer.name(f"kernel_{k}")
        modules = [writer.mark(0, "m", f"layers.{k}") for k in range(OPERATORS)]
        operators = np.array([writer.mark(module, "o", "aten::addmm") for module in modules])
        rows["start"], rows["end"] = 1_000 * numbers + 1, 1_000 * numbers + 900
        rows["name"], rows["correlation"], rows["thread"] = numbers % NAMES, numbers + 1, 1
        rows["sampled"] = numbers // 10_000 % 10 == 0
        at = numbers % OPERATORS
        rows["owner"] = np.where(rows["sampled"] == 1, operators[at], np.array(modules)[at])
        writer.rows(rows)
        return writer.folder


def best(call: Callable[[], Any]) -> float:
    """Seconds of the fastest of some tries."""
    seconds = []
    for _ in range(TRIES):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = write(Path(folder))
        copy_s = best(read_rows(place)[1].copy)
        read_s = best(lambda: read(Path(folder)))
        (traced,) = read(Path(folder))
        labels_s = best(lambda: labels_of(traced))
    print("| step | rows/s | of a plain copy's time |")
    print("|---|---|---|")
    for name, seconds in (("read, with names and marks", read_s), ("operators learned", labels_s)):
        print(f"| {name} | {ROWS / seconds / 1e6:.1f} M | {seconds / copy_s:.0f} × |")


if __name__ == "__main__":
    main()
