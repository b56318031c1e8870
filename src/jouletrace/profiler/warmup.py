"""Warm-up: run until latency and power have settled, or warn that they have not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from jouletrace.execution.steps.base import Step
from jouletrace.profiler.progress import Progress
from jouletrace.recording.session import Session
from jouletrace.run.channels import POWER

BLOCK_S = 0.25
"""Target length of one block of iterations, in seconds."""

LEAST_S = 2.5
"""Shortest warm-up in seconds, if the limit allows it: dies warm up slowly."""

SETTLED = 0.01
"""Relative change between the last two intervals below which a quantity counts as settled."""


@dataclass(frozen=True)
class WarmUp:
    """The result of a warm-up.

    Attributes:
        iteration_s: Seconds per iteration at the end.
        latency_settled: Whether iteration times had settled; None if there were too few to decide.
        power_settled: Whether power had settled; None if the record is too short to decide, or there is none.
        seconds: Duration of the warm-up.
    """

    iteration_s: float
    latency_settled: bool | None
    power_settled: bool | None
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The result for ``Run.workload``."""
        return asdict(self)


def warm_up(session: Session, step: Step, limit_s: float, progress: Progress) -> WarmUp:
    """Replay ``step`` until it has settled, ``limit_s`` seconds at most; warns if it has not.

    The first iterations (lazy initialisation, autotuning, compilation) don't count towards the limit.
    """
    records_power = any(channel.name == POWER for channel in session.recorder.channels)
    step.replay(1)
    iteration_s = max(step.replay(1).seconds, 1e-7)
    start_ns = session.clock.time_ns()
    times: list[float] = []
    latency_settled: bool | None = None
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
        power_settled = _power_settled(session, start_ns) if records_power else None
        if latency_settled and (power_settled or not records_power) and elapsed >= min(LEAST_S, limit_s):
            break
    found = WarmUp(iteration_s, latency_settled, power_settled, elapsed)
    _warn(session, "latency", latency_settled, elapsed)
    if records_power:
        _warn(session, "power", power_settled, elapsed)
    return found


def _warn(session: Session, quantity: str, settled: bool | None, seconds: float) -> None:
    if settled is None:
        text = f"{seconds:.1f} s of warm-up were too short to determine whether {quantity} had settled"
        session.run.warn("not_settled", text, "warm-up")
    elif not settled:
        session.run.warn("not_settled", f"{quantity} was still changing after {seconds:.1f} s of warm-up", "warm-up")


def _settled(values: list[float]) -> bool | None:
    """Whether the second half differs from the first by less than ``SETTLED`` or than its own noise.

    None for fewer than eight values.
    """
    if len(values) < 8:
        return None
    first, second = np.array(values[:4]), np.array(values[4:])
    # Twice the standard error of the difference of two means of four values: its 95 % limits.
    noise = 2 * float(np.hypot(np.std(first, ddof=1), np.std(second, ddof=1))) / 2
    change = abs(float(np.median(second) - np.median(first)))
    return change <= max(SETTLED * float(np.median(second)), noise)


def _power_settled(session: Session, start_ns: int) -> bool | None:
    """Whether the last two seconds had the same mean power; None if the record is shorter."""
    stamps, watts = session.power(start_ns)
    if len(stamps) == 0:
        return None
    latest = int(stamps[-1])
    last = watts[stamps > latest - 1_000_000_000]
    before = watts[(stamps <= latest - 1_000_000_000) & (stamps > latest - 2_000_000_000)]
    if latest - start_ns < 2_000_000_000 or len(last) < 5 or len(before) < 5:
        return None
    return abs(float(np.mean(last) - np.mean(before))) <= 1.5 * SETTLED * float(np.mean(last))
