"""Figures of the whole model: latency, power, energy, and the idle levels they are compared with."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis import latency
from jouletrace.analysis.between_runs import steady
from jouletrace.analysis.counter import counter_ratio
from jouletrace.analysis.iterations import (
    by_run,
    fill,
    of_variant,
    per_iteration,
    powers,
    scatter,
    together,
)
from jouletrace.analysis.power import METHOD, energies, no_power_reason, power_record, readings
from jouletrace.arrays import Floats, Ints
from jouletrace.attribution.prior import Prior
from jouletrace.attribution.spans import SpanEnergies
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.estimate import widened
from jouletrace.run.figures import Figures
from jouletrace.run.lazily import compute as pc
from jouletrace.run.readings import IMPLAUSIBLE
from jouletrace.run.spans import spans_of
from jouletrace.stats.interval import Z95, mean_estimate, standard_error
from jouletrace.stats.stopping import two_stage_estimate, windows_needed

SPREAD, BETWEEN = "scatter of windows", "scatter of runs"
IDLE = "idle power"
"""Sources of the uncertainty of a mean over windows, beside those of the estimator."""

SETTLE_S = 0.3
"""Left out at the start of an idle phase: the GPU takes about 80 ms to fall to idle, clocks longer."""


IDLE_PHASES = {"context_idle": ("context idle before", "context idle after"), "deep_idle": ("deep idle",)}


def add_model(run: Run, figures: Figures) -> None:
    """Add the model's row: everything that a profile without further detail states."""
    name = run.workload.get("name", "model")
    figures.model(name)
    device = run.devices[0].id if run.devices else ""
    idle = idle_energies(run, device)
    solved = fill(run, idle_level(run, idle, "context_idle").value or 0.0)
    figures.add(MODEL_UNIT, "latency_s", latency.median(run))
    time = _mean(run, "time_s")
    if len(run.windows):
        figures.add(MODEL_UNIT, "iteration_time_s", time)
    items = run.workload.get("items") or 1
    pace = time if time.value else latency.mean(run)
    figures.add(MODEL_UNIT, "throughput_per_s", inverse(pace).scaled(items))
    tokens = run.workload.get("tokens") if run.workload.get("task") == "generate" else None
    if tokens:
        figures.add(MODEL_UNIT, "time_to_first_token_s", latency.median(run, latency.FIRST_TOKEN))
        figures.add(MODEL_UNIT, "tokens_per_s", inverse(pace).scaled(tokens))
    if not solved:
        watched = not len(run.windows) and power_record(run, device) is not None
        null = Estimate.null("not_measured" if watched else no_power_reason(run, device), METHOD)
        of_tokens = ("energy_per_token_j",) if tokens else ()
        for metric in (
            "energy_total_j",
            *of_tokens,
            "power_w",
            *itertools.chain(*map(_of_idle, IDLE_PHASES)),
            "counter_ratio",
        ):
            figures.add(MODEL_UNIT, metric, null)
        return
    untouched = [solved[load] for load in solved if load[0] in ("untouched", "flush")]
    flags = [*dict.fromkeys(flag for load in untouched for flag in load.flags), *_shortfall(run)]
    relative = untouched[0].sources() if untouched else {}
    energy, power = _mean(run, "energy_j"), _power(run)
    shared, of_power = ({name: u * abs(load.value or 0.0) for name, u in relative.items()} for load in (energy, power))
    figures.add(MODEL_UNIT, "energy_total_j", energy := _shared(energy, shared), flags)
    if tokens:
        figures.add(MODEL_UNIT, "energy_per_token_j", energy.scaled(1 / tokens), flags)
    figures.add(MODEL_UNIT, "power_w", _shared(power, of_power), flags)
    for kind in IDLE_PHASES:
        (level_w, active_j), level = _of_idle(kind), idle_level(run, idle, kind)
        figures.add(MODEL_UNIT, level_w, level)
        above, idle_j = _above(run, level, 0.0 if kind == "deep_idle" or steady(run) else Prior.excess_w)
        figures.add(MODEL_UNIT, active_j, _shared(above, {**shared, IDLE: idle_j}), [*flags, *level.flags])
    figures.add(MODEL_UNIT, "counter_ratio", counter_ratio(run, device))
    for metric, column in (("energy_total_j", "energy_j"), ("iteration_time_s", "time_s")):
        _add_spread(run, figures, metric, column)


