"""The passes of a profile: idle levels, latency, energy. Each measures one quantity without other instrumentation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import pairwise

import numpy as np

from jouletrace import analysis
from jouletrace.analysis.latency import LANE
from jouletrace.analysis.power import tail_s
from jouletrace.devices.base import Clock, Device
from jouletrace.execution.steps.base import FlushedStep, InStreams, Interval, Step, counted, counted_replay
from jouletrace.profiler.backends.torch import context_in_this_process
from jouletrace.profiler.progress import Progress
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.recording import board_store
from jouletrace.recording.session import Session
from jouletrace.run import ChannelInfo
from jouletrace.run.channels import POWER
from jouletrace.run.forms import StoredLevel
from jouletrace.stats.stopping import windows_needed

RAMP_S = 0.4
"""Seconds of load between a rest and the first energy window, so that it starts in steady state."""

LONG_PERIOD_S = 0.05
"""Update period in seconds from which a sensor counts as slow."""

LEAST_WINDOW_S = 0.25
LEAST_PERIODS, GOOD_PERIODS = 10, 25
"""Update periods of the sensor per energy window: the minimum, and the target of a slow one where time allows."""

LEAST_WINDOWS = 3
"""Fewest windows, whatever they cost, also after a recording: fewer don't determine the spread."""

LOOK_EVERY_S = 0.25

_FIGURES = "jouletrace.attribution.attribute"

IDLE_AFTER = "context idle after"
"""The phase in which a device rests after a load."""


def power_channel(session: Session) -> ChannelInfo | None:
    """The channel from which energy is computed, if the device has one."""
    return next((channel for channel in session.recorder.channels if channel.name == POWER), None)


def deep_idle(session: Session, device: Device, settings: ProfileSettings, progress: Progress) -> None:
    """Measure idle power without a context on the GPU, since recording began; otherwise store why not, and the earlier.

    What the host has done since then, such as to import libraries, is no matter.
    """
    if device.info.kind != "gpu" or power_channel(session) is None:
        return
    reason = None
    if context_in_this_process():
        reason = "context_exists"
    elif device.processes():
        reason = "other_processes"
    if reason is None:
        idle(session, "deep idle", settings, progress, since_ns=session.recorder.since_ns)
        return
    session.run.stored["deep_idle_reason"] = reason
    if stored := board_store.recall_as(StoredLevel, device.info.id, "deep_idle"):
        session.run.stored["deep_idle"] = stored


def idle(
    session: Session,
    name: str,
    settings: ProfileSettings,
    progress: Progress,
    meanwhile: Callable[[], object] = lambda: None,
    since_ns: int | None = None,
) -> None:
    """Leave the device idle long enough for the sensor's response to the earlier load to decay.

    ``meanwhile`` is work for the host during that time. The device was idle already from ``since_ns`` on, if given.
    """
    power = power_channel(session)
    if power is None:
        return
    seconds = _idle_s(settings, power)
    progress.begin(name, seconds)
    clock = session.clock
    begin_ns = since_ns or clock.time_ns()
    try:
        meanwhile()
        passed_s = (clock.time_ns() - begin_ns) / 1e9
        progress.advance(min(passed_s, seconds))
        end_ns = begin_ns + round(seconds * 1e9)
        while (left_s := (end_ns - clock.time_ns()) / 1e9) > 0:
            clock.sleep(min(left_s, LOOK_EVERY_S))
            progress.advance(min(left_s, LOOK_EVERY_S))
    finally:
        session.add_span("phase", name, begin_ns, clock.time_ns(), "profile")
    session.recorder.check()


def expected_s(session: Session, settings: ProfileSettings, iteration_s: float) -> float:
    """Seconds that the passes after the warm-up take at most, but for iterations longer than the limits."""
    power, seconds = power_channel(session), 0.0
    if power is not None:
        seconds += 2 * _idle_s(settings, power) + most_seconds(settings, power)
    return seconds + (settings.detail_time_s if settings.detail != "model" else 0.0)


def _idle_s(settings: ProfileSettings, power: ChannelInfo) -> float:
    return settings.idle_s + 2 * (power.window_s or 0) + 4 * (power.period_s or 0)


def timed_iterations(settings: ProfileSettings, iteration_s: float) -> int:
    """Number of iterations of the latency pass: as many as its time has, 10 at least, 30 where they take below 0.1 s.

    ``max_time_s`` bounds that least number too.
    """
    n = min(round(settings.latency_s / iteration_s), settings.latency_iterations)
    least, limit_s = 30 if iteration_s < 0.1 else 10, settings.max_time_s
    if limit_s is not None:
        least = min(least, max(1, round(max(limit_s, 1.0) / iteration_s)))
    return max(n, least)


