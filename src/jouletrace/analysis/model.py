"""Figures of the whole model: latency, power, energy, and the idle levels they are compared with."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis import aliasing, latency
from jouletrace.analysis.counter import counter_ratio
from jouletrace.analysis.figures import Figures, Sources
from jouletrace.analysis.power import METHOD, RESPONSE, join, no_power_reason, power_record
from jouletrace.analysis.windows import fill, of_variant, per_iteration, scatter, together
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.estimate import widened
from jouletrace.run.readings import IMPLAUSIBLE
from jouletrace.run.spans import spans_of
from jouletrace.sensor.baseline import quiet_level
from jouletrace.sensor.windows.energy import WindowEnergies
from jouletrace.stats.interval import Z95, mean_estimate, standard_error
from jouletrace.stats.stopping import two_stage_estimate, windows_needed

Floats = NDArray[np.float64]

SPREAD = "spread of windows"
IDLE = "idle power"
"""Sources of the uncertainty of a mean over windows, beside ``RESPONSE``."""

SETTLE_S = 0.3
"""Left out at the start of an idle phase: the GPU takes about 80 ms to fall to idle, clocks longer."""


IDLE_PHASES = {"deep_idle": ("deep idle",), "context_idle": ("context idle before", "context idle after")}


def add_model(run: Run, figures: Figures) -> WindowEnergies | None:
    """Add the model's row: everything that a profile without further detail states.

    Returns:
        The energies of all windows, in the order of the table; None without a power record.
    """
    name = run.workload.get("name", "model")
    figures.unit(MODEL_UNIT, "model", name, count=1)
    energies = fill(run)
    figures.add(MODEL_UNIT, "latency_s", latency.median(run))
    time = _mean(run, "time_s")
    if len(run.windows):
        figures.add(MODEL_UNIT, "iteration_time_s", time)
    items = run.workload.get("items") or 1
    pace = time if time.value else latency.mean(run)
    figures.add(MODEL_UNIT, "throughput_per_s", inverse(pace).scaled(items))
    device = run.devices[0].id if run.devices else ""
    if energies is None:
        _without_power(run, figures, no_power_reason(run, device))
        return None
    flags = [*join(energies.flags), *_shortfall(run), *aliasing.of_whole(run, device)]
    own, shared = _mean(run, "energy_j"), shared_error(energies)
    total = with_model_error(own, energies)
    figures.add(MODEL_UNIT, "energy_total_j", total, flags)
    shared_j = shared * abs(total.value or 0.0)
    _add_sources(figures, "energy_total_j", own, {RESPONSE: shared_j})
    power = _power(run)
    figures.add(MODEL_UNIT, "power_w", with_model_error(power, energies), flags)
    _add_sources(figures, "power_w", power, {RESPONSE: shared * abs(power.value or 0.0)})
    for kind in ("context_idle", "deep_idle"):
        level, level_flags = idle_level(run, device, kind)
        figures.add(MODEL_UNIT, f"baseline_{kind}_w", level, level_flags)
        metric = f"energy_active_over_{kind}_j"
        above, idle_j = _above(run, level)
        active = widened(widened(above, Z95 * shared_j), Z95 * idle_j)
        figures.add(MODEL_UNIT, metric, active, [*flags, *level_flags])
        _add_sources(figures, metric, above, {RESPONSE: shared_j, IDLE: idle_j})
    figures.add(MODEL_UNIT, "counter_ratio", counter_ratio(run, device))
    for metric, column in (("energy_total_j", "energy_j"), ("iteration_time_s", "time_s")):
        _add_spread(run, figures, metric, column)
    return energies


def _mean(run: Run, column: str) -> Estimate:
    """Mean of a column per iteration: over windows, or over runs where there are several."""
    return _mean_of(run, *per_iteration(run, column))


def _power(run: Run) -> Estimate:
    """Mean power while the workload runs: energy over time of each window."""
    (energy, time), block = together(run, "energy_j", "time_s")
    return _mean_of(run, energy / time, block)


def _mean_of(run: Run, values: Floats, block: NDArray[np.int64]) -> Estimate:
    if len(values) == 0:
        return Estimate.null(_why_none(run), METHOD)
    blocks = np.unique(block)
    if len(blocks) > 1:
        return mean_estimate(np.array([values[block == b].mean() for b in blocks]), method="runs")
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


def with_model_error(estimate: Estimate, energies: WindowEnergies) -> Estimate:
    """Widen by what all windows share: what isn't known of the sensor's response."""
    return widened(estimate, Z95 * shared_error(energies) * abs(estimate.value or 0.0))


def shared_error(energies: WindowEnergies) -> float:
    """Relative standard uncertainty that all windows share; 0 without a window."""
    known = np.isfinite(energies.energy_j) & (energies.energy_j != 0)
    return float(np.mean(energies.sd_model_j[known] / np.abs(energies.energy_j[known]))) if known.any() else 0.0


def _above(run: Run, level: Estimate) -> tuple[Estimate, float]:
    """Total less baseline power over the same time, window by window: idle time of a late host cancels.

    Args:
        run: The Run, whose windows have energies.
        level: The baseline, W.

    Returns:
        The mean with the interval of these differences alone, J; the standard uncertainty of the baseline's share, J.
    """
    (joules, seconds), block = together(run, "energy_j", "time_s")
    if level.value is None:
        return Estimate.null(level.reason or "not_measured", METHOD), 0.0
    idle_j = (level.half_width or 0.0) / Z95 * float(seconds.mean()) if len(seconds) else 0.0
    return _mean_of(run, joules - level.value * seconds, block), idle_j


def _add_sources(figures: Figures, metric: str, own: Estimate, shared: Sources) -> None:
    """What the interval of a figure consists of: the spread of windows, and what they share."""
    if own.value is not None:
        figures.sources[MODEL_UNIT, metric] = lambda: {SPREAD: standard_error(own)[0], **shared}


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
    codes = [code for flags in run.windows["flags"].to_pylist() if flags for code in flags.split(",")]
    return max(set(codes), key=codes.count) if codes else "not_measured"


def _without_power(run: Run, figures: Figures, reason: str) -> None:
    if len(run.windows) == 0 and run.devices and power_record(run, run.devices[0].id) is not None:
        reason = "not_measured"
    for metric in (
        "energy_total_j",
        "power_w",
        "baseline_context_idle_w",
        "energy_active_over_context_idle_j",
        "baseline_deep_idle_w",
        "energy_active_over_deep_idle_j",
        "counter_ratio",
    ):
        figures.add(MODEL_UNIT, metric, Estimate.null(reason, METHOD))


def _add_spread(run: Run, figures: Figures, metric: str, column: str) -> None:
    """Standard deviations in percent of the mean: of windows within a run, and of runs."""
    values, block = per_iteration(run, column)
    share = 100 / float(np.mean(values)) if len(values) else 0.0
    name = metric.rsplit("_", 1)[0]
    if (within := scatter(values, block)) is not None:
        estimate = Estimate(within * share, None, None, len(values), METHOD)
        figures.add(MODEL_UNIT, f"{name}_spread_within_pct", estimate)
    if len(blocks := np.unique(block)) > 1:
        means = [float(values[block == b].mean()) for b in blocks]
        between = Estimate(float(np.std(means, ddof=1)) * share, None, None, len(blocks), "runs")
        figures.add(MODEL_UNIT, f"{name}_spread_between_pct", between)


def idle_level(run: Run, device: str, kind: str) -> tuple[Estimate, list[str]]:
    """Power in watts of a "deep_idle" (no context on the GPU) or "context_idle", with its flags.

    Returns:
        The mean over the phases of that kind. Half of what they differ by goes into the interval,
        since the level in between is unobserved. A deep idle that couldn't be seen is the stored one,
        flagged "stored", or null.
    """
    found = power_record(run, device)
    if found is None:
        return Estimate.null("no_power_sensor", "idle"), []
    record, response = found
    settle_ns = int((SETTLE_S + response.memory_s) * 1e9)
    levels: list[Estimate] = []
    by_phase: list[float] = []
    phases = spans_of(run, "phase")
    for name in IDLE_PHASES[kind]:
        of_name = [
            quiet_level(record.value[(record.time_ns >= start + settle_ns) & (record.time_ns <= end)], method="idle")
            for start, end in zip(*phases.named(name).edges_ns, strict=True)
        ]
        seen = [level for level in of_name if level.value is not None]
        levels += seen
        if seen:
            by_phase.append(sum(level.value or 0.0 for level in seen) / len(seen))
    if not levels:
        return _stored(run) if kind == "deep_idle" else (Estimate.null("not_measured", "idle"), [])
    value = sum(by_phase) / len(by_phase)
    statistical = math.sqrt(sum((level.half_width or 0.0) ** 2 for level in levels)) / len(levels)
    apart = (max(by_phase) - min(by_phase)) / 2
    half = math.hypot(statistical, apart)
    flags = ["baseline_drifted"] if 2 * apart > 0.05 * value else []
    if any(record.implausible(*phases.named(name).edges_ns).any() for name in IDLE_PHASES[kind]):
        flags.append(IMPLAUSIBLE)
    return Estimate(value, value - half, value + half, sum(level.n for level in levels), "idle"), flags


def _stored(run: Run) -> tuple[Estimate, list[str]]:
    stored = run.stored.get("deep_idle")
    if stored is None:
        return Estimate.null(run.stored.get("deep_idle_reason", "not_measured"), "idle"), []
    level = Estimate.from_dict(stored)
    return Estimate(level.value, level.low, level.high, level.n, "stored", level.reason), ["stored"]