def _of_idle(kind: str) -> tuple[str, str]:
    """Metrics of a level, and of the energy above it."""
    return f"baseline_{kind}_w", f"energy_active_over_{kind}_j"


def _mean(run: Run, column: str) -> Estimate:
    """Mean of a column per iteration: over windows, or over runs where there are several."""
    return _mean_of(run, *per_iteration(run, column))


def _power(run: Run) -> Estimate:
    """Mean power while the workload runs: energy over time, which vary together."""
    (energy, time), block = together(run, "energy_j", "time_s")
    return _mean_of(run, powers(energy, time) if len(time) else time, block)


def _mean_of(run: Run, values: Floats, block: Ints) -> Estimate:
    if len(values) == 0:
        return Estimate.null(_why_none(run), METHOD)
    if len(runs := by_run(values, block)) > 1:
        return mean_estimate([values.mean() for values in runs], method="runs")
    return two_stage_estimate(values, _first_stage(run, len(values)), METHOD)


def _first_stage(run: Run, n: int) -> int:
    stated = run.settings.get("first_stage")
    return n if stated is None else min(stated, n)


def _shortfall(run: Run) -> list[str]:
    """Flags of windows that are missing: left out, too few, or fewer than the wanted interval asked for."""
    values, block = per_iteration(run, "energy_j")
    measured, wanted = len(of_variant(run, "untouched")), run.settings.get("first_stage")
    target = run.settings.get("target_ci")
    flags = ["windows_left_out"] if 0 < len(values) < measured else []
    if len(np.unique(block)) > 1 or len(values) < 2:
        return flags
    if wanted is not None and measured < wanted:
        flags.append("few_windows")
    if target is not None and len(values) < windows_needed(values[: _first_stage(run, len(values))], target):
        flags.append("target_not_met")
    return flags


def _above(run: Run, level: Estimate, excess_w: float) -> tuple[Estimate, float]:
    """Total less baseline power over the same time, window by window: idle time of a late host cancels.

    Args:
        run: The Run, whose windows have energies.
        level: The baseline, W.
        excess_w: Standard deviation of what it has more between iterations than in the pause in which it was seen.

    Returns:
        The mean with the interval of these differences alone, J; the standard uncertainty of the baseline's share, J.
    """
    (joules, seconds), block = together(run, "energy_j", "time_s")
    if level.value is None:
        return Estimate.null(level.reason or "not_measured", METHOD), 0.0
    idle_j = math.hypot((level.half_width or 0.0) / Z95, excess_w) * float(seconds.mean()) if len(seconds) else 0.0
    return _mean_of(run, joules - level.value * seconds, block), idle_j


def _shared(mean: Estimate, shared: Mapping[str, float]) -> Estimate:
    """A mean over windows with the interval of their spread and of what they share, by source."""
    if mean.value is None:
        return mean
    budget = {BETWEEN if mean.method == "runs" else SPREAD: standard_error(mean)[0], **shared}
    return replace(widened(mean, Z95 * math.hypot(*shared.values())), budget=budget)


def inverse(time: Estimate) -> Estimate:
    """Iterations per second from seconds per iteration."""
    if not time.value:
        return Estimate.null(time.reason or "not_measured", time.method)
    if time.low is None or time.high is None or time.low <= 0:
        return Estimate(1 / time.value, None, None, time.n, time.method)
    return Estimate(1 / time.value, 1 / time.high, 1 / time.low, time.n, time.method)


def _why_none(run: Run) -> str:
    """Why no window has a figure: the commonest reason among them."""
    if len(run.windows) == 0:
        return "not_measured"
    without = run.windows.filter(pc.is_null(run.windows["energy_j"]))["flags"].to_pylist()
    reasons = [flags.split(",")[-1] for flags in without if flags]  # which comes last
    return max(sorted(set(reasons)), key=reasons.count, default="not_measured")


