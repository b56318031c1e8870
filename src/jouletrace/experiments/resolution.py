"""How many parts can be told apart in the time there is.

With every layer kept apart a model has hundreds of operators, and there is time for a window of each: not one would be
told from nothing. Pooled within their layers, as many remain as can be known well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator

import numpy as np
import pyarrow as pa

from jouletrace.experiments.arms import PACE, Arm
from jouletrace.experiments.bench import Bench, Window
from jouletrace.experiments.plan import PlanSettings

_WINDOWS = 6
_MEASURING = 0.4
"""Share of an experiment's time in which windows of parts run; the rest goes to references, captures and checks."""


def noise_of(
    bench: Bench, measured: Callable[[], pa.Table], settings: PlanSettings, pause_s: float = 0.0
) -> Generator[Window, None, float]:
    """Relative standard deviation of a window of the step, from a few; of time where there is no energy.

    Args:
        bench: Where to run.
        measured: As of ``Experiment``.
        settings: Length of windows and ramps.
        pause_s: With which variants run.
    """
    before = len(measured())
    arm = Arm(PACE, spin_ns=round(1e9 * pause_s))
    step = bench.paced(arm.spin_ns, bench.pieces(arm.spin_ns))
    for _ in range(_WINDOWS):
        yield bench.window(step, arm, -1, settings.window_s, settings.ramp_s)
    rows = measured().slice(before).to_pylist()
    energies = [row["energy_j"] for row in rows]
    known = all(energies) and len(energies) > 0
    costs = np.array(energies if known else [row["end_ns"] - row["start_ns"] for row in rows], float)
    costs = costs / np.array([row["replays"] for row in rows], float)
    return float(np.std(costs, ddof=1) / np.mean(costs)) if len(costs) > 1 else 0.0


def tellable(noise: float, seconds: float, settings: PlanSettings) -> int:
    """How many parts of equal size can be told apart.

    A part's cost is the difference of two arms of n = windows / (2 parts) windows each: its half-width is
    2 noise sqrt(2 / n) of the step, and is to be ``settings.target`` of the part, which is 1 / parts of the step.

    Args:
        noise: Relative standard deviation of a window.
        seconds: That there are for all.
        settings: What is wanted, and how long a window is.
    """
    windows = _MEASURING * max(seconds, 0.0) / (settings.window_s + settings.ramp_s)
    return int((settings.target * math.sqrt(windows) / (4 * noise)) ** (2 / 3))
