"""Truths of the recordings of ``gpu.py``, all by steps of the GPU's own energy counter."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gpu_files import Kernels, Recorded
from scipy import stats

sys.path += [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2] / "tests" / "support")]
from brackets import Bracket, CounterSteps, between, bracket
from bursts import true_energies
from canary import line_of
from counter import inner_bracket

SETTLED_NS, IDLE_NS = 100_000_000, 1_500_000_000
"""After so long the counter has all of what ran; idle before a program's first long burst."""

AROUND_NS = 150_000_000, 300_000_000
"""Idle before and after a span that is counted with it."""


@dataclass(frozen=True)
class Truth:
    """Energies in J and half-widths of their 95 % intervals, both of the same shape."""

    energy_j: np.ndarray
    half_j: np.ndarray


def steps_of(found: Recorded) -> CounterSteps:
    """The counter's steps."""
    before, time, millijoules = found.arrays["steps"].T
    return CounterSteps(time, before, millijoules / 1e3, np.empty(0, np.intp))


def edges(spans: list[dict]) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends in ns."""
    return tuple(np.array([span[key] for span in spans], np.int64) for key in ("start_ns", "end_ns"))


def of_cells(cells: list[list[dict]], steps: CounterSteps) -> list[Truth]:
    """Energies of the judged bursts in each cell of trains of one length.

    Trains give the line of their energies over bursts and time: what a burst takes above the power of pauses, and that
    power. A burst that a late host makes longer has so much more of it. The scatter about the lines, relative to the
    energy of a train, is one for all cells.
    """
    tables = [
        np.array([_train([span for span in cell if span["train"] == train], steps) for train in _trains(cell)])
        for cell in cells
    ]
    lines = [line_of(table) for table in tables]
    sizes = [float(table[:, 2].mean()) for table in tables]
    freedom = sum(len(table) - 2 for table in tables)
    squares = sum(float(left @ left) / size**2 for (_, left, _), size in zip(lines, sizes, strict=True))
    scatter = np.sqrt(squares / freedom) * stats.t.ppf(0.975, freedom)
    truths = []
    for cell, table, (line, _, _), size in zip(cells, tables, lines, sizes, strict=True):
        start, end = edges([span for span in cell if span["judged"]])
        rows = np.stack([np.ones(len(start)), (end - start) / 1e9], axis=1)
        spread = np.sqrt(np.einsum("ni,ij,nj->n", rows, np.linalg.inv(table[:, :2].T @ table[:, :2]), rows))
        truths.append(Truth(rows @ line, scatter * size * spread))
    return truths


def _trains(cell: list[dict]) -> list[int]:
    return sorted({span["train"] for span in cell})


def _train(spans: list[dict], steps: CounterSteps) -> tuple[int, float, float]:
    """Bursts, seconds and joules of a train, from a step in the idle before it to one in the idle after."""
    start, end = edges(spans)
    first = int(np.searchsorted(steps.time_ns, start[0])) - 1
    last = int(np.searchsorted(steps.before_ns, end[-1] + SETTLED_NS))
    found = between(steps, first, last)
    return len(spans), (found.end_ns - found.start_ns) / 1e9, found.energy_j


def of_long(spans: list[dict], steps: CounterSteps) -> Truth:
    """Energy of each long burst of one program: the counter's around it less idle."""
    start, end = edges(spans)
    before = start[:1] - IDLE_NS  # a burst of no length, since which the GPU is idle
    energy, sd = true_energies(steps, np.append(before, start), np.append(before, end))
    return Truth(energy[1:], 1.96 * sd[1:])


def around(steps: CounterSteps, span: dict) -> Bracket:
    """The counter around a span, with a little idle on both sides."""
    found = bracket(steps, span["start_ns"] - AROUND_NS[0], span["end_ns"] + AROUND_NS[1])
    assert found is not None
    return found


def alone_w(steps: CounterSteps, span: dict, kernels: Kernels, idle_w: float) -> tuple[float, float]:
    """Power of the kernels of a loop while one runs, and the half-width of its interval, in W."""
    found = inner_bracket(steps, span["start_ns"], span["end_ns"])
    assert found is not None
    since, until = found.start_ns, found.end_ns
    busy_s = float((np.clip(kernels.end_ns, since, until) - np.clip(kernels.start_ns, since, until)).sum()) / 1e9
    seconds = (until - since) / 1e9
    watts = (found.energy_j - idle_w * (seconds - busy_s)) / busy_s
    return watts, 1.96 * np.sqrt(2) * found.time_sd_s * watts / seconds


def idle_w(steps: CounterSteps, since_ns: int, until_ns: int) -> float:
    """Power between two times at which the GPU is idle."""
    found = inner_bracket(steps, since_ns, until_ns)
    assert found is not None
    return found.energy_j / (found.end_ns - found.start_ns) * 1e9


def of_iteration(blocks: list[dict], steps: CounterSteps) -> tuple[Truth, np.ndarray]:
    """Energy above idle of an iteration, by the regression of blocks on iterations and time; rows of the blocks.

    A row has iterations, seconds and joules between steps in the idle before two blocks, or after the last.
    """
    start, end = edges(blocks)
    ends = np.append(np.searchsorted(steps.time_ns, start) - 1, np.searchsorted(steps.before_ns, end[-1] + SETTLED_NS))
    rows = []
    for block, first, last in zip(blocks, ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        found = between(steps, first, last)
        rows.append((block["iterations"], (found.end_ns - found.start_ns) / 1e9, found.energy_j))
    table = np.array(rows)
    line, left, spread = line_of(table)
    freedom = len(table) - 2
    half = stats.t.ppf(0.975, freedom) * np.sqrt(float(left @ left) / freedom) * spread
    return Truth(np.array(line[:1]), np.array([half])), table


def of_loop(loop: dict, rest_ns: tuple[int, int], steps: CounterSteps) -> float:
    """Energy in J of an iteration of a loop above the idle power in ``rest_ns`` before and after it, by the counter."""
    found = around(steps, loop)
    before = idle_w(steps, loop["start_ns"] - rest_ns[0], loop["start_ns"])
    after = idle_w(steps, loop["end_ns"] + SETTLED_NS, loop["end_ns"] + rest_ns[1])
    seconds = (found.end_ns - found.start_ns) / 1e9
    return (found.energy_j - (before + after) / 2 * seconds) / loop["iterations"]
