"""Idle levels: what the GPU draws when nothing runs, without and with a context."""

from __future__ import annotations

import math

from jouletrace.analysis.power import power_record
from jouletrace.analysis.spans import phase_edges
from jouletrace.run import Estimate, Run
from jouletrace.sensor.baseline import quiet_level
from jouletrace.sensor.record import IMPLAUSIBLE

SETTLE_S = 0.3
"""Left out at the start of an idle phase: the GPU takes about 80 ms to fall to idle, clocks longer."""

DRIFT = 0.05
"""Levels before and after that differ by more than this, relatively, are flagged."""

PHASES = {"deep_idle": ("deep idle",), "context_idle": ("context idle before", "context idle after")}


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
    for name in PHASES[kind]:
        of_name = [
            quiet_level(record.power_w[(record.time_ns >= start + settle_ns) & (record.time_ns <= end)], method="idle")
            for start, end in zip(*phase_edges(run, name), strict=True)
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
    flags = ["baseline_drifted"] if 2 * apart > DRIFT * value else []
    if any(record.implausible(*phase_edges(run, name)).any() for name in PHASES[kind]):
        flags.append(IMPLAUSIBLE)
    return Estimate(value, value - half, value + half, sum(level.n for level in levels), "idle"), flags


def _stored(run: Run) -> tuple[Estimate, list[str]]:
    stored = run.stored.get("deep_idle")
    if stored is None:
        return Estimate.null(run.stored.get("deep_idle_reason", "not_measured"), "idle"), []
    level = Estimate.from_dict(stored)
    return Estimate(level.value, level.low, level.high, level.n, "stored", level.reason), ["stored"]
