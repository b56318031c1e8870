"""The passes of a profile that generates tokens: latencies, and windows of the whole and of its pieces.

A round is one window of the whole and one of each piece, in random order. Drift between rounds affects all of them
alike, so that the sum of the pieces can be compared with the whole round by round.

A window lies in the middle of a longer run. It therefore begins and ends at the same point of an iteration, and the
load continues unchanged beyond both ends: prefill, at the start of an iteration, draws far more than the load before
it, and a slow sensor would record that step on the wrong side of the window's start. Each window begins after a random
pause of up to one period of the sensor: otherwise iterations synchronous with the sensor would always be sampled at the
same phase (aliasing).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jouletrace.analysis.generation import FIRST_CONTEXT, FIRST_TOKEN, FIRST_UNIT
from jouletrace.analysis.iterations import SEGMENT
from jouletrace.analysis.latency import LANE
from jouletrace.execution.steps.base import Step, counted_replay
from jouletrace.profiler import passes
from jouletrace.profiler.progress import Progress
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.recording.session import Session
from jouletrace.run.forms import SegmentFacts
from jouletrace.workloads.base import Segment as Piece

if TYPE_CHECKING:
    from jouletrace.execution.steps.registry import GenerationSteps  # imports torch

MOST_S, MOST_BESIDE_S = 40.0, 15.0
"""Default limit of the rounds in seconds; and the limit if kernels are recorded too."""

TIME_WINDOW_S = 0.15
"""Length of windows in seconds without a power sensor."""

WINDOW_S = 0.5
"""Least length of windows with one: prefill and decode differ by a step at each end."""

MARGIN_S = 0.1
"""Least time in seconds that each piece runs before its window, and after it, to have a steady power in it."""

LEAST_LATENCIES = 6
"""Fewest iterations whose median has an interval."""


@dataclass(frozen=True)
class _Part:
    """A part of the load with one window per round.

    Attributes:
        variant, unit: Columns of its windows.
        step: Runs the part.
        replays: Iterations of a window.
        beyond: Iterations before and after the window, in total.
        seconds: Duration of all these iterations.
    """

    variant: str
    unit: int | None
    step: Step
    replays: int
    beyond: int
    seconds: float


def measure(
    session: Session,
    step: Step,
    make_pieces: Callable[[], GenerationSteps],
    settings: ProfileSettings,
    iteration_s: float,
    progress: Progress,
    between: Callable[[], object] | None = None,
) -> None:
    """Time iterations and first tokens individually, then measure rounds.

    ``step`` runs the whole load and is warmed up; one of its iterations takes ``iteration_s`` seconds. ``between`` as
    in ``passes.energy``.
    """
    pieces = make_pieces()
    try:
        _describe(session, pieces)
        _latencies(session, step, LANE, iteration_s, settings, progress)
        _latencies(session, pieces.first_token, FIRST_TOKEN, _seconds(pieces.first_token), settings, progress)
        _rounds(session, _parts(session, step, pieces, settings, iteration_s), settings, progress, between)
    finally:
        pieces.close()


def _describe(session: Session, pieces: GenerationSteps) -> None:
    """Describe the pieces in the Run, for the analysis."""
    generation = pieces.generation
    session.run.workload["generation"] = {
        "prompt": generation.prompt,
        "steps": generation.steps,
        "tokens": generation.tokens,
        "cache": generation.cache,
        "segments": [_stated(FIRST_UNIT + i, segment) for i, (segment, _) in enumerate(pieces.segments)],
    }
    if pieces.contexts:
        stated = [_stated(FIRST_CONTEXT + i, segment) for i, (segment, _) in enumerate(pieces.contexts)]
        session.run.workload["generation"]["contexts"] = stated
    session.save_header()


def _stated(unit: int, segment: Piece) -> SegmentFacts:
    """A piece as the Run states it."""
    stated: SegmentFacts = {
        "unit": unit,
        "phase": segment.phase,
        "weight": segment.weight,
        "times": segment.times,
        "length": segment.length,
    }
    if segment.context is not None:
        stated["context"] = segment.context
    return stated


def _latencies(
    session: Session, step: Step, lane: str, iteration_s: float, settings: ProfileSettings, progress: Progress
) -> None:
    n = max(LEAST_LATENCIES, min(settings.latency_iterations, round(settings.latency_s / iteration_s)))
    progress.begin(lane, (n + 1) * iteration_s)
    with session.phase(lane):
        step.latencies(1)  # the first iteration after another load runs with cold caches
        start_ns = session.clock.time_ns()
        seconds = step.latencies(n)
    session.add_iterations(start_ns, seconds, lane)
    progress.advance((n + 1) * iteration_s)


def _parts(
    session: Session, step: Step, pieces: GenerationSteps, settings: ProfileSettings, iteration_s: float
) -> list[_Part]:
    power = passes.power_channel(session)
    window_s = settings.window_s or TIME_WINDOW_S
    if power is not None:
        window_s = settings.window_s or max(WINDOW_S, passes.window_seconds(settings, power))
    steps: list[tuple[str, int | None, Step, float]] = [("untouched", None, step, iteration_s)]
    for first, some in ((FIRST_UNIT, pieces.segments), (FIRST_CONTEXT, pieces.contexts)):
        steps += [(SEGMENT, first + i, piece, _seconds(piece)) for i, (_, piece) in enumerate(some)]
    margins_s = 0.0 if power is None else 2 * MARGIN_S
    found = []
    for variant, unit, one, seconds in steps:
        replays, beyond = math.ceil(window_s / seconds), math.ceil(margins_s / seconds)
        found.append(_Part(variant, unit, one, replays, beyond, (replays + beyond) * seconds))
    return found


def _seconds(step: Step) -> float:
    """Seconds per iteration, without the first one."""
    step.replay(1)
    few = max(step.replay(1).seconds, 1e-7)
    n = max(1, min(1000, round(0.02 / few)))
    return max(step.replay(n).seconds / n, 1e-7)


def _rounds(
    session: Session,
    parts: Sequence[_Part],
    settings: ProfileSettings,
    progress: Progress,
    between: Callable[[], object] | None,
) -> None:
    power = passes.power_channel(session)
    round_s = sum(part.seconds for part in parts)
    affordable = round((settings.max_time_s or (MOST_S if between is None else MOST_BESIDE_S)) / round_s)
    least = passes.LEAST_WINDOWS - (between is not None)  # one more follows the recording
    first = min(settings.first_stage, max(affordable - (between is not None), least))
    order = random.Random(settings.seed)
    _stage(session, parts, "energy of prefill, decode and the whole", first, order, progress)
    more = 0
    if power is not None:
        more = passes.windows_after(session, power, first, affordable, settings)
    if between is not None:
        between()
        more = max(more, 1)
    if more > 0:
        _stage(session, parts, "energy, second stage", more, order, progress)


def _stage(
    session: Session, parts: Sequence[_Part], name: str, rounds: int, order: random.Random, progress: Progress
) -> None:
    progress.begin(name, rounds * sum(part.seconds for part in parts))
    power = passes.power_channel(session)
    period_s = (power.period_s or 0.0) if power is not None else 0.0
    with session.phase("energy"):
        for _ in range(rounds):
            for part in order.sample(list(parts), len(parts)):
                session.clock.sleep(order.uniform(0, period_s))
                _window(session, part)
                progress.advance(part.seconds)
    session.recorder.check()


def _window(session: Session, part: _Part) -> None:
    interval, counted_mhz = counted_replay(part.step, part.replays + part.beyond)
    iteration_ns = (interval.end_ns - interval.start_ns) / (part.replays + part.beyond)
    start_ns = interval.start_ns + round(part.beyond / 2 * iteration_ns)
    session.add_window(
        variant=part.variant,
        unit=part.unit,
        multiplicity=1.0,
        block=0,
        replays=part.replays,
        beyond=part.beyond,
        start_ns=start_ns,
        end_ns=start_ns + round(part.replays * iteration_ns),
        counted_mhz=counted_mhz,  # includes the iterations beyond the window
    )
