"""The scatter between runs of one workload on one GPU, in the intervals of the whole.

One run can't show how the next differs: other clocks, heat and memory. ``--repeats`` measures it. A single profile
takes a figure that was stored from repeated runs of another GPU (``Run.stored``), so that its intervals, too, are of
this workload on this GPU. Figures of latency, parts and baselines, and ratios within the run are of this run.
"""

from __future__ import annotations

import math
from dataclasses import replace

from jouletrace.analysis.iterations import per_iteration, scatter, together
from jouletrace.arrays import Floats, Ints
from jouletrace.run import MODEL_UNIT, Run
from jouletrace.run.estimate import widened
from jouletrace.run.figures import Figures
from jouletrace.run.parts import STORED_SCATTER
from jouletrace.stats.quantiles import student

SOURCE = "between runs, stored from {} others"

ENERGIES = {
    "energy_total_j": None,
    "energy_active_over_context_idle_j": "baseline_context_idle_w",
    "energy_active_over_deep_idle_j": "baseline_deep_idle_w",
}
"""Energies of the whole, and the idle power that is taken off each."""

STEADY, OF_WINDOWS = 0.02, 0.8
"""Where windows within a run scatter by a larger share than the first, such as on a busy host, no figure of other loads
holds: runs scatter by up to the second share of what is beyond it (docs/explanation/method.md)."""


def steady(run: Run) -> bool:
    """True unless times of windows scatter, standard deviation over mean, by more than ``STEADY``: the host limits."""
    seconds, block = per_iteration(run, "time_s")
    return not len(seconds) or (scatter(seconds, block) or 0.0) <= STEADY * float(seconds.mean())


def add_between_runs(run: Run, figures: Figures) -> None:
    """Widen energies, also of a token, power, time and throughput of the whole; nothing where repeated runs show it."""
    stored = run.stored.get("between_runs")
    repeated = any(figures.get(MODEL_UNIT, name).method == "runs" for name in ("energy_total_j", "iteration_time_s"))
    if stored is None or repeated:
        return
    n, share = int(stored["runs"]), float(stored["sd_pct"]) / 100
    t = student(0.975, n - 1)
    times, of_time = per_iteration(run, "time_s")
    (joules, seconds), block = together(run, "energy_j", "time_s")

    def value(metric: str) -> float:
        return abs(figures.get(MODEL_UNIT, metric).value or 0.0)

    u_time = _standard(share, value("iteration_time_s"), times, of_time)
    relative = u_time / value("iteration_time_s") if value("iteration_time_s") else share
    u = {
        "iteration_time_s": u_time,
        **{rate: relative * value(rate) for rate in ("throughput_per_s", "tokens_per_s")},
        "power_w": _of_power(share, value("power_w"), joules, seconds, block),
    }
    for metric, idle in ENERGIES.items():
        idle_w = figures.get(MODEL_UNIT, idle).value or 0.0 if idle else 0.0
        u[metric] = _standard(share, value("energy_total_j"), joules - idle_w * seconds, block)
    u["energy_work_j"] = share * value("energy_work_j")  # that windows scatter by their host's time is not in it
    if whole := value("energy_total_j"):  # of which that of a token is a part
        u["energy_per_token_j"] = u["energy_total_j"] * value("energy_per_token_j") / whole
    for metric, sd in u.items():
        figure = figures.get(MODEL_UNIT, metric)
        if figure.half_width is not None:
            budget = {**figure.budget, SOURCE.format(n): sd} if figure.budget else {}
            figure = replace(figure, flags=(*figure.flags, STORED_SCATTER), budget=budget)
            figures.change(MODEL_UNIT, metric, widened(figure, t * sd))


def _standard(share: float, whole: float, values: Floats, block: Ints) -> float:
    """Standard deviation of a figure between runs: a share of the whole, and by what its windows scatter beyond 2 %."""
    return math.hypot(share * whole, OF_WINDOWS * _beyond(whole, values, block))


def _beyond(whole: float, values: Floats, block: Ints) -> float:
    """Standard deviation by which windows scatter beyond a steady load's, in the unit of their values."""
    return math.sqrt(max((scatter(values, block) or 0.0) ** 2 - (STEADY * whole) ** 2, 0.0))


def _of_power(share: float, watts: float, joules: Floats, seconds: Floats, block: Ints) -> float:
    """Standard deviation of power between runs, W: as the ratio of energy and time it moves by no more than both.

    At a power cap both scatter against each other, and power by the sum of the two while either is steady.
    """
    if not len(joules):
        return share * watts
    both = sum(_beyond(1.0, values / values.mean(), block) for values in (joules, seconds))
    return math.hypot(share * watts, OF_WINDOWS * min(_beyond(watts, joules / seconds, block), watts * both))
