"""One measurement: a job on one slice or on several at once, with the GPU's power split among them.

It has idle time before and after. With several slices, each first runs alone for a moment, which shows the split the
power of each; then all run together, which gives the reported figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from jouletrace.analysis.power import tail_s
from jouletrace.arrays import Floats
from jouletrace.profiler.passes import power_channel
from jouletrace.recording.session import Session
from jouletrace.run import Estimate, Run
from jouletrace.run.forms import WorkloadFacts
from jouletrace.wings.mig.bench import Bench
from jouletrace.wings.mig.jobs import Job, Served
from jouletrace.wings.mig.split import METHOD, divided, factors_alone, mean_powers, shifted

_ACTIVITIES = ("graphics_active", "sm_active", "sm_occupancy", "pipe_tensor_active", "memory_active")
_LEAST_P95, _LEAST_P99 = 20, 100
"""Least number of requests for a high percentile, which would otherwise be the largest of a few values."""


@dataclass(frozen=True)
class PointSettings:
    """Durations in seconds: of the reported segment, of each of several slices alone, of warm-up and idle segments."""

    seconds: float = 10.0
    solo_s: float = 4.0
    warmup_s: float = 2.0
    idle_s: float = 2.0


@dataclass(frozen=True)
class Stretch:
    """A segment of work: the active slices, and the requests that they served."""

    slots: tuple[int, ...]
    served: tuple[Served, ...]

    @property
    def window(self) -> tuple[int, int]:
        """The time in which all of them were active."""
        return max(one.start_ns for one in self.served), min(one.end_ns for one in self.served)


def measure_point(bench: Bench, jobs: Sequence[Job], settings: PointSettings) -> list[dict[str, Any]]:
    """Run a job on each of the bench's slices at once; returns one row per slice, with None for unavailable figures.

    Raises:
        JobFailedError: If a job can't be run: nothing is measured then.
    """
    slots = range(len(jobs))
    facts: WorkloadFacts = {"name": ", ".join(map(str, jobs)), "profiles": [one.profile.name for one in bench.slices]}
    with Session("monitor", [bench.board], workload=facts) as session:
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
        power = power_channel(session)
        if power is not None:
            session.recorder.wait_until(session.clock.time_ns() + round(tail_s(power) * 1e9))
        run = session.finish()
    last = stretches[-1]
    idle_w, board, parts = _split(run, bench, idle, stretches)
    rates = [len(one.latency_s) * 1e9 / (one.end_ns - one.start_ns) for one in last.served]
    all_per_s = sum(per_s * count for per_s, count in zip(rates, items, strict=True))
    whole = max(bench.slices[0].board_slices, sum(one.profile.slices for one in bench.slices))
    rest = None
    if idle_w is not None and board.value is not None:
        rest = board.value - idle_w - sum(one.value or 0.0 for one in parts)
    rows = []
    for slot, (job, served, own) in enumerate(zip(jobs, last.served, bench.slices, strict=True)):
        per_s = rates[slot]
        samples_per_s = per_s * items[slot]
        active = parts[slot]
        total = shifted(active, (idle_w or 0.0) * own.profile.slices / whole)
        row: dict[str, Any] = {
            "profile": own.profile.name,
            "together": len(jobs),
            "slot": slot,
            **asdict(job),
            "status": "done",
            "detail": "",
            "device": own.uuid,
            **latency_figures(served.latency_s),
            "requests_per_s": per_s,
            "samples_per_s": samples_per_s,
            "fb_used_bytes": memory[slot],
            **{name: bench.activity.mean(own.uuid, name, *last.window) for name in _ACTIVITIES},
            "board_power_w": board.value,
            "idle_power_w": idle_w,
            "unattributed_w": rest,
            "power_reason": active.reason,
            "flags": ",".join([METHOD, *bench.activity.flags()]),
            "latency_quantiles_s": np.quantile(served.latency_s, np.linspace(0, 1, 101)).tolist(),
        }
        for name, estimate in (
            ("power_active_w", active),
            ("power_w", total),
            ("energy_active_per_sample_j", active.scaled(1 / samples_per_s)),
            ("energy_per_sample_j", total.scaled(1 / samples_per_s)),
            ("board_energy_per_sample_j", board.scaled(1 / all_per_s)),
        ):
            row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
        rows.append(row)
    return rows


def latency_figures(seconds: Floats) -> dict[str, float | None]:
    """Mean, standard deviation and percentiles of latencies in seconds; None where requests are too few."""
    n = len(seconds)
    return {
        "latency_mean_s": float(seconds.mean()) if n else None,
        "latency_std_s": float(seconds.std(ddof=1)) if n > 1 else None,
        "latency_p50_s": float(np.median(seconds)) if n else None,
        "latency_p95_s": float(np.quantile(seconds, 0.95)) if n >= _LEAST_P95 else None,
        "latency_p99_s": float(np.quantile(seconds, 0.99)) if n >= _LEAST_P99 else None,
        "requests": n,
    }


def _idle(session: Session, seconds: float) -> tuple[int, int]:
    """Wait in idle with contexts alive; returns the time without its beginning, in which the GPU settles."""
    settle_s = min(0.5, seconds / 3)
    with session.phase("idle"):
        session.clock.sleep(settle_s)
        start_ns = session.clock.time_ns()
        session.clock.sleep(seconds - settle_s)
        return start_ns, session.clock.time_ns()


def _split(
    run: Run, bench: Bench, idle: Sequence[tuple[int, int]], stretches: Sequence[Stretch]
) -> tuple[float | None, Estimate, list[Estimate]]:
    """Idle power, power of the GPU in the last segment, and of each slice above idle, null where it is unknown."""
    windows = [one.window for one in stretches]
    found = mean_powers(run, [*idle, *windows])
    resting, board = [one.value for one in found[: len(idle)] if one.value is not None], found[-1]
    unknown = next((one.reason for one in found[len(idle) :] if one.reason is not None), None)
    if unknown is not None or not resting:
        null = Estimate.null(unknown or found[0].reason or "no_power_sensor", METHOD)
        return sum(resting) / len(resting) if resting else None, board, [null] * len(bench.slices)
    idle_w = sum(resting) / len(resting)
    above = [shifted(one, -idle_w) for one in found[len(idle) :]]
    alone = np.array([_active(bench, one, one.slots[0]) for one in stretches[:-1] or stretches])
    at_once = np.array([_active(bench, stretches[-1], slot) for slot in range(len(bench.slices))])
    return idle_w, board, divided(factors_alone(above[: len(alone)], alone, above[-1], at_once), above[-1], at_once)


def _active(bench: Bench, stretch: Stretch, slot: int) -> float:
    """Activity of a slice in a segment; NaN where it is unknown."""
    value = bench.activity.mean(bench.slices[slot].uuid, "graphics_active", *stretch.window)
    return math.nan if value is None else value
