"""The scatter between runs of one workload on one GPU, in the intervals of the whole.

One run can't show how the next differs: other clocks, heat and memory. ``--repeats`` measures it. A single profile
takes a figure that was stored from repeated runs of another GPU (``Run.stored``), so that its intervals, too, are of
this workload on this GPU. Figures of latency, parts and baselines, and ratios within the run are of this run.
"""

from __future__ import annotations

from collections.abc import Callable

from jouletrace.analysis.figures import Figures, Sources
from jouletrace.run import MODEL_UNIT, Run
from jouletrace.stats.interval import widened
from jouletrace.stats.quantiles import student

FLAG = "between_runs_stored"
SOURCE = "between runs, stored from {} runs of another GPU"

UNSTEADY_PCT, OF_WINDOWS = 2.0, 0.8
"""Where windows within a run scatter by more than this, such as on a busy host, no figure of other loads holds: runs
scatter by up to this share of what windows do then (docs/explanation/method.md)."""


def add_between_runs(run: Run, figures: Figures) -> None:
    """Widen energy, active energies, power, time and throughput of the whole; nothing where repeated runs show it."""
    stored = run.stored.get("between_runs")
    repeated = any(figures.get(MODEL_UNIT, name).method == "runs" for name in ("energy_total_j", "iteration_time_s"))
    if stored is None or repeated:
        return
    n = int(stored["runs"])
    t = student(0.975, n - 1)

    def share(spread: str) -> float:
        within = figures.get(MODEL_UNIT, spread).value or 0.0
        return max(float(stored["sd_pct"]), OF_WINDOWS * within if within > UNSTEADY_PCT else 0.0) / 100

    energy, time = share("energy_total_spread_within_pct"), share("iteration_time_spread_within_pct")
    total = figures.get(MODEL_UNIT, "energy_total_j")
    u_j = energy * abs(total.value or 0.0)
    sources = figures.sources.get(MODEL_UNIT)
    if sources is not None and total.half_width is not None:
        figures.sources[MODEL_UNIT] = _with(sources, {SOURCE.format(n): u_j})
    for metric, relative in (("power_w", energy), ("iteration_time_s", time), ("throughput_per_s", time)):
        own = figures.get(MODEL_UNIT, metric)
        figures.change(MODEL_UNIT, metric, widened(own, t * relative * abs(own.value or 0.0)), FLAG)
    for metric in ("energy_total_j", "energy_active_over_context_idle_j", "energy_active_over_deep_idle_j"):
        figures.change(MODEL_UNIT, metric, widened(figures.get(MODEL_UNIT, metric), t * u_j), FLAG)


def _with(sources: Callable[[], Sources], more: Sources) -> Callable[[], Sources]:
    return lambda: {**sources(), **more}
