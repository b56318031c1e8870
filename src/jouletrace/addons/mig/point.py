"""One measurement: a job on one slice or several at once, with the board's power split among them.

Idle before and after; where there are several slices, each alone for a moment, which tells the split what
each of them draws; then all together, which is what is reported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.addons.mig.bench import Bench, Served
from jouletrace.addons.mig.jobs import Job
from jouletrace.addons.mig.split import METHOD, fit, split
from jouletrace.analysis.power import energies, tail_s
from jouletrace.recording.session import Session
from jouletrace.run import Estimate, Run
from jouletrace.run.channels import POWER

ACTIVITIES = ("graphics_active", "sm_active", "sm_occupancy", "pipe_tensor_active", "memory_active")
LEAST_P95, LEAST_P99 = 20, 100
"""Requests below which a high percentile is the largest one of a few, and not given."""


@dataclass(frozen=True)
class PointSettings:
    """How long a measurement lasts.

    Attributes:
        seconds: Of the stretch that is reported.
        solo_s: Of each slice alone, where there are several.
        warmup_s: Before anything is measured.
        idle_s: Of each idle stretch.
        share_idle: Share idle power by compute slices, or show it apart.
    """

    seconds: float = 10.0
    solo_s: float = 4.0
    warmup_s: float = 2.0
    idle_s: float = 2.0
    share_idle: bool = True


@dataclass(frozen=True)
class Stretch:
    """What ran when: the slices that were at work, and what they served."""

    slots: tuple[int, ...]
    served: tuple[Served, ...]

    @property
    def window(self) -> tuple[int, int]:
        """The time in which all of them were at work."""
        return max(one.start_ns for one in self.served), min(one.end_ns for one in self.served)


def measure_point(
    bench: Bench, jobs: Sequence[Job], settings: PointSettings, *, folder: Path | None = None
) -> list[dict[str, Any]]:
    """Run a job on each of the bench's slices at once; one row a slice.

    Args:
        bench: The slices; there are as many as jobs.
        jobs: One a slice.
        settings: How long.
        folder: Where the recorded Run goes; None keeps none.

    Returns:
        Rows with ``status`` "done"; figures that can't be had are None with a reason.

    Raises:
        JobFailedError: If a job can't be run: nothing was measured then.
    """
    slots = range(len(jobs))
    facts = {"name": ", ".join(map(str, jobs)), "profiles": [one.profile.name for one in bench.slices]}
    with Session("monitor", [bench.board], folder=folder, workload=facts) as session:
        bench.unload()
        items = [bench.load(slot, job) for slot, job in zip(slots, jobs, strict=True)]
        bench.activity.start()
        bench.run(slots, settings.warmup_s)
        idle = [_idle(session, settings.idle_s)]
        stretches = []
        if len(jobs) > 1:
            for slot in slots:
                with session.phase(f"slice {slot} alone"):
                    stretches.append(Stretch((slot,), tuple(bench.run([slot], settings.solo_s))))
        with session.phase("all together"):
            stretches.append(Stretch(tuple(slots), tuple(bench.run(slots, settings.seconds))))
        memory = [bench.memory_bytes(slot) for slot in slots]
        idle.append(_idle(session, settings.idle_s))
        power = next((channel for channel in session.recorder.channels if channel.name == POWER), None)
        if power is not None:
            session.recorder.wait_until(session.clock.time_ns() + round(tail_s(power) * 1e9))
        run = session.finish()
    return _rows(run, bench, jobs, items, idle, stretches, memory, settings)


def latency_figures(seconds: NDArray[np.float64]) -> dict[str, float | None]:
    """Mean, standard deviation and percentiles of latencies in seconds; None where there are too few for one."""
    n = len(seconds)
    return {
        "latency_mean_s": float(seconds.mean()) if n else None,
        "latency_std_s": float(seconds.std(ddof=1)) if n > 1 else None,
        "latency_p50_s": float(np.median(seconds)) if n else None,
        "latency_p95_s": float(np.quantile(seconds, 0.95)) if n >= LEAST_P95 else None,
        "latency_p99_s": float(np.quantile(seconds, 0.99)) if n >= LEAST_P99 else None,
        "requests": n,
    }


def _idle(session: Session, seconds: float) -> tuple[int, int]:
    """Contexts alive, nothing running; the beginning is left out, in which the board settles."""
    settle_s = min(0.5, seconds / 3)
    with session.phase("idle"):
        session.clock.sleep(settle_s)
        start_ns = session.clock.time_ns()
        session.clock.sleep(seconds - settle_s)
        return start_ns, session.clock.time_ns()


def _rows(
    run: Run,
    bench: Bench,
    jobs: Sequence[Job],
    items: Sequence[int],
    idle: Sequence[tuple[int, int]],
    stretches: Sequence[Stretch],
    memory: Sequence[float | None],
    settings: PointSettings,
) -> list[dict[str, Any]]:
    board = bench.board.info.id
    last = stretches[-1]
    powers, reason = _powers(run, board, [*idle, *(one.window for one in stretches)])
    idle_w = _mean([one.value for one in powers[: len(idle)]])
    board_w = powers[-1]
    activity = np.array([[_active(bench, slot, *one.window) for slot in range(len(jobs))] for one in stretches])
    for seen, one in zip(activity, stretches, strict=True):
        seen[[slot not in one.slots for slot in range(len(jobs))]] = 0.0
    shares = [one.profile.slices for one in bench.slices]
    parts: list[Estimate] = [Estimate.null(reason or "no_power_sensor", METHOD)] * len(jobs)
    idle_parts: list[float] | None = None
    unattributed_w = None
    if idle_w is not None and board_w.value is not None:
        model = fit([one.value or np.nan for one in powers[len(idle) :]], idle_w, activity, shares)
        whole = max(bench.slices[0].board_slices, sum(shares))
        found = split(model, board_w, idle_w, activity[-1], share_idle=settings.share_idle, whole=whole)
        parts, idle_parts, unattributed_w = found.slices, found.idle, found.unattributed_w
    rows = []
    for slot, (job, served) in enumerate(zip(jobs, last.served, strict=True)):
        seconds = (served.end_ns - served.start_ns) / 1e9
        per_s = len(served.latency_s) / seconds if seconds > 0 else None
        samples_per_s = per_s * items[slot] if per_s else None
        active, shared = parts[slot], idle_parts[slot] if idle_parts is not None else None
        total = _shifted(active, shared)
        row: dict[str, Any] = {
            "profile": bench.slices[slot].profile.name,
            "together": len(jobs),
            "slot": slot,
            **job.to_dict(),
            "status": "done",
            "reason": None,
            "detail": "",
            "device": bench.slices[slot].uuid,
            **latency_figures(served.latency_s),
            "requests_per_s": per_s,
            "samples_per_s": samples_per_s,
            "fb_used_bytes": memory[slot],
            **{name: bench.activity.mean(bench.slices[slot].uuid, name, *last.window) for name in ACTIVITIES},
            "board_power_w": board_w.value,
            "idle_power_w": idle_w,
            "unattributed_w": unattributed_w,
            **_spread("power_active_w", active),
            **_spread("power_w", total),
            **_spread("energy_active_per_sample_j", _per(active, samples_per_s)),
            **_spread("energy_per_sample_j", _per(total, samples_per_s)),
            "power_reason": active.reason,
            "flags": ",".join([METHOD, *bench.activity.flags()]),
            "latency_quantiles_s": np.quantile(served.latency_s, np.linspace(0, 1, 101)).tolist(),
        }
        rows.append(row)
    return rows


def _powers(run: Run, board: str, windows: Sequence[tuple[int, int]]) -> tuple[list[Estimate], str | None]:
    """Mean power of the board in each window, and why there is none."""
    start, end = np.array(windows, np.int64).T
    found = energies(run, board, start, end)
    if found is None:
        return [Estimate.null("no_power_sensor", "windows")] * len(windows), "no_power_sensor"
    powers: list[Estimate] = []
    for i, (first, last) in enumerate(windows):
        why = found.reason[i]
        if why is not None or not math.isfinite(float(found.energy_j[i])):
            powers.append(Estimate.null(why or "not_finite", "windows"))
            continue
        energy = Estimate(float(found.energy_j[i]), float(found.low_j[i]), float(found.high_j[i]), 1, "windows")
        powers.append(energy.scaled(1e9 / (last - first)))
    return powers, next((one.reason for one in powers if one.reason is not None), None)


def _active(bench: Bench, slot: int, start_ns: int, end_ns: int) -> float:
    value = bench.activity.mean(bench.slices[slot].uuid, "graphics_active", start_ns, end_ns)
    return math.nan if value is None else value


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _shifted(estimate: Estimate, by: float | None) -> Estimate:
    if estimate.value is None or by is None:
        return estimate
    low = None if estimate.low is None else estimate.low + by
    high = None if estimate.high is None else estimate.high + by
    return Estimate(estimate.value + by, low, high, estimate.n, estimate.method)


def _per(estimate: Estimate, rate: float | None) -> Estimate:
    return estimate.scaled(1 / rate) if rate else Estimate.null(estimate.reason or "nothing_served", estimate.method)


def _spread(name: str, estimate: Estimate) -> dict[str, float | None]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