def within(session: Session, settings: ProfileSettings, begun_ns: int) -> ProfileSettings:
    """The settings with what is left of ``max_time_s`` since the warm-up began, less the idle phases to come."""
    if settings.max_time_s is None:
        return settings
    power = power_channel(session)
    spent_s = (session.clock.time_ns() - begun_ns) / 1e9 + (_idle_s(settings, power) if power is not None else 0.0)
    return replace(settings, max_time_s=max(settings.max_time_s - spent_s, 1e-3))


def latency(session: Session, step: Step, settings: ProfileSettings, iteration_s: float, lane: str = LANE) -> None:
    """Time each iteration by the device's events."""
    n = timed_iterations(settings, iteration_s)
    with session.phase("latency"):
        cold = max(1, round(1.0 / iteration_s))
        step.latencies(min(10, n, cold))  # the first iterations after a wait run on a cold device
        start_ns = session.clock.time_ns()
        seconds = step.latencies(n)
    session.add_iterations(start_ns, seconds, lane)


def energy(
    session: Session,
    step: Step,
    settings: ProfileSettings,
    iteration_s: float,
    progress: Progress,
    between: Callable[[], object] | None = None,
    *,
    hot: bool = False,
) -> None:
    """Measure windows until the requested interval is reached: a first stage, then the number that it determines.

    The device rests after each stage, while that number is computed; it is ``hot`` if the load has run until now.
    ``between`` runs between the stages; its record is compared with windows on both sides, since a die that warms from
    pass to pass draws more.
    """
    power = power_channel(session)
    if power is None:
        if isinstance(step, InStreams) and step.streams > 1:  # overlapping latencies don't give the rate
            replays = max(1, math.ceil(LEAST_WINDOW_S / iteration_s))
            _stage(session, step, "throughput", settings.first_stage, replays, iteration_s, progress)
        if between is not None:
            between()
        return
    replays = max(1, math.ceil(window_seconds(settings, power) / iteration_s))
    affordable = round(most_seconds(settings, power) / (replays * iteration_s))
    first = min(settings.first_stage, max(affordable, LEAST_WINDOWS))
    _stage(session, step, "energy", first, replays, iteration_s, progress, hot=hot)
    more = 0

    def decide() -> None:
        nonlocal more
        more = windows_after(session, power, first, affordable, settings)

    idle(session, IDLE_AFTER, settings, progress, decide)
    if between is not None:
        between()
        more = max(more, LEAST_WINDOWS)
    if more > 0:
        _stage(session, step, "energy, second stage", more, replays, iteration_s, progress)
        idle(session, IDLE_AFTER, settings, progress)


def windows_after(session: Session, power: ChannelInfo, first: int, affordable: int, settings: ProfileSettings) -> int:
    """Number of further windows for the requested interval, computed once the sensor's tail has arrived."""
    last_ns = int(session.snapshot().windows["end_ns"].to_numpy().max())
    import_module(_FIGURES)  # which takes as long as the sensor's tail
    session.recorder.wait_until(last_ns + int(tail_s(power) * 1e9))
    values = analysis.energies_per_iteration(session.snapshot())
    if len(values) < first:
        return 0  # the analysis reports why windows are missing
    return min(windows_needed(values, settings.target_ci), affordable) - first


def most_seconds(settings: ProfileSettings, power: ChannelInfo) -> float:
    """Time limit of the energy pass in seconds: as requested, else the time of eight windows of this sensor.

    With a recording, which takes most of the time, ten windows of a fast sensor.
    """
    if settings.max_time_s is not None:
        return settings.max_time_s
    if (power.period_s or 0.0) > LONG_PERIOD_S:
        return 15.0
    return 9.0 if settings.detail == "model" else 5.0


def window_seconds(settings: ProfileSettings, power: ChannelInfo) -> float:
    """Least length of an energy window in seconds: as the sensor requires, and so that the first stage fits."""
    if settings.window_s is not None:
        return settings.window_s
    period_s = power.period_s or 0.02
    least_s = max(LEAST_WINDOW_S, LEAST_PERIODS * period_s)
    if period_s <= LONG_PERIOD_S:
        return least_s
    return max(least_s, min(GOOD_PERIODS * period_s, most_seconds(settings, power) / settings.first_stage))