def _add_spread(run: Run, figures: Figures, metric: str, column: str) -> None:
    """Standard deviations in percent of the mean: of windows within a run, and of runs."""
    values, block = per_iteration(run, column)
    share = 100 / float(np.mean(values)) if len(values) else 0.0
    name = metric.rsplit("_", 1)[0]
    if (within := scatter(values, block)) is not None:
        estimate = Estimate(within * share, None, None, len(values), METHOD)
        figures.add(MODEL_UNIT, f"{name}_spread_within_pct", estimate)
    if len(runs := by_run(values, block)) > 1:
        between = Estimate(
            float(np.std([values.mean() for values in runs], ddof=1)) * share, None, None, len(runs), "runs"
        )
        figures.add(MODEL_UNIT, f"{name}_spread_between_pct", between)


DRIFTED = 0.25
"""Difference between idle levels before and after, over their mean, that the heat of a die doesn't explain: simulated
V100s under full load differ by up to 13 %. The interval has half of any difference."""


def settled(run: Run, device: str) -> tuple[NDArray[np.str_], Ints, Ints]:
    """Names, starts and ends of idle phases without the time in which a device settles, each of shape (m,)."""
    record_and_response, phases = readings(run, device), spans_of(run, "phase")
    if record_and_response is None or not len(record_and_response[0]):
        return np.empty(0, str), np.empty(0, np.int64), np.empty(0, np.int64)
    record, response = record_and_response
    settle_ns, last_ns = (round(s * 1e9) for s in (SETTLE_S + response.lasts_s, response.delay_s + response.middle_s))
    shown = np.clip(record.time_ns[[0, -1]] - last_ns, 0, None)
    rows = [
        (name, *np.clip([start + settle_ns, end], *shown))
        for name in itertools.chain(*IDLE_PHASES.values())
        for start, end in zip(*phases.named(name).edges_ns, strict=True)
    ]
    rows = [(name, start, end) for name, start, end in rows if end > start]
    names, start, end = zip(*rows, strict=True) if rows else ([], [], [])
    return np.array(names, str), np.array(start, np.int64), np.array(end, np.int64)


Idle = tuple[SpanEnergies, Floats, NDArray[np.str_]]
"""Energies of the settled parts of all idle phases, with the seconds and the phase of each, shape (m,)."""


def idle_energies(run: Run, device: str) -> Idle:
    """Energies of a device in idle phases, without the time in which it settles."""
    names, start, end = settled(run, device)
    return energies(run, device, start, end), (end - start) / 1e9, names


def idle_level(run: Run, idle: Idle, kind: str) -> Estimate:
    """Power in watts of a "deep_idle" (no context on the GPU) or "context_idle".

    Returns:
        The mean over the phases of that kind. Half of the difference between them goes into the interval,
        since the level in between is unobserved. A deep idle that couldn't be seen is the stored one,
        flagged "stored", or null.
    """
    spans, seconds, phase = idle
    mine = np.isin(phase, IDLE_PHASES[kind]) & spans.has_energy
    if not mine.any():
        return _stored(run) if kind == "deep_idle" else Estimate.null("not_measured", "idle")
    # Each phase counts alike, whatever its pauses are
    per_s = np.stack([mine * (phase == name) / seconds for name in np.unique(phase[mine])])
    per_s /= (per_s > 0).sum(axis=1, keepdims=True)
    value, low, high = (float(end[0]) for end in spans.sums(per_s.mean(axis=0)))
    apart = float(np.ptp(spans.sums(per_s)[0])) / 2
    half = math.hypot((high - low) / 2, apart)
    codes = {"baseline_drifted": 2 * apart > DRIFTED * value}
    codes[IMPLAUSIBLE] = any(IMPLAUSIBLE in spans.flags[i] for i in np.flatnonzero(mine))
    flags = tuple(code for code, holds in codes.items() if holds)
    return Estimate(value, value - half, value + half, int(mine.sum()), "idle", flags=flags)


def _stored(run: Run) -> Estimate:
    stored = run.stored.get("deep_idle")
    if stored is None:
        return Estimate.null(run.stored.get("deep_idle_reason", "not_measured"), "idle")
    return replace(Estimate.from_dict(stored), method="stored", flags=("stored",), budget={})
