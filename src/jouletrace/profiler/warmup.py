"""Warm-up: run until latency and power have settled, or say that they have not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from jouletrace.profiler.progress import Progress
from jouletrace.profiler.session import Session
from jouletrace.steps.base import Step

BLOCK_S = 0.25
"""Aimed length of one block of iterations."""

SETTLED = 0.01
"""Relative change between the last two stretches below which a quantity counts as settled."""


@dataclass(frozen=True)
class WarmUp:
    """How a warm-up went.

    Attributes:
        iteration_s: Seconds an iteration took at the end.
        latency_settled: Whether iteration times had stopped changing.
        power_settled: Whether power had; None where power isn't recorded.
        seconds: How long it took.
    """

    iteration_s: float
    latency_settled: bool
    power_settled: bool | None
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """For ``Run.workload``."""
        return asdict(self)


def warm_up(session: Session, step: Step, limit_s: float, progress: Progress) -> WarmUp:
    """Replay ``step`` until it has settled, ``limit_s`` seconds at most.

    The first iterations (lazy initialisation, autotuning, compilation) don't count towards the limit.
    """
    step.replay(1)
    iteration_s = max(step.replay(1).seconds, 1e-7)
    start_ns = session.clock.time_ns()
    times: list[float] = []
    latency_settled = False
    power_settled: bool | None = None
    elapsed = 0.0
    while elapsed < limit_s:
        n = max(1, round(min(BLOCK_S, limit_s) / iteration_s))
        block = step.replay(n)
        iteration_s = max(block.seconds / n, 1e-7)
        times.append(iteration_s)
        progress.advance(block.seconds)
        elapsed = (session.clock.time_ns() - start_ns) / 1e9
        latency_settled = _settled(times[-8:])
        power_settled = _power_settled(session, start_ns)
        if latency_settled and power_settled is not False and elapsed >= min(2.5, limit_s):
            break
    return WarmUp(iteration_s, latency_settled, power_settled, elapsed)


def _settled(values: list[float]) -> bool:
    """Whether the second half differs from the first by less than ``SETTLED`` or than its own noise."""
    if len(values) < 8:
        return False
    first, second = np.array(values[:4]), np.array(values[4:])
    noise = 2 * float(np.hypot(np.std(first, ddof=1), np.std(second, ddof=1))) / 2
    change = abs(float(np.median(second) - np.median(first)))
    return change <= max(SETTLED * float(np.median(second)), noise)


def _power_settled(session: Session, start_ns: int) -> bool | None:
    """Whether the last second drew what the second before drew; None without a power record."""
    if not any(channel.name == "power_w" for channel in session.recorder.channels):
        return None
    stamps, watts = session.power(start_ns)
    if len(stamps) == 0:
        return False
    latest = int(stamps[-1])
    last = watts[stamps > latest - 1_000_000_000]
    before = watts[(stamps <= latest - 1_000_000_000) & (stamps > latest - 2_000_000_000)]
    if latest - start_ns < 2_000_000_000 or len(last) < 5 or len(before) < 5:
        return False
    return abs(float(np.mean(last) - np.mean(before))) <= 1.5 * SETTLED * float(np.mean(last))