def _stage(
    session: Session,
    step: Step,
    name: str,
    windows: int,
    replays: int,
    iteration_s: float,
    progress: Progress,
    *,
    hot: bool = False,
) -> None:
    progress.begin(name, (0.0 if hot else RAMP_S) + windows * replays * iteration_s)
    with session.phase("energy"):
        if not hot:
            ramp, _ = counted_replay(step, max(1, math.ceil(RAMP_S / iteration_s)))
            progress.advance(ramp.seconds)
        for _ in range(windows):
            progress.advance(_window(session, step, replays))
    session.recorder.check()


def _window(session: Session, step: Step, replays: int) -> float:
    """Run one window, and for a step that flushes one of the flushes alone; returns the duration in seconds."""
    parts = [("untouched", step)]
    if isinstance(step, FlushedStep):
        # The replay includes the flushes: as many flushes alone, directly after it, are subtracted.
        parts.append(("flush", step.flush_only()))
    return sum(window(session, variant, part, replays, parts=PIECES) for variant, part in parts)


def window(session: Session, variant: str, step: Step, replays: int, *, block: int = 0, parts: int = 1) -> float:
    """Replay a step as one window of a block, in parts (``shifted``); returns the duration in seconds."""
    pieces, counted_mhz = counted(step, lambda: shifted(step, replays, session.clock, parts))
    session.add_window(
        variant=variant,
        multiplicity=1.0,
        block=block,
        replays=replays,
        start_ns=pieces[0].start_ns,
        end_ns=pieces[-1].end_ns,
        time_s=sum(piece.seconds for piece in pieces),
        counted_mhz=counted_mhz,
    )
    return (pieces[-1].end_ns - pieces[0].start_ns) / 1e9


PIECES = 22
"""Most parts of a window of a profile between which it pauses: 88 a second, which spans all sampling rates known."""

MIDDLE_HZ = 1222.5
"""Middle of the known sampling rates of GPUs, 1191 to 1254 Hz (docs/results/accuracy-programs.md)."""


def shifted(step: Step, n: int, clock: Clock, parts: int = PIECES) -> list[Interval]:
    """Run ``n`` iterations in pieces, between which the device pauses for parts of a cycle.

    Iterations as long as the time between samples, or a multiple, are met at one phase for seconds: aliased, readings
    of DeiT-B at batch 1 swing by a tenth within a second, and windows by 5 %. Pauses that grow by a constant part of
    that time alias two rates in place of it, as far apart as there are pieces in a second: here as far below the middle
    of the rates that GPUs have as above it (docs/results/first-figure.md). Other iterations begin at all phases of one
    cycle.
    """
    many = min(parts, n)
    sizes = [n // many + (i < n % many) for i in range(many)]
    pieces = [step.replay(sizes[0])]
    iteration_s = max(pieces[0].seconds / sizes[0], 1e-9)
    cycle_s = iteration_s / max(1, round(iteration_s * MIDDLE_HZ))
    off_middle = (1 / cycle_s - MIDDLE_HZ) * iteration_s * n / many
    later = off_middle + 0.5 if abs(off_middle) < 0.5 else 1 / many
    paused_s = late_s = 0.0  # a sleep and a launch take longer than is asked for
    for i, size in enumerate(sizes[1:], 1):
        asked_s = max(i * later * cycle_s - paused_s - late_s, 0.0)
        if asked_s:
            clock.sleep(asked_s)
        pieces.append(step.replay(size))
        gap_s = (pieces[-1].start_ns - pieces[-2].end_ns) / 1e9
        paused_s, late_s = paused_s + gap_s, gap_s - asked_s
    return pieces


BLOCK_S = 0.05
"""Target length of one block of iterations, in seconds."""

LEAST_S = 1.2
"""Shortest warm-up in seconds, if the limit allows it: by then a die has most of its temperature under a load."""

SOON_S, LONG_S = 0.5, 1.0
"""Lengths of the two means of power that are compared, in seconds: of a sensor that follows within an eighth of one,
of others."""

SETTLED = 0.01
"""Relative change between the last two intervals below which a quantity counts as settled."""


@dataclass(frozen=True)
class WarmUp:
    """The result of a warm-up of ``seconds``.

    Attributes:
        iteration_s: Seconds per iteration at the end.
        latency_settled: Whether iteration times had settled; None if there were too few to decide.
        power_settled: Whether power had settled; None if the record is too short to decide, or there is none.
    """

    iteration_s: float
    latency_settled: bool | None
    power_settled: bool | None
    seconds: float


def warm_up(
    session: Session,
    step: Step,
    limit_s: float,
    progress: Progress,
    timed: Callable[[float], None] = lambda iteration_s: None,
    expect: Callable[[float], None] = lambda iteration_s: None,
) -> WarmUp:
    """Replay ``step`` until it has settled, ``limit_s`` seconds at most; warns if it has not.

    The first iterations (lazy initialisation, autotuning, compilation) don't count towards the limit. ``timed`` runs
    once when latency has settled, or at the end: it takes the seconds of an iteration, and warms the die as well.
    ``expect`` takes the seconds of the second, before all others.
    """
    power = power_channel(session)
    step.replay(1)
    iteration_s = max(step.replay(1).seconds, 1e-7)
    expect(iteration_s)
    start_ns = session.clock.time_ns()
    times: list[float] = []
    latency_settled: bool | None = None
    power_settled: bool | None = None
    elapsed, waiting = 0.0, True
    while elapsed < limit_s:
        n = max(1, round(min(BLOCK_S, limit_s) / iteration_s))
        block = step.replay(n)
        iteration_s = max(block.seconds / n, 1e-7)
        times.append(iteration_s)
        progress.advance(block.seconds)
        latency_settled = _settled(times[-8:])
        if latency_settled and waiting:
            waiting = False
            timed(iteration_s)
        elapsed = (session.clock.time_ns() - start_ns) / 1e9
        power_settled = _power_settled(session, power, start_ns) if power is not None else None
        if latency_settled and (power_settled or power is None) and elapsed >= min(LEAST_S, limit_s):
            break
    if waiting:
        timed(iteration_s)
    if latency_settled is False:
        latency_settled = not _keeps_changing(
            [float(np.median(times[-i:][:7])) for i in (21, 14, 7) if len(times) >= i], SETTLED
        )
    if power_settled is False:
        power_settled = not _keeps_changing(_last_levels_w(session, start_ns, 4, LONG_S), 1.5 * SETTLED)
    _warn(session, "latency", latency_settled, elapsed)
    if power is not None:
        _warn(session, "power", power_settled, elapsed)
    return WarmUp(iteration_s, latency_settled, power_settled, elapsed)


def _warn(session: Session, quantity: str, settled: bool | None, seconds: float) -> None:
    if settled is None:
        text = f"{seconds:.1f} s of warm-up were too short to determine whether {quantity} had settled"
        session.run.warn("not_settled", text, "warm-up")
    elif not settled:
        session.run.warn("not_settled", f"{quantity} was still changing after {seconds:.1f} s of warm-up", "warm-up")


def _settled(values: list[float]) -> bool | None:
    """True if the second half differs from the first by less than ``SETTLED`` or than its own noise.

    None for fewer than eight values.
    """
    if len(values) < 8:
        return None
    first, second = np.array(values[:4]), np.array(values[4:])
    # Twice the standard error of the difference of two means of four values: its 95 % limits.
    noise = 2 * float(np.hypot(np.std(first, ddof=1), np.std(second, ddof=1))) / 2
    change = abs(float(np.median(second) - np.median(first)))
    return change <= max(SETTLED * float(np.median(second)), noise)


def _keeps_changing(levels: Sequence[float], tolerance: float) -> bool:
    """True if the last levels change by more than a relative ``tolerance`` and in one direction.

    At a power cap clock and power wander by percents without end: what turns back is as settled as it will be. With
    fewer than three levels any change counts.
    """
    changes = [(after - before) / after for before, after in pairwise(levels) if after]
    return not changes or all(change > tolerance for change in changes) or all(c < -tolerance for c in changes)


def _last_levels_w(session: Session, start_ns: int, most: int, length_s: float) -> list[float]:
    """Mean power of the last whole segments since ``start_ns``, so many at most, oldest first."""
    stamps, watts = session.power(start_ns)
    length_ns = round(length_s * 1e9)
    ends = [int(stamps[-1]) - i * length_ns for i in reversed(range(most))] if len(stamps) else []
    segments = [watts[(stamps > end - length_ns) & (stamps <= end)] for end in ends if end - length_ns >= start_ns]
    return [float(np.mean(segment)) for segment in segments if len(segment) >= 5]


def _power_settled(session: Session, power: ChannelInfo, start_ns: int) -> bool | None:
    """True if the last two segments had the same mean power; None if the record is shorter."""
    session.recorder.wait_until(session.clock.time_ns(), timeout_s=0.0)  # asks for what there is
    quick = max(power.period_s or 0.0, power.window_s or 0.0) <= SOON_S / 4
    levels = _last_levels_w(session, start_ns, 2, SOON_S if quick else LONG_S)
    return abs(levels[1] - levels[0]) <= 1.5 * SETTLED * levels[1] if len(levels) == 2 else None
